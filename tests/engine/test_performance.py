"""Performance uses days that are fully known, and assets that have a value on all of them."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import date, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chainfolio.engine.history.account_days import AccountDays, Day
from chainfolio.engine.history.contained_deposits import TOO_MANY, ContainedDeposits, ReadState
from chainfolio.engine.history.day_blocks import midnight_us
from chainfolio.engine.history.day_values import DayValue
from chainfolio.engine.history.past_days import ABSENT, PENDING
from chainfolio.engine.history.performance import _changes, _flows, _known_days, _shorten, read_values
from chainfolio.engine.history.value_changes import value_changes
from chainfolio.engine.results import MAX_DAYS
from chainfolio.errors import BadRequest, NotSupported
from chainfolio.portfolio.metrics.changes import DayState
from chainfolio.portfolio.pnl.closing import HeldAsset, closings
from chainfolio.portfolio.pnl.gains import RemainingLots
from chainfolio.portfolio.transactions import TransactionAssetDocument, TransactionDocument
from tests.portfolio.test_pnl_records import ME, asset, transaction
from tests.portfolio.test_share_lots import document as with_position

FIRST = date(2024, 2, 27)
DAYS = [FIRST + timedelta(days=count) for count in range(5)]


def value(day: date, usd: str | None, completeness: str = "complete", account: str = "me") -> DayValue:
    return DayValue(account, day, None if usd is None else Decimal(usd), completeness, "why", ())


def test_a_day_that_is_not_known_whole_is_left_out_with_its_reason_and_ends_that_are_not_there_are_silent() -> None:
    day_values, remarks = _known_days(
        [
            value(DAYS[0], None, ABSENT),
            value(DAYS[1], "5"),
            value(DAYS[2], "4", "partial"),
            value(DAYS[3], "7"),
            value(DAYS[4], None, PENDING),
        ]
    )
    assert day_values == {DAYS[1]: Decimal(5), DAYS[3]: Decimal(7)}
    assert remarks == [f"{DAYS[2]} is left out, partial: why", f"{DAYS[4]} is left out, pending: why"]


@pytest.mark.parametrize(("count", "is_refused"), [(MAX_DAYS, False), (MAX_DAYS + 1, True)], ids=["at most", "more"])
async def test_more_days_than_a_year_are_refused_before_a_chain_is_read(count: int, is_refused: bool) -> None:
    days = [FIRST + timedelta(days=each) for each in range(count)]
    with pytest.raises(BadRequest, match="are 367 days: at most 366") if is_refused else nullcontext():
        assert await read_values(cast("Any", None), [], [], days) == []


def test_a_day_lacks_shares_that_a_position_names_only_later() -> None:
    unnamed, named = (
        Day(
            DAYS[0],
            Decimal(0),
            [cast("Any", SimpleNamespace(document=b"", portfolio=with_position({"USDC": 9}, shares)))],
        )
        for shares in ((), (100,))
    )
    assert unnamed.lacks_shares_of(named)
    assert not named.lacks_shares_of(named)
    assert not unnamed.lacks_shares_of(unnamed)
    assert not named.lacks_shares_of(unnamed)


def test_a_wallet_of_which_a_day_is_not_known_leaves_that_day_of_all_wallets_out() -> None:
    day_values, _ = _known_days(
        [
            value(DAYS[0], "5"),
            value(DAYS[0], "6", account="other"),
            value(DAYS[1], "5"),
            value(DAYS[1], None, "unreadable", "other"),
            value(DAYS[2], "5"),
            value(DAYS[2], None, ABSENT, "other"),
        ]
    )
    assert day_values == {DAYS[0]: Decimal(11), DAYS[2]: Decimal(5)}


def test_an_asset_that_has_a_value_on_one_of_two_days_only_is_named_and_no_gain() -> None:
    no_assets = frozenset[str]()
    assets_by_day = {
        DAYS[0]: (frozenset({"a:eth"}), frozenset({"a:odd"}), no_assets),
        DAYS[1]: (frozenset({"a:eth", "a:odd", "a:new"}), no_assets, no_assets),
    }
    assert _changes(assets_by_day, DAYS[0], DAYS[1]) == [f"a:odd has a value on one of {DAYS[0]} and {DAYS[1]} only"]
    assert len(_changes(assets_by_day, DAYS[1], DAYS[0])) == 1


def test_more_reasons_than_can_be_read_are_counted() -> None:
    assert _shorten({1: [], 2: [str(number) for number in range(7)]}) == {2: ["0", "1", "2", "3", "4", "and 2 more"]}


# --- deposits in a contract that no file names ------------------------------------------------------------------------

MONTH = [date(2024, 3, 1) + timedelta(days=count) for count in range(10)]
DEPOSITED, WITHDRAWN = MONTH[2], MONTH[7]


def at_noon(type_: str, day: date, *assets: TransactionAssetDocument) -> TransactionDocument:
    """A deposit or withdrawal of dollars at noon of a day."""
    incoming, outgoing = (assets, ()) if type_ == "WITHDRAW" else ((), assets)
    return transaction(
        type_, incoming, outgoing, hash=type_, timestamp=str((midnight_us(day) + 43_200_000_000) // 1_000_000)
    )


def state_of(visible: int, *, wrong: int = 0) -> ReadState:
    """Return days of an account with 100 dollars, with `visible` of its 40 deposited dollars in protocols."""

    async def read(day: date) -> tuple[DayState, dict[str, str]]:
        deposited = 40 if DEPOSITED < day <= WITHDRAWN else 0
        lots = RemainingLots("chain:usd", "", 100, 100, deposited=deposited)
        held_assets = {("chain:usd", ""): HeldAsset(100 - deposited + wrong, min(visible, deposited))}
        checks = {asset: check for (asset, _), check in closings([lots], held_assets, lambda asset: True).items()}
        both = {"chain:usd": lots, "chain:eth": RemainingLots("chain:eth", "", 1, 1)}
        return DayState(Decimal(100), {}, Decimal(0), both, checks, {}), {"chain:weth": "chain:eth"}

    return read


async def flows_of(deposits: ContainedDeposits) -> tuple[list[int], list[str]]:
    """The flows of 40 dollars that go into a contract and come back, and the reasons for unknown ones."""
    dollars = asset("usd", "40", "40")
    records = at_noon("DEPOSIT", DEPOSITED, dollars), at_noon("WITHDRAW", WITHDRAWN, dollars)
    page = SimpleNamespace(document=SimpleNamespace(transactions=records, completeness="complete", issues=()))

    async def read_records(*_: object) -> tuple[object]:
        return (page,)

    source: Any = SimpleNamespace(
        records=read_records,
        is_trusted_contract=lambda contract: True,
        system=SimpleNamespace(settings=SimpleNamespace(server=SimpleNamespace(max_transactions=10))),
    )
    holdings = {day: (frozenset({"chain:usd"}), frozenset[str](), frozenset[str]()) for day in MONTH}
    accounts: Any = [SimpleNamespace(address=ME)]
    flows, faults, _ = await _flows(source, accounts, [], holdings, deposits)
    return [int(flow.value) for flow, _ in flows], [reason for reasons in faults.values() for reason in reasons]


@pytest.mark.parametrize(("visible", "expected"), [(40, []), (30, []), (10, [-40, 40]), (0, [-40, 40])])
async def test_a_deposit_is_a_flow_if_the_days_in_between_do_not_show_it(visible: int, expected: list[int]) -> None:
    """The asset closes on the first and the last day in each case."""
    deposits = ContainedDeposits(state_of(visible), (MONTH[0], MONTH[-1]), max_days=10)
    assert await flows_of(deposits) == (expected, [])


async def test_deposits_of_an_asset_that_does_not_close_are_flows_without_another_day() -> None:
    deposits = ContainedDeposits(state_of(40, wrong=1), (MONTH[0], MONTH[-1]), max_days=2)
    assert await flows_of(deposits) == ([-40, 40], [])


@pytest.mark.parametrize("max_days", [0, 2])
async def test_a_deposit_that_cannot_be_compared_with_the_days_is_no_flow_and_has_a_reason(max_days: int) -> None:
    limited = ContainedDeposits(state_of(40), (MONTH[0], MONTH[-1]), max_days)
    for deposits, reason in ((ContainedDeposits.unknown("node down"), "node down"), (limited, TOO_MANY)):
        flows, reasons = await flows_of(deposits)
        assert flows == []
        assert [each.partition(" ")[0] for each in reasons] == ["DEPOSIT", "WITHDRAW"]
        assert all(each.endswith(reason) for each in reasons)


@pytest.mark.parametrize("currency", ["USD", "ETH"])
async def test_the_currency_does_not_decide_which_deposits_the_values_contain(
    currency: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if no rate is known: the parts have a reason, and the deposits are compared."""
    records = SimpleNamespace(transactions=())
    days = SimpleNamespace(values=dict.fromkeys(MONTH), state=state_of(40), records=records)

    async def read(*_: object) -> object:
        return days

    async def fail(*_: object) -> object:
        raise NotSupported("a value in USD", "no rate is known")

    monkeypatch.setattr(AccountDays, "read", read)
    monkeypatch.setattr("chainfolio.engine.history.value_changes._parts", fail)
    source: Any = SimpleNamespace(system=SimpleNamespace(settings=SimpleNamespace(pnl=SimpleNamespace(method="fifo"))))
    history: Any = SimpleNamespace(store=object())
    values = dict.fromkeys(MONTH, Decimal(100))
    changes, deposits = await value_changes(source, history, [], [], values, currency)
    assert changes.reason
    assert await flows_of(deposits) == ([], [])

    monkeypatch.setattr(AccountDays, "read", fail)
    _, deposits = await value_changes(source, history, [], [], values, currency)
    flows, reasons = await flows_of(deposits)
    assert flows == []
    assert "no rate is known" in reasons[0]
