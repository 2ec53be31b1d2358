"""Amounts are exact from the chain's integer to the text of an answer."""

from __future__ import annotations

import re
from decimal import Decimal, Inexact, getcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio import amounts
from chainfolio.amounts import MAX_RAW

raws = st.integers(0, MAX_RAW) | st.integers(0, 10**6) | st.just(MAX_RAW)
decimals = st.integers(0, amounts.MAX_DECIMALS)
prices = st.tuples(st.integers(0, 10**78 - 1), st.integers(0, 78)).map(lambda p: amounts.amount(*p))
PLAIN = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?")


@given(raws)
def test_a_raw_is_read_from_its_32_bytes(raw: int) -> None:
    assert amounts.raw_from_bytes(raw.to_bytes(32, "big")) == raw


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_raw_has_exactly_32_bytes(size: int) -> None:
    with pytest.raises(AssertionError, match="32 bytes"):
        amounts.raw_from_bytes(b"\0" * size)


@given(raws, decimals)
def test_an_amount_is_exactly_raw_scaled_by_decimals(raw: int, places: int) -> None:
    assert Fraction(amounts.amount(raw, places)) == Fraction(raw, 10**places)


@pytest.mark.parametrize("places", [-1, 256])
def test_decimals_no_token_can_have_are_a_bug_of_the_caller(places: int) -> None:
    with pytest.raises(AssertionError, match="decimals"):
        amounts.amount(1, places)


@given(raws, decimals, prices)
def test_worth_is_exactly_amount_times_price(raw: int, places: int, price: Decimal) -> None:
    value_usd = amounts.value_of(amounts.amount(raw, places), price)
    assert Fraction(value_usd) == Fraction(raw, 10**places) * Fraction(price)


def test_the_largest_raw_times_the_longest_price_keeps_every_digit() -> None:
    price = Decimal("9" * 78)
    value_usd = amounts.value_of(amounts.amount(MAX_RAW, 18), price)
    integer, _, fraction = amounts.text(value_usd).partition(".")
    assert int(integer + fraction) == MAX_RAW * int("9" * 78) // 10 ** (18 - len(fraction))
    assert MAX_RAW * int("9" * 78) % 10 ** (18 - len(fraction)) == 0


def test_a_product_that_would_be_rounded_raises_instead() -> None:
    with pytest.raises(Inexact):
        amounts.value_of(Decimal("7" * 600), Decimal("7" * 600))


@given(st.lists(st.tuples(raws, decimals).map(lambda held: amounts.amount(*held)), max_size=20))
def test_a_total_is_the_exact_sum_in_any_order(values: list[Decimal]) -> None:
    assert Fraction(amounts.total(values)) == sum(map(Fraction, values))
    assert amounts.total(values[::-1]) == amounts.total(values)


def test_exact_arithmetic_leaves_the_context_of_everybody_else_alone() -> None:
    before = getcontext().copy()
    amounts.total([Decimal(MAX_RAW), Decimal("1e-255")])
    assert (getcontext().prec, getcontext().traps) == (before.prec, before.traps)


@given(raws, decimals, st.booleans())
def test_text_is_plain_shortest_and_reads_back_as_the_same_number(raw: int, places: int, negative: bool) -> None:
    value = amounts.amount(raw, places)
    value = value.copy_negate() if negative else value
    text = amounts.text(value)
    assert PLAIN.fullmatch(text)
    assert text != "-0"
    assert amounts.parse(text, max_digits=400) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("0", "0"),
        ("-0.000", "0"),
        ("0E+9", "0"),
        ("1E+5", "100000"),
        ("1E-7", "0.0000001"),
        ("1.50", "1.5"),
        ("100", "100"),
        ("-2.500", "-2.5"),
        ("12E+3", "12000"),
    ],
)
def test_text_is_never_scientific(value: str, text: str) -> None:
    assert amounts.text(Decimal(value)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-",
        ".",
        "1.",
        ".5",
        "+1",
        "--1",
        "1e5",
        "1E-5",
        "1e400",
        "1e1000000",
        "NaN",
        "nan",
        "sNaN",
        "Infinity",
        "-inf",
        "1,000",
        "1_000",
        " 1",
        "1 ",
        "1\n",
        "0x10",
        "１２",
        "٣",
        "²",
        "1.2.3",
        "1.-2",
        "1\0",
        "9" * 121,
        "0." + "1" * 120,
        "9" * 5_000,
    ],
)
def test_what_is_no_plain_number_is_refused_before_it_is_converted(text: str) -> None:
    with pytest.raises(ValueError, match="not a plain decimal number"):
        amounts.parse(text)


@pytest.mark.parametrize("text", ["9" * 120, "-" + "9" * 120, "0." + "1" * 118], ids=["whole", "minus", "point"])
def test_a_number_has_up_to_120_characters_without_its_minus(text: str) -> None:
    assert f"{amounts.parse(text):f}" == text
    assert amounts.parse("-12.5", max_digits=4) == Decimal("-12.5")
    with pytest.raises(ValueError, match=r"not a plain decimal number: '-12\.55'"):
        amounts.parse("-12.55", max_digits=4)


def test_a_refusal_quotes_only_the_beginning_of_what_was_written() -> None:
    with pytest.raises(ValueError, match="not a plain") as error:
        amounts.parse("9" * 1_000_000)
    assert len(str(error.value)) < 100


@given(st.text(max_size=130))
def test_parse_gives_a_finite_number_or_refuses(text: str) -> None:
    try:
        value = amounts.parse(text)
    except ValueError:
        return
    assert value.is_finite()
    assert amounts.text(value).lstrip("-0") in text
