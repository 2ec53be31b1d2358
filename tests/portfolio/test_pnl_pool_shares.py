"""Swaps for shares of a pool inside its vault add liquidity; trades of shares and what strangers invent do not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chainfolio.adapters.evm.protocols.balancer_v2 import SWAPPED, vault_changes
from chainfolio.localchain.evm import topic_of
from chainfolio.portfolio.pnl.operations import loans_and_savings
from chainfolio.portfolio.pnl.pool_shares import typed_by_pools
from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.records import entries_of
from chainfolio.portfolio.transactions import TransactionAssetDocument
from chainfolio.position_changes import EventLog, VaultChange
from tests.portfolio.test_pnl_records import ME, NOBODY, OTHER, asset, record

VAULT, SHARE, OTHER_SHARE, USDC = ("0x" + digit * 40 for digit in "1234")
KEY = ("chain", "0x1")
TREATMENT = Treatment(burn_addresses={NOBODY})


def swap(raw: int, other: str = "a", share: str = SHARE, other_raw: int = 5) -> list[VaultChange]:
    """Return both sides of a swap of a share for another token in the vault; negative if the share was sold."""
    sign = 1 if raw > 0 else -1
    return [
        VaultChange("share", VAULT, share, None, share, raw),
        VaultChange("share", VAULT, share, None, other, -sign * other_raw),
    ]


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
    assert type_of([row(SHARE)], [row("a")], *swap(5)) == "ADDLIQUIDITY"
    assert type_of([row("a")], [row(SHARE)], *swap(-5)) == "REMOVELIQUIDITY"
    nested = *swap(9, share=OTHER_SHARE), *swap(5, OTHER_SHARE, other_raw=9)
    assert type_of([row(SHARE)], [row("a")], *nested) == "ADDLIQUIDITY"
    both = [change for other in "ab" for change in swap(-5, other)]
    assert type_of([row("a"), row("b")], [row(SHARE, 10)], *both, type_="INTERACTION") == "REMOVELIQUIDITY"


@pytest.mark.parametrize(
    ("came", "left", "changes"),
    [
        ([row(SHARE)], [row(OTHER_SHARE)], [*swap(-5, share=OTHER_SHARE), *swap(5)]),
        ([row(SHARE), row("b")], [row("a")], swap(5)),
        ([row(SHARE, other=OTHER)], [row("a")], swap(5)),
        ([row("b")], [row("a")], [*swap(9), *swap(-9, "b")]),
        ([row(SHARE)], [row("a")], swap(-5)),
        ([row(SHARE)], [], swap(5)),
        ([row(SHARE)], [row("weth")], swap(5)),
        ([row(SHARE)], [row("a", 5_000, OTHER)], swap(5)),
        ([row(SHARE)], [row("a"), row("a", 5_000, OTHER)], swap(5)),
        ([row("weth", other=OTHER)], [row(SHARE)], swap(-5)),
        ([row(SHARE)], [row("a", 6)], swap(5)),
    ],
    ids=[
        "two pools",
        "another asset",
        "shares of others",
        "through a pool",
        "the reverse",
        "a gift",
        "through another pool",
        "a payment beside a gift",
        "a payment beside a deposit",
        "paid elsewhere",
        "another amount",
    ],
)
def test_other_movements_of_shares_keep_their_type(
    came: Sequence[TransactionAssetDocument],
    left: Sequence[TransactionAssetDocument],
    changes: Sequence[VaultChange],
) -> None:
    assert type_of(came, left, *changes) == "SWAP"


def test_an_invented_payment_makes_no_deposit_of_a_gift() -> None:
    assert type_of([row(SHARE)], [row("bait")], *swap(5, "bait"), sender=OTHER, scam="bait") == "SWAP"
    assert type_of([row(SHARE)], [row("a")], *swap(5), sender=OTHER, scam="bait") == "ADDLIQUIDITY"


def test_share_for_share_is_a_trade_also_in_two_transactions() -> None:
    first = record("SWAP", [row(OTHER_SHARE)], [row("a")], hash="0x1")
    second = record("SWAP", [row(SHARE)], [row(OTHER_SHARE)], hash="0x2")
    changes = {KEY: swap(5, share=OTHER_SHARE), ("chain", "0x2"): swap(5, OTHER_SHARE)}
    assert [each.type for each in typed_by_pools([first, second], changes, [ME], TREATMENT)] == ["ADDLIQUIDITY", "SWAP"]


def test_a_deposit_is_no_reward_of_a_vault_with_another_deposit() -> None:
    without_share = record("ADDLIQUIDITY", [], [row("a", 50)], hash="0x0", recipient=VAULT)
    first, second = (
        record("SWAP", [asset(SHARE, "5", "60", VAULT)], [row("a")], hash=each, recipient=VAULT)
        for each in ("0x1", "0x2")
    )
    changes = {KEY: swap(5), ("chain", "0x2"): swap(5)}
    typed = typed_by_pools([without_share, first, second], changes, [ME], TREATMENT)
    entries = entries_of(typed, [ME], TREATMENT).entries
    assert [entry.kind for entry in entries if entry.kind != "fee"] == ["deposit"] * 3


def test_other_types_and_transactions_without_changes_are_unchanged() -> None:
    assert type_of([row(SHARE)], [row("a")], *swap(5), type_="DEPOSIT") == "DEPOSIT"
    assert type_of([row(SHARE)], [row("a")]) == "SWAP"
    assert typed_by_pools([record("SWAP")], {KEY: None}, [ME], Treatment()) == [record("SWAP")]


def test_changes_of_shares_are_no_loans_and_no_savings() -> None:
    assert loans_and_savings({KEY: swap(5)}) == {}


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
    assert vault_changes(logs, {"vault": [VAULT]}) == [
        *(VaultChange("share", VAULT, SHARE, None, token, raw) for token, raw in ((USDC, -70), (SHARE, 90))),
        *(VaultChange("share", VAULT, SHARE, None, token, raw) for token, raw in ((SHARE, -70), (USDC, 90))),
    ]
    assert vault_changes(logs, {}) == []
