"""Rows that two readings of the same blocks both have."""

from __future__ import annotations

import pyarrow as pa
import pytest

from chainfolio.adapters.evm.datasets.internal import CoinTransfer, TracedBlock, rows
from chainfolio.indexer.duplicates import merged
from chainfolio.tables import TRANSFERS

WETH, ALICE, BOB = ("0x" + digit * 40 for digit in "abc")
PLACE = TracedBlock(7, 1_700_000_000, "0x" + "01" * 32, ("0x" + "02" * 32,))
TRACED = [
    CoinTransfer(0, ALICE, WETH, 9),
    CoinTransfer(0, WETH, BOB, 5),
    CoinTransfer(0, WETH, ALICE, 5),
    CoinTransfer(0, WETH, ALICE, 5),
]
COUNTED_ALONE = [CoinTransfer(0, WETH, ALICE, 5, 2**30 + k) for k in range(2)]


def table(*moves: CoinTransfer) -> pa.Table:
    return rows({PLACE: moves}, "local")


def movements(found: pa.Table) -> list[tuple[str, str, int]]:
    return sorted((r["sender"], r["recipient"], int.from_bytes(r["raw"], "big")) for r in found.to_pylist())


@pytest.mark.parametrize("is_first", [True, False])
def test_a_movement_that_one_reading_could_not_count_is_kept_once(is_first: bool) -> None:
    traced, alone = table(*TRACED), table(*COUNTED_ALONE)
    both = merged(TRANSFERS, *((traced, alone) if is_first else (alone, traced)))
    assert movements(both) == movements(traced), "two alike are two, and those of others stay"
    assert len({row["item"] for row in both.to_pylist()}) == len(TRACED)


def test_payments_to_two_accounts_that_were_read_apart_are_both_kept() -> None:
    bob_rows = table(CoinTransfer(0, WETH, BOB, 5, 2**30 + 2**8))
    assert len(merged(TRANSFERS, table(*COUNTED_ALONE), bob_rows)) == 3
