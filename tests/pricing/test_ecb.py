"""Which days rates of the European Central Bank are expected for."""

from __future__ import annotations

from datetime import date

from chainfolio.pricing.ecb import weekdays


def test_weekdays_are_both_ends_and_no_day_of_a_weekend() -> None:
    friday, monday = date(2026, 1, 2), date(2026, 1, 5)
    assert weekdays(friday, monday) == [friday, monday]
    assert weekdays(friday, friday) == [friday]
    assert weekdays(monday, friday) == []
