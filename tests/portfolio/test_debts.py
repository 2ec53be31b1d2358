"""Loans that are not repaid: quantity and value at the time of borrowing, over any order of entries."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.portfolio.pnl.debts import LESS_OWED, MORE_OWED, NOT_BORROWED, Debt, debt_fault, open_debts
from chainfolio.portfolio.pnl.entries import Entry, Kind
from chainfolio.portfolio.pnl.gains import NO_PRICE


def entry(time: int, kind: Kind, quantity: int, value: int | None = None) -> Entry:
    return Entry(time, kind, "a", quantity, value, order=time)


def test_a_repayment_takes_an_equal_part_of_each_loan() -> None:
    loans = [entry(1, "borrow", 10, 100), entry(2, "borrow", 10, 300)]
    assert open_debts([*loans, entry(3, "repay", 5)]) == {"a": Debt(15, 300, 20)}
    assert open_debts([*loans, entry(3, "repay", 20)]) == {"a": Debt(0, 0, 20)}


def test_a_repayment_with_interest_ends_a_loan() -> None:
    assert open_debts([entry(1, "borrow", 10, 100), entry(2, "repay", 11)]) == {}
    loans = [entry(1, "borrow", 10, 100), entry(2, "repay", 11), entry(3, "borrow", 4, 8)]
    assert open_debts(loans) == {"a": Debt(4, 8, 4)}


def test_a_loan_without_a_price_has_no_value_and_other_kinds_are_no_debts() -> None:
    assert open_debts([entry(1, "borrow", 10), entry(2, "borrow", 5, 7)]) == {"a": Debt(15, None, 15)}
    assert open_debts([entry(1, "buy", 10, 5), entry(2, "repay", 5), entry(3, "sell", 5, 5)]) == {}


@pytest.mark.parametrize(
    ("balance", "debt", "fault"),
    [
        (0, Debt(), ""),
        (1, Debt(), NOT_BORROWED),
        (100, Debt(100, 5, 100), ""),
        (98, Debt(100, 5, 100), ""),
        (97, Debt(100, 5, 100), LESS_OWED),
        (150, Debt(100, 5, 100), ""),
        (151, Debt(100, 5, 100), MORE_OWED),
        (40, Debt(0, 0, 100), ""),
        (100, Debt(100, None, 100), NO_PRICE),
    ],
)
def test_what_is_owed_must_be_what_was_borrowed_with_interest(balance: int, debt: Debt, fault: str) -> None:
    assert debt_fault(balance, debt) == fault


steps = st.lists(st.tuples(st.sampled_from(("borrow", "repay")), st.integers(1, 10**20), st.integers(0, 10**30)))


@given(steps)
def test_debts_equal_exact_fractions_and_do_not_depend_on_the_order(
    rows: list[tuple[Kind, int, int]],
) -> None:
    entries = [entry(i, kind, quantity, value) for i, (kind, quantity, value) in enumerate(rows)]
    quantity, value = 0, Fraction(0)
    for kind, raw, units in rows:
        if kind == "borrow":
            quantity, value = quantity + raw, value + units
        else:
            part = min(raw, quantity)
            value -= value * part / quantity if quantity else 0
            quantity -= part
    debt = open_debts(entries).get("a", Debt())
    assert debt == open_debts(reversed(entries)).get("a", Debt())
    assert debt.value is not None
    assert (debt.quantity, abs(debt.value - value) <= len(rows)) == (quantity, True)
