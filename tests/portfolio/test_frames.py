"""Frames say exactly what answers say: text for text, and the decimal beside it rounded once."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from chainfolio import amounts
from chainfolio.portfolio.frames import DECIMAL_PLACES, frame
from chainfolio.portfolio.nav import Nav
from chainfolio.portfolio.numbers import UNKNOWN

raws = st.integers(-(2**256), 2**256)
numbers = st.builds(lambda raw, places: amounts.text(amounts.amount(abs(raw), places)), raws, st.integers(0, 40))
cells = st.one_of(st.just(UNKNOWN), st.none(), numbers)


@given(st.lists(st.tuples(st.text(), cells)))
def test_every_number_is_its_text_and_what_is_not_known_is_null(rows: list[tuple[str, str | None]]) -> None:
    found = frame(("name", "value"), rows, numbers=("value",))
    assert found["name"].to_list() == [name for name, _ in rows]
    assert found["value"].to_list() == [None if value == UNKNOWN else value for _, value in rows]
    assert found.schema == {"name": pl.String, "value": pl.String, "valueDecimal": pl.Decimal(38, DECIMAL_PLACES)}


@given(numbers)
def test_the_decimal_is_the_nearest_that_there_is(written: str) -> None:
    (found,) = frame(("value",), [(written,)], numbers=("value",))["valueDecimal"]
    exact = Fraction(written)
    if found is None:
        assert exact >= Fraction(10) ** (38 - DECIMAL_PLACES) - Fraction(1, 10**DECIMAL_PLACES)
    else:
        assert abs(Fraction(found) - exact) <= Fraction(1, 2 * 10**DECIMAL_PLACES)


@given(st.integers(0, 2**256 - 1))
def test_whole_numbers_have_no_places(raw: int) -> None:
    found = frame(("raw",), [(str(raw),)], numbers=("raw",), decimal_places=0)
    assert found["raw"].item() == str(raw)
    assert found["rawDecimal"].item() == (Decimal(raw) if raw < 10**38 else None)


@given(st.integers(0, 2**256 - 1), st.integers(0, 36))
def test_a_net_asset_value_is_one_row_that_says_it_exactly(raw: int, places: int) -> None:
    with localcontext(amounts.EXACT):
        value = Decimal(raw).scaleb(-places)
    found = Nav(value, "EUR", Decimal("0.92"), 2, "partial", "ecb").to_polars()
    assert Fraction(found["nav"].item()) == Fraction(value)
    assert found.drop("nav", "navDecimal").row(0) == (
        "EUR",
        "0.92",
        "ecb",
        2,
        "partial",
        Decimal("0.92"),
    )


def test_a_frame_without_rows_has_its_columns() -> None:
    found = frame(("time", "block"), [], times=("time",), counts=("block",))
    assert found.schema == {"time": pl.Datetime("us", "UTC"), "block": pl.Int64}
    assert found.is_empty()
