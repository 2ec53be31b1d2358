"""The rule of trust: which assets decide what an owner gets, and how the others are listed apart."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from chainfolio.adapters.evm.prices.chainlink import Chainlink, Feed, Sequencer
from chainfolio.adapters.evm.reads import Call, NativeBalance, balance_of
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Issue
from chainfolio.engine.snapshots.build import price_issues
from chainfolio.engine.snapshots.reading import holdings_of
from chainfolio.engine.snapshots.trust import (
    MAX_REASONS,
    MAX_SINGLE_ISSUES,
    Trust,
    group_untrusted_issues,
    mark_untrusted,
)
from chainfolio.plans import Reverted, Unknown, run_offline
from chainfolio.positions import AccountState
from chainfolio.price_sources import Quotes, RelativePrice
from chainfolio.pricing.source_chain import query_sources
from chainfolio.reads import AtParent

ALICE, BOB = "0x" + "aa" * 20, "0x" + "bb" * 20
LISTED, OWN, SENT, NATIVE = (
    Asset("eip155:1", "erc20", "0x" + "11" * 20),
    Asset("eip155:1", "erc20", "0x" + "22" * 20),
    Asset("eip155:1", "erc20", "0x" + "33" * 20),
    Asset("eip155:1", "slip44", "60"),
)
TRUST = Trust(lambda asset: asset == LISTED, {ALICE: {OWN}})
FEED = "0x" + "fe" * 20
BLOCK = Block(9, "0x09", "0x08", 1_700_000_000_000_000)


@pytest.mark.parametrize(
    ("account", "asset", "is_trusted"),
    [
        pytest.param(ALICE, LISTED, True, id="listed"),
        pytest.param(ALICE, OWN, True, id="came in an act of its own"),
        pytest.param(BOB, OWN, False, id="an act of another account"),
        pytest.param(ALICE, SENT, False, id="sent by a stranger"),
        pytest.param(ALICE, NATIVE, True, id="native coin"),
    ],
)
def test_an_unread_balance_makes_an_answer_partial_only_if_trusted(
    account: str, asset: Asset, is_trusted: bool
) -> None:
    state = AccountState(0, {asset: Unknown("the node could not finish this read")}, (), ())
    holdings, issues = holdings_of({account: state}, {account: {asset: True}}, TRUST)
    assert holdings == []
    assert [issue.makes_partial for issue in issues] == [is_trusted]


def test_only_contracts_that_no_account_trusts_are_strangers() -> None:
    assert TRUST.untrusted_contracts([LISTED, OWN, SENT, NATIVE]) == {SENT.reference}


def test_reads_that_concern_strangers_are_marked() -> None:
    pool = Call(FEED, "getPool(address,address)(address)", (LISTED.reference, SENT.reference))
    inner = AtParent(balance_of(SENT.reference, ALICE))
    reads = [balance_of(SENT.reference, ALICE), balance_of(LISTED.reference, ALICE), NativeBalance(ALICE), pool, inner]
    marked = mark_untrusted(reads, {SENT.reference})
    assert marked == reads
    assert [getattr(getattr(read, "read", read), "untrusted", False) for read in marked] == [
        True,
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("assets", "is_partial"),
    [
        pytest.param((), True, id="about no asset"),
        pytest.param((SENT,), False, id="sent by a stranger"),
        pytest.param((SENT, OWN), True, id="one of several came in an act of its own"),
        pytest.param((SENT, LISTED), True, id="one of several is listed"),
    ],
)
def test_an_issue_about_assets_makes_an_answer_partial_only_if_one_is_trusted(
    assets: tuple[Asset, ...], is_partial: bool
) -> None:
    [resolved] = TRUST.resolve_issues([Issue("solana", "it", "not proven", account=ALICE, assets=assets)])
    assert (resolved.makes_partial, resolved.assets) == (is_partial, ())
    [silent] = TRUST.resolve_issues(
        [Issue("solana", "it", "it is frozen", makes_partial=False, account=ALICE, assets=assets)]
    )
    assert not silent.makes_partial


def issue(number: int, reason: str, **more: Any) -> Issue:
    return Issue("balance", f"0x{number:040x}", reason, account=ALICE, **{"makes_partial": False} | more)


def test_a_flood_with_one_reason_is_one_issue_with_its_count() -> None:
    flood = [issue(k, "loops") for k in range(850)]
    partial = issue(1, "loops", makes_partial=True)
    (summed, last) = group_untrusted_issues([*flood, partial])
    assert (summed.count, summed.reason, summed.makes_partial, summed.account) == (850, "loops", False, ALICE)
    assert last == partial


def test_a_flood_of_different_reasons_is_bounded() -> None:
    issues = [issue(k, f"returned {k} bytes") for k in range(850)]
    grouped = group_untrusted_issues(issues)
    assert len(grouped) == MAX_REASONS + 1
    assert sum(each.count for each in grouped) == 850


def test_few_issues_are_shown_one_by_one() -> None:
    issues = [issue(k, "loops") for k in range(MAX_SINGLE_ISSUES)]
    assert group_untrusted_issues(issues) == issues


# --- feeds -----------------------------------------------------------------------------------------------------------

UNREAD, ABSENT = Unknown("the node could not finish this read"), Unknown("no contract", cause="absent")


def quotes(answer: Any, asset: Asset = LISTED, sequencer: Any = None) -> Quotes:
    uptime = Sequencer("0x" + "5e" * 20, 60) if sequencer is not None else None
    source = Chainlink({asset: Feed(asset, FEED, 8, 3600)}, sequencer=uptime)
    answers = dict.fromkeys(source.feeds[asset].reads, answer)
    if uptime:
        answers[uptime.read] = sequencer
    return run_offline(source.prices([asset], BLOCK), answers)


@pytest.mark.parametrize(
    ("answer", "is_partial"),
    [(UNREAD, True), (ABSENT, False), (Reverted(), False)],
    ids=["not read", "not there yet", "refused"],
)
def test_an_unread_feed_of_something_held_makes_the_answer_partial(answer: Any, is_partial: bool) -> None:
    (unread_issue,) = price_issues(quotes(answer), {ALICE: {LISTED}}, [])
    assert unread_issue.makes_partial == is_partial
    assert price_issues(quotes(answer), {ALICE: {OWN}}, []) == []


def test_an_unread_sequencer_makes_the_answer_partial() -> None:
    (unread_issue,) = price_issues(quotes((1, 1, 1, 1, 1), sequencer=UNREAD), {ALICE: {LISTED}}, [])
    assert unread_issue.makes_partial


class Share:
    """A source that knows what one token is worth some of."""

    name = "share"
    reads_chain_only = True

    def prices(self, assets: Any, block: Block) -> Any:
        yield []
        parts = ((LISTED, Fraction(1)),)
        quotes = [RelativePrice(OWN, parts, self.name, BLOCK.time_us, Decimal(1))] if OWN in assets else []
        return Quotes(relative=tuple(quotes))


def test_what_is_worth_some_of_an_unread_asset_is_unread_too() -> None:
    source = Chainlink({LISTED: Feed(LISTED, FEED, 8, 3600)})
    result = run_offline(query_sources([source, Share()], [OWN], BLOCK, {}), lambda read: UNREAD)
    (refusal,) = [each for each in result.refused if each.asset == OWN]
    assert refusal.is_unread
