"""Rows of withdrawals of validators, from a header."""

from __future__ import annotations

from datetime import UTC, datetime

from chainfolio.adapters.evm.datasets.withdrawals import rows
from chainfolio.adapters.evm.node import Header
from chainfolio.adapters.evm.roots import Withdrawal

BLOCK, ALICE, BOB = "0x" + "AB" * 32, "0x" + "A1" * 20, "0x" + "b2" * 20
GWEI = 10**9


def header(*withdrawals: Withdrawal) -> Header:
    """Block 16 of the fifth second with a transaction."""
    return Header(
        "0x10",
        BLOCK,
        "0x" + "00" * 32,
        "0x5",
        "0x",
        "0x0",
        "0x0",
        transactions=[b"{}"],  # type: ignore[list-item]
        withdrawals=list(withdrawals),
    )


def test_a_withdrawal_has_the_time_and_the_hash_of_its_block_and_stands_behind_its_transactions() -> None:
    table = rows([header(Withdrawal(ALICE, "0x3"), Withdrawal(BOB, "0x0"), Withdrawal(BOB, "0x4"))], "eip155:1")
    assert [
        (row["height"], row["time"], row["tx_hash"], row["tx_index"], row["item"], row["recipient"], row["raw"])
        for row in table.to_pylist()
    ] == [
        (16, datetime.fromtimestamp(5, UTC), BLOCK.lower(), 1, item, recipient, (gwei * GWEI).to_bytes(32, "big"))
        for item, recipient, gwei in ((0, ALICE.lower(), 3), (2, BOB, 4))
    ]


def test_a_block_without_withdrawals_has_no_rows() -> None:
    assert rows([header()], "eip155:1").num_rows == 0
