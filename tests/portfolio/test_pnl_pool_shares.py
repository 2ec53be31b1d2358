"""Swaps for shares of a pool inside its vault add liquidity; trades of shares and what strangers invent do not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chainfolio.adapters.evm.protocols.balancer_v2 import SWAPPED, vault_changes
from chainfolio.localchain.evm import topic_of
from chainfolio.portfolio.pnl.operations import loans_and_savings
from chainfolio.portfolio.pnl.pool_shares import typed_by_pools
from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.transactions import TransactionAssetDocument
from chainfolio.position_changes import EventLog, VaultChange
from tests.portfolio.test_pnl_records import ME, NOBODY, OTHER, asset, record

VAULT, SHARE, OTHER_SHARE, USDC = ("0x" + digit * 40 for digit in "1234")
KEY = ("chain", "0x1")


def change(raw: int, share: str = SHARE) -> VaultChange:
    return VaultChange("share", VAULT, share, None, share, raw)


def row(symbol: str, raw: int = 5, other: str = VAULT) -> TransactionAssetDocument:
    return asset(symbol, str(raw), other=other)


def type_of(
    came: Sequence[TransactionAssetDocument],
    left: Sequence[TransactionAssetDocument],
    *changes: VaultChange,
    sender: str = ME,
    type_: str = "SWAP",
    scam: str = "",
) -> str:
    """Return the type of a transaction of ME in which the vault swapped shares."""
    treatment = Treatment(burn_addresses={NOBODY}, is_trusted=lambda contract: contract != f"chain:{scam}")
    [result] = typed_by_pools([record(type_, came, left, sender=sender)], {KEY: changes}, [ME], treatment)
    return result.type


def test_swaps_of_shares_in_their_vault_change_liquidity() -> None:
    assert type_of([row(SHARE)], [row("a")], change(5)) == "ADDLIQUIDITY"
    assert type_of([row("a")], [row(SHARE)], change(-5)) == "REMOVELIQUIDITY"
    nested = change(9, OTHER_SHARE), change(5)
    assert type_of([row(SHARE)], [row("a")], *nested) == "ADDLIQUIDITY"
    assert type_of([row(SHARE)], [row(OTHER_SHARE)], change(5)) == "ADDLIQUIDITY"
    assert type_of([row("a"), row("b")], [row(SHARE)], change(-5), type_="INTERACTION") == "REMOVELIQUIDITY"


@pytest.mark.parametrize(
    ("came", "left", "changes"),
    [
        ([row(SHARE)], [row(OTHER_SHARE)], [change(-5, OTHER_SHARE), change(5)]),
        ([row(SHARE), row("b")], [row("a")], [change(5)]),
        ([row(SHARE, other=OTHER)], [row("a")], [change(5)]),
        ([row("b")], [row("a")], [change(9), change(-9)]),
        ([row(SHARE)], [row("a")], [change(-5)]),
        ([row(SHARE)], [], [change(5)]),
    ],
    ids=["two pools", "another asset", "shares of others", "through a pool", "the reverse", "a gift"],
)
def test_other_movements_of_shares_keep_their_type(
    came: Sequence[TransactionAssetDocument],
    left: Sequence[TransactionAssetDocument],
    changes: Sequence[VaultChange],
) -> None:
    assert type_of(came, left, *changes) == "SWAP"


def test_an_invented_payment_makes_no_deposit_of_a_gift() -> None:
    sent = {"sender": OTHER, "scam": "bait"}
    assert type_of([row(SHARE)], [row("bait")], change(5), **sent) == "SWAP"
    assert type_of([row(SHARE)], [row("a")], change(5), **sent) == "ADDLIQUIDITY"


def test_other_types_and_transactions_without_changes_are_unchanged() -> None:
    assert type_of([row(SHARE)], [row("a")], change(5), type_="DEPOSIT") == "DEPOSIT"
    assert type_of([row(SHARE)], [row("a")]) == "SWAP"
    assert typed_by_pools([record("SWAP")], {KEY: None}, [ME], Treatment()) == [record("SWAP")]


def test_changes_of_shares_are_no_loans_and_no_savings() -> None:
    assert loans_and_savings({KEY: [change(5)]}) == {}


def test_only_swaps_of_its_own_share_in_the_vault_change_a_pool() -> None:
    def swapped(sold: str, bought: str, pool: str = SHARE, contract: str = VAULT) -> EventLog:
        topics = (SWAPPED, pool + "00" * 12, topic_of(sold), topic_of(bought))
        return EventLog(contract, topics, (70).to_bytes(32, "big") + (90).to_bytes(32, "big"))

    logs = [
        swapped(USDC, SHARE),
        swapped(SHARE, USDC),
        swapped(USDC, SHARE, pool=OTHER_SHARE),
        swapped(USDC, SHARE, contract=USDC),
        EventLog(VAULT, (SWAPPED,), b""),
    ]
    assert vault_changes(logs, {"vault": [VAULT]}) == [change(90), change(-70)]
    assert vault_changes(logs, {}) == []
