"""What a performance is made of: days that are known whole, and assets that have a value on all of them."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

from chainfolio.engine.history.day_values import DayValue
from chainfolio.engine.history.past_days import ABSENT, PENDING
from chainfolio.engine.history.performance import _changes, _known_days, _shorten

FIRST = date(2024, 2, 27)
DAYS = [FIRST + timedelta(days=count) for count in range(5)]


def value(day: date, usd: str | None, completeness: str = "complete", account: str = "me") -> DayValue:
    return DayValue(account, day, None if usd is None else Decimal(usd), completeness, "why", ())


def test_a_day_that_is_not_known_whole_is_left_out_with_its_reason_and_ends_that_are_not_there_are_silent() -> None:
    known, remarks = _known_days(
        [
            value(DAYS[0], None, ABSENT),
            value(DAYS[1], "5"),
            value(DAYS[2], "4", "partial"),
            value(DAYS[3], "7"),
            value(DAYS[4], None, PENDING),
        ]
    )
    assert known == {DAYS[1]: Decimal(5), DAYS[3]: Decimal(7)}
    assert remarks == [f"{DAYS[2]} is left out, partial: why", f"{DAYS[4]} is left out, pending: why"]


def test_a_wallet_of_which_a_day_is_not_known_leaves_that_day_of_all_wallets_out() -> None:
    known, _ = _known_days(
        [
            value(DAYS[0], "5"),
            value(DAYS[0], "6", account="other"),
            value(DAYS[1], "5"),
            value(DAYS[1], None, "unreadable", "other"),
            value(DAYS[2], "5"),
            value(DAYS[2], None, ABSENT, "other"),
        ]
    )
    assert known == {DAYS[0]: Decimal(11), DAYS[2]: Decimal(5)}


def test_an_asset_that_has_a_value_on_one_of_two_days_only_is_named_and_no_gain() -> None:
    nobody = frozenset[str]()
    held = {
        DAYS[0]: (frozenset({"a:eth"}), frozenset({"a:odd"}), nobody),
        DAYS[1]: (frozenset({"a:eth", "a:odd", "a:new"}), nobody, nobody),
    }
    assert _changes(held, DAYS[0], DAYS[1]) == [f"a:odd has a value on one of {DAYS[0]} and {DAYS[1]} only"]
    assert len(_changes(held, DAYS[1], DAYS[0])) == 1


def test_more_reasons_than_can_be_read_are_counted() -> None:
    assert _shorten({1: [], 2: [str(number) for number in range(7)]}) == {2: ["0", "1", "2", "3", "4", "and 2 more"]}
