"""Lots of shares that portfolios show as positions: their part of each asset, beside the part of deposits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from chainfolio.contracts import Holding, Position
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.document import UNKNOWN, Portfolio
from chainfolio.portfolio.metrics.changes import day_holdings
from chainfolio.portfolio.pnl.closing import (
    NO_LOTS,
    UNSEEN,
    ClosingCheck,
    CurrentHoldings,
    HeldAsset,
    account_closings,
    missing_share_issues,
)
from chainfolio.portfolio.pnl.entries import UNASKED, AssetFacts
from chainfolio.portfolio.pnl.gains import NO_PRICE, Gains, RemainingLots
from chainfolio.portfolio.pnl.in_portfolio import AccountGains, with_gains
from chainfolio.portfolio.pnl.methods import gains_of
from chainfolio.portfolio.pnl.record_rows import RecordEntries, Treatment
from chainfolio.portfolio.pnl.records import entries_of
from chainfolio.portfolio.pnl.report import document as report_of
from chainfolio.portfolio.pnl.share_lots import share_lots
from chainfolio.portfolio.pnl.transaction_records import TransactionRecord
from chainfolio.portfolio.transactions import NamedEntity, Nft
from chainfolio.portfolio.valuation import valuate
from tests.portfolio.examples import ALICE, CHAINS, erc20, snapshot
from tests.portfolio.test_pnl_in_portfolio import KEYS, issues, position, usd
from tests.portfolio.test_pnl_records import ME, NOBODY, OTHER, POOL, asset, brief, record

SHARE, SECOND = (erc20("0x" + digits * 20, 18, "SHARE") for digits in ("5a", "5b"))
SHARE_KEY, SECOND_KEY = (f"ethereum:{each.asset.shown_contract}" for each in (SHARE, SECOND))
DEPOSITED = {SHARE_KEY: frozenset({KEYS["USDC"]})}


def document(supplied: Mapping[str, int], balances: tuple[int, ...] = (100,), max_usd: str = "") -> Portfolio:
    """A portfolio with one position, which replaces one or two shares. A market may limit the value of its assets."""
    shares = tuple(zip((SHARE.asset, SECOND.asset), balances, strict=False))
    replacing = replace(position(dict(supplied)), shares=shares)
    limited = tuple(replace(each, value_usd=Decimal(max_usd)) for each in replacing.supplied if max_usd)
    replacing = replace(replacing, supplied=limited or replacing.supplied)
    return portfolio(ALICE, replace(valuate([snapshot()]), positions=(replacing,)), CHAINS, updated_ms=1)


def replace_address(shown: Portfolio) -> Portfolio:
    """Return a portfolio as that of another wallet."""
    return msgspec.structs.replace(shown, address="second")


def lots(quantity: int = 0, cost: str = "0", *, unasked: int = 0, key: str = SHARE_KEY) -> RemainingLots:
    return RemainingLots(key, "", quantity, usd(cost), unasked=unasked)


def deposit(raw: int, cost: str) -> RemainingLots:
    return RemainingLots(KEYS["USDC"], "", raw, usd(cost), deposited=raw)


def parts(shown: Portfolio, *remaining: RemainingLots, contents: Mapping[str, frozenset[str]]) -> dict[str, int]:
    """Return the parts for lots by symbol."""
    result = share_lots([shown], remaining, contents, {})
    return {each.symbol: raw for each, _, raw in result.assets.values()}


def read(*records: TransactionRecord) -> RecordEntries:
    """Return the entries of transactions, where only one token has a price by the settings."""
    treatment = Treatment(
        burn_addresses={NOBODY}, gas_holders={"entry"}, is_priced=lambda contract: contract == "chain:usd"
    )
    return entries_of(records, [ME], treatment)


def test_a_part_is_that_of_the_lots_in_all_units_of_the_share() -> None:
    shown = document({"USDC": 1_000_000, "DAI": 500})
    assert parts(shown, lots(unasked=20), contents=DEPOSITED) == {"usdc": 200_000, "dai": 100}
    assert parts(shown, lots(unasked=300), contents=DEPOSITED) == {"usdc": 1_000_000, "dai": 500}
    assert parts(shown, contents=DEPOSITED) == {}


def test_growth_of_a_share_without_a_deposit_belongs_to_its_lots_up_to_a_half() -> None:
    shown = document({"USDC": 1_000_000})
    assert parts(shown, lots(unasked=70), contents={}) == {"usdc": 1_000_000}
    assert parts(shown, lots(unasked=20), contents={}) == {"usdc": 200_000}
    dust = account_closings(shown, [lots(unasked=20)], {})
    assert {key[0]: each.protocols_fault for key, each in dust.items()} == {KEYS["USDC"]: UNSEEN, SHARE_KEY: ""}
    assert dust[SHARE_KEY, ""].difference == 80


def test_of_several_shares_the_one_without_a_deposit_stands_for_the_other_asset() -> None:
    shown = document({"USDC": 1_000_000, "DAI": 500}, (100, 60))
    given = [lots(unasked=10), lots(unasked=60, key=SECOND_KEY)]
    assert parts(shown, *given, contents=DEPOSITED) == {"usdc": 100_000, "dai": 500}
    assert parts(shown, *given, contents={}) == {}, "the first one has grown too much"
    assert parts(shown, lots(unasked=100), given[1], contents={}) == {"usdc": 1_000_000, "dai": 500}
    assert parts(shown, lots(100), given[1], contents={}) == {}, "which of them was bought?"


def test_what_a_share_was_exchanged_for_may_be_any_asset_without_a_deposit() -> None:
    zapped, dust = {SHARE_KEY: frozenset({KEYS["ETH"]})}, lots(unasked=1, key=SECOND_KEY)
    assert parts(document({"USDC": 1_000_000}, (100, 1)), dust, contents=zapped) == {}
    assert parts(document({"USDC": 1_000_000}, (100, 1)), dust, contents={SHARE_KEY: frozenset()}) == {}
    assert parts(document({"USDC": 1_000_000, "DAI": 1}, (100, 1)), dust, contents=DEPOSITED) == {"dai": 1}


def test_a_deposit_that_brought_several_shares_stays_one_beside_dust_of_another() -> None:
    came = [asset("first", "9", other=NOBODY), asset("second", "9", other=NOBODY)]
    paid = [asset("usd", "9", "9", POOL), asset("eth", "1", "9", POOL)]
    both = frozenset({"chain:usd", "chain:eth"})
    assert read(record("DEPOSIT", came, paid)).contents == {"chain:first": both, "chain:second": both}
    shown, dust = document({"USDC": 100 * 10**6}, (100, 1)), lots(unasked=1, key=SECOND_KEY)
    contents = {SHARE_KEY: frozenset({KEYS["USDC"], KEYS["DAI"]})}
    remaining = {each.asset: each for each in (deposit(90 * 10**6, "90"), dust)}
    filled = with_gains(shown, AccountGains(remaining, contents=contents))
    assert (filled.total_cost_basis, filled.open_pnl) == ("90", "10")


def test_tokens_of_debts_are_no_shares_of_what_was_supplied() -> None:
    owed = erc20("0x" + "de" * 20, 18, "DEBT")
    held = [Holding(ALICE, each, raw) for each, raw in ((SHARE, 100), (owed, 7), (SECOND, 1))]
    replaces = tuple(each.token.asset for each in held)
    market = Position(ALICE, "aave3", "LENDING", "Main", replaces=replaces, debts=(owed.asset,))
    (valued,) = valuate([replace(snapshot(*held), positions=(market,))]).positions
    assert valued.shares == ((SHARE.asset, 100), (SECOND.asset, 1))


def test_a_market_that_limits_a_value_pays_it_once_for_a_deposit_and_a_bought_share() -> None:
    shown = document({"USDC": 100 * 10**6}, max_usd="50")
    remaining = [deposit(50 * 10**6, "10"), lots(50, "10")]
    filled = with_gains(shown, AccountGains({each.asset: each for each in remaining}, contents=DEPOSITED))
    assert (filled.total_cost_basis, filled.open_pnl) == ("20", "30")
    shares = share_lots([shown], remaining, DEPOSITED, {})
    limits = shares.without_parts({KEYS["USDC"]: Decimal(50), KEYS["DAI"]: Decimal(9)}, {})
    assert limits == {KEYS["USDC"]: Decimal(25), KEYS["DAI"]: Decimal(9)}
    facts = {SHARE_KEY: AssetFacts("SHARE", 18), KEYS["USDC"]: AssetFacts("USDC", 6)}
    current = CurrentHoldings(
        limits, account_closings(shown, remaining, {}, contents=DEPOSITED), share_values=shares.values()
    )
    prices = {KEYS["USDC"]: Decimal(1)}
    report = report_of(Gains([], remaining), facts, prices, method="fifo", addresses=[ALICE], current=current)
    assert (report.total_cost_basis, report.value, report.open_pnl) == ("20", "50", "30")


def test_bought_shares_have_their_own_cost_and_gain_in_a_portfolio() -> None:
    remaining = {each.asset: each for each in (deposit(80 * 10**6, "70"), lots(20, "15"))}
    filled = with_gains(document({"USDC": 110 * 10**6}), AccountGains(remaining, contents=DEPOSITED))
    assert (filled.total_cost_basis, filled.open_pnl) == ("85", "25")
    assert issues(filled) == []


def test_units_that_others_sent_are_in_no_sum_of_a_portfolio() -> None:
    remaining = {each.asset: each for each in (deposit(80 * 10**6, "70"), lots(10, "15", unasked=10))}
    filled = with_gains(document({"USDC": 100 * 10**6}), AccountGains(remaining, contents=DEPOSITED))
    assert (filled.total_cost_basis, filled.open_pnl) == ("85", "5")
    assert issues(filled) == [(SHARE_KEY, f"its gain is not known: {UNASKED}")]
    assert NO_LOTS not in {each.reason for each in filled.issues}


def test_values_of_a_day_divide_a_position_between_its_asset_and_its_share() -> None:
    shown = document({"USDC": 100 * 10**6})
    shares = share_lots([shown], [lots(unasked=10)], DEPOSITED, {})
    holdings, _ = day_holdings([shown], {}, lambda value: value, shares)
    assert {key: each.value for key, each in holdings.items()} == {KEYS["USDC"]: Decimal(90), SHARE_KEY: Decimal(10)}


def test_lots_by_wallet_get_the_part_of_their_own_wallet() -> None:
    first, second = document({"USDC": 1_000_000}), document({"USDC": 3_000_000}, (300,))
    both = [first, replace_address(second)]
    of_wallet = [lots(unasked=30)._replace(wallet="second")]
    result = share_lots(both, of_wallet, DEPOSITED, {}, per_wallet=True)
    assert [raw for _, _, raw in result.assets.values()] == [300_000]
    pooled = share_lots(both, [lots(unasked=40)], DEPOSITED, {})
    assert sorted(raw for _, _, raw in pooled.assets.values()) == [100_000, 300_000]


def test_growth_of_given_shares_of_a_wallet_without_a_deposit_belongs_to_them() -> None:
    grown, other = document({"USDC": 101 * 10**6}, (101,)), replace_address(document({"USDC": 90 * 10**6}, (90,)))
    own = deposit(90 * 10**6, "90")._replace(wallet="second")
    remaining = [own, lots(unasked=100)._replace(wallet=ALICE)]
    shares = share_lots([grown, other], remaining, DEPOSITED, {}, per_wallet=True)
    assert [raw for _, _, raw in shares.assets.values()] == [101 * 10**6]
    pooled = share_lots([grown, other], [deposit(90 * 10**6, "90"), lots(unasked=100)], DEPOSITED, {})
    assert sum(raw for _, _, raw in pooled.assets.values()) < 101 * 10**6


@pytest.mark.parametrize("unasked", [0, 1])
def test_a_share_of_unknown_cost_hides_no_deposit_and_names_its_own_reason(unasked: int) -> None:
    own = RemainingLots(KEYS["USDC"], "", 50 * 10**6, usd("30"), deposited=50 * 10**6 + unasked, unasked=unasked)
    bought = RemainingLots(SHARE_KEY, "", 50, None, NO_PRICE)
    remaining = {each.asset: each for each in (own, bought)}
    filled = with_gains(document({"USDC": 100 * 10**6}), AccountGains(remaining, contents=DEPOSITED))
    assert (filled.total_cost_basis, filled.open_pnl) == (UNKNOWN, UNKNOWN)
    reasons = {SHARE_KEY: NO_PRICE} | ({KEYS["USDC"]: UNASKED} if unasked else {})
    assert dict(issues(filled)) == {key: f"its gain is not known: {reason}" for key, reason in reasons.items()}


def test_a_share_that_a_keeper_mints_for_a_waiting_deposit_has_no_known_gain() -> None:
    paid = record("DEPOSIT", [], [asset("usd", "9", "9", POOL)], hash="0x1")
    facts: dict[str, Any] = {"sender": OTHER, "recipient": POOL, "hash": "0x2"}
    minted = record("DEPOSIT", [asset("share", "9", other=NOBODY)], [], **facts)
    back = record("WITHDRAW", [asset("usd", "10", "10", POOL)], [asset("share", "9", other=NOBODY)], hash="0x3")
    assert ("received", "share", 9, None) in brief(read(paid, minted).entries)
    (sold,) = [each for each in gains_of(read(paid, minted, back).entries, "fifo").gains if each.kind == "sell"]
    assert (sold.gain, sold.reason) == (None, NO_PRICE), "which is in the sum, and makes it unknown"
    assert ("unasked", "share", 9, None) in brief(read(minted).entries)
    sent = record("TRANSFERIN", [asset("share", "9", other=OTHER)], [], **facts)
    assert ("unasked", "share", 9, None) in brief(read(paid, sent).entries)


def test_a_share_that_another_contract_mints_is_named_if_its_deposit_is_missing() -> None:
    facts: dict[str, Any] = {"sender": OTHER, "recipient": "keeper", "hash": "0x2"}
    of_protocol = {"protocol": NamedEntity(key="lender", name="Lender")}
    paid = record("DEPOSIT", [], [asset("usd", "9", "9", POOL)], hash="0x1", **of_protocol)
    minted = record("DEPOSIT", [asset("share", "9", other=NOBODY)], [], **facts)
    result = read(paid, minted)
    assert ("unasked", "share", 9, None) in brief(result.entries)
    assert result.created == {"chain:share": frozenset({"chain:usd"})}
    missing = ClosingCheck("chain:usd", "", 0, HeldAsset(), deposited=9)
    (issue,) = missing_share_issues({("chain:usd", ""): missing}, result.created)
    assert (issue.subject, "(1, such as" in issue.reason, "chain:share" in issue.reason) == ("chain:usd", True, True)
    shown = missing._replace(held=HeldAsset(in_protocols=9))
    assert missing_share_issues({("chain:usd", ""): shown}, result.created) == []
    by_protocol = record("DEPOSIT", [asset("share", "9", other=NOBODY)], [], **facts, **of_protocol)
    assert ("received", "share", 9, None) in brief(read(paid, by_protocol).entries), "a contract of the protocol"
    assert read(minted).created == {}, "nothing was deposited"
    collectible = asset("share", "1", other=NOBODY, nft=Nft(token_id="7"))
    assert read(paid, record("DEPOSIT", [collectible], [], **facts)).created == {}


def test_shares_without_a_price_that_others_send_or_mint_are_no_deposit_of_the_owner() -> None:
    own = record("DEPOSIT", [asset("share", "9", other=NOBODY)], [asset("usd", "9", "9", POOL)], hash="0x1")
    for type_, giver in (("TRANSFERIN", OTHER), ("DEPOSIT", NOBODY), ("AIRDROP", NOBODY)):
        dust = record(type_, [asset("share", "4", other=giver)], [], sender=OTHER, hash="0x2")
        result = read(own, dust)
        assert brief(result.entries) == {("deposit", "usd", 9, 9), ("unasked", "share", 4, None)}
        assert result.contents == {"chain:share": frozenset({"chain:usd"})}
    for type_, giver in (("TRANSFERIN", OTHER), ("DEPOSIT", NOBODY)):
        operation = record(type_, [asset("share", "4", other=giver)], [], sender=OTHER, recipient="entry", hash="0x2")
        assert brief(read(own, operation).entries) == {("deposit", "usd", 9, 9), ("unasked", "share", 4, None)}, type_
    forged = record("SWAP", [asset("share", "4")], [asset("usd", "0", "0")], sender=OTHER, recipient=OTHER, hash="0x3")
    assert ("unasked", "share", 4, None) in brief(read(own, forged).entries)
    missing = record("TRANSFERIN", [asset("usd", "4")], [], sender=OTHER, hash="0x4")
    assert brief(read(missing).entries) == {("received", "usd", 4, None)}
