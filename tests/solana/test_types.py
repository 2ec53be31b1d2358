"""Recorded transactions as answers call them: the type, the protocol and the function, by the program."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from random import Random
from typing import Final

import pytest

from chainfolio.adapters.solana.functions import selector
from chainfolio.adapters.solana.kind import KIND
from chainfolio.adapters.solana.layouts import SYSTEM
from chainfolio.adapters.solana.rows import tables, tx_indexes
from chainfolio.adapters.solana.transactions import BASE58_DIGITS, Change, base58_prefix, paired_transfers, to_base58
from chainfolio.assets import Asset
from chainfolio.contracts import TransactionDetails
from chainfolio.engine.transactions.function_names import load as functions_of
from chainfolio.errors import BadAnswer
from chainfolio.indexer.protocol_files import load as registry_of
from chainfolio.portfolio.activity import Activity, Movement, signs, type_of
from tests.solana.recorded import lines, needs_recordings
from tests.solana.test_recorded import recorded

CONFIGS: Final = Path(__file__).parents[2] / "configs"
CHAIN: Final = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
# By the name of the recording: the type, the protocol and the function for each account that it is about.
WANTED: Final = {
    "rfq_swap": ("SWAP", "jupiter", "fill"),
    "route_v2_with_multiple_underlying_swaps": ("SWAP", "jupiter", "routeV2"),
    "shared_accounts_route": ("SWAP", "jupiter", "sharedAccountsRoute"),
    "earn_deposit": ("DEPOSIT", "jupiter", "deposit"),
    "deposit_collateral_native": ("INTERACTION", "jupiter", "operate"),
    "withdraw_collateral_native": ("INTERACTION", "jupiter", "operate"),
    "borrow_token": ("INTERACTION", "jupiter", "operate"),
    "borrow_native": ("INTERACTION", "jupiter", "operate"),
    "token2022_transfer": ("TRANSFERIN", None, ""),
    "native_transfer": ("TRANSFEROUT", None, ""),
    # Who runs the orders of others signed it; the account's own deposit was an earlier transaction.
    "jupiter_v6_dca_swap_with_sol_sent-2GMpqA": ("TRANSFEROUT", "jupiter", ""),
    "jupiter_limit_v2_open_cancel-4iZxoW": ("WITHDRAW", "jupiter", "cancelOrder"),
    "raydium_v4_swap-5dk9JQ": ("SWAP", "raydium", ""),
    "jupiter_limit_v2_open_cancel-L6rJy9": ("DEPOSIT", "jupiter", "initializeOrder"),
    "jupiter_v6_dca_swap-S3z6oP": ("TRANSFERIN", "jupiter", ""),
}


def activity(account: str, change: Change) -> Activity:
    """A transaction as one account saw it."""
    movements: list[Movement] = []
    for mint, changes in (("", change.native), *change.tokens.items()):
        asset = Asset(CHAIN, "token", mint) if mint else Asset(CHAIN, "slip44", "501")
        for sender, recipient, raw in paired_transfers(changes, mint or SYSTEM):
            if sender == account:
                movements.append(Movement(-1, len(movements), "out", "spl", asset, raw, recipient))
            if recipient == account:
                movements.append(Movement(-1, len(movements), "in", "spl", asset, raw, sender))
    content = change.content[:4] if change.content else None
    details = TransactionDetails(change.payer, change.program, None, 0, change.fee, change.failed, content)
    return Activity("solana", account, 1, 1, 1, change.signature, tuple(movements), details=details)


@needs_recordings
def test_recorded_transactions_have_the_type_the_protocol_and_the_function_of_their_programs() -> None:
    kinds = {path.stem: tomllib.loads(path.read_text()).get("kind", "evm") for path in CONFIGS.glob("chains/*.toml")}
    registry = registry_of([CONFIGS / "protocols"], kinds)
    functions = functions_of(CONFIGS / "functions.toml", KIND.selector)
    changes, results = recorded(), {}
    for case in lines("transactions.expected.jsonl.gz"):
        change = changes[case["signature"]]
        for account in case["accounts"]:
            summary = activity(account, change)
            assert summary.details is not None
            called = registry.of(summary.details.recipient or "", ("solana",))
            facts = registry.facts[called[0][1].key] if called else None
            function = functions.names.get(summary.details.selector or b"", "")
            type_ = type_of(signs(summary, function), function, facts.transactions if facts else ())
            results[case["id"]] = (type_, facts.key if facts else None, function)
    assert results == WANTED


def test_what_a_text_in_base58_begins_with_is_what_it_stands_for() -> None:
    chance = Random(7)
    for _ in range(5_000):
        content = bytes(chance.randrange(3)) + chance.randbytes(chance.randrange(50)) + b"\xff" * chance.randrange(20)
        assert base58_prefix("node", to_base58(content)) == content[:8]
    assert "0" not in BASE58_DIGITS
    with pytest.raises(BadAnswer, match="not in base58"):
        base58_prefix("node", "3l0")


def test_functions_are_found_by_the_hash_of_their_names_and_those_of_other_chains_are_not() -> None:
    assert selector("solana:sharedAccountsRoute()") == hashlib.sha256(b"global:shared_accounts_route").digest()[:4]
    assert selector("solana:delegateStake()") == bytes([2, 0, 0, 0])
    assert selector("deposit()") != selector("solana:deposit()")


@needs_recordings
def test_the_rows_of_a_transaction_keep_what_its_program_was_given() -> None:
    from chainfolio.adapters.solana.rows import LocatedChange

    change = next(each for each in recorded().values() if each.content)
    rows = tables("solana", [LocatedChange(1, 1, 1, change)], ("transactions",))["transactions"].to_pylist()
    assert [row["input"] for row in rows] == [change.content]


@needs_recordings
def test_rows_of_some_datasets_and_mints_are_those_among_all_rows() -> None:
    from chainfolio.adapters.solana.rows import LocatedChange

    located = [LocatedChange(number, 1, number, change) for number, change in enumerate(recorded().values())]
    every = tables("solana", located, ("native", "transfers"))["transfers"].to_pylist()
    mints = sorted({row["token"] for row in every if row["token"]})
    assert len(mints) > 2
    for datasets, standards in ((("native",), {"native"}), (("transfers",), {"spl"}), (("native", "transfers"), None)):
        for contracts in ((), mints[:1], mints[1:], ["none"]):
            selected = tables("solana", located, datasets, contracts)
            assert selected.keys() == {"transfers"}
            assert selected["transfers"].to_pylist() == [
                row
                for row in every
                if (standards is None or row["standard"] in standards)
                and (not contracts or not row["token"] or row["token"] in contracts)
            ]
    assert tables("solana", located, ("rewards",)) == {}


def test_transactions_of_a_slot_have_different_indexes_in_whatever_order_they_come() -> None:
    """The second of two equal indexes takes the next free one; the first number follows the last."""
    heads = {6: 3, 7: 4, 8: 5, 2**32 - 2: 2**31 - 1, 2**32 - 1: 0}
    indexes = {to_base58(head.to_bytes(4, "big") + bytes(60)): index for head, index in heads.items()}
    for signatures in (list(indexes), list(indexes)[::-1]):
        assert tx_indexes("node", signatures) == [indexes[each] for each in signatures]
    assert tx_indexes("node", list(indexes)[:1]) == [3]
    with pytest.raises(BadAnswer, match="a transaction whose signature is none"):
        tx_indexes("node", ["1" * 9])
