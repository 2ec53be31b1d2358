from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from chainfolio.contracts import Holding, Issue
from chainfolio.portfolio import nav
from chainfolio.portfolio.valuation import Valuation, valuate
from tests.portfolio.examples import ALICE, BOB, native, price, snapshot

WHOLE = b',"unpricedAssets":0,"completeness":"complete","issues":[]}'


def value_usd(usd: str) -> Valuation:
    accounts = (ALICE, BOB)
    return valuate([snapshot(Holding(BOB, native(), 10**18), prices=(price(native(), usd),), accounts=accounts)])


def test_usd_is_the_default_and_its_rate_is_one() -> None:
    assert nav.encode(nav.nav(value_usd("1600.50"))) == b'{"nav":1600.5,"currency":"USD","conversionPrice":1' + WHOLE


def test_fiat_is_multiplied_by_the_rate_and_crypto_divided_by_the_price() -> None:
    assert nav.nav(value_usd("100"), "EUR", Decimal("0.915")).nav == Decimal("91.5")
    crypto = nav.nav(value_usd("100"), "ETH", Decimal(3000))
    assert (crypto.nav, crypto.conversion_price) == (Decimal("0.033333333333333333"), Decimal(3000))


def test_what_the_rate_is_from_is_said_beside_it() -> None:
    body = nav.encode(nav.nav(value_usd("100"), "EUR", Decimal("0.915"), "reference rate of 2024-03-28"))
    assert json.loads(body)["conversionSource"] == "reference rate of 2024-03-28"


def test_numbers_leave_digit_by_digit_in_plain_notation() -> None:
    body = nav.encode(nav.nav(value_usd("0.000000000000000001"), "ETH", Decimal("1E+3")))
    assert body == b'{"nav":0,"currency":"ETH","conversionPrice":1000' + WHOLE
    body = nav.encode(nav.nav(value_usd("123456789012.123456789012345678")))
    assert json.loads(body, parse_float=Decimal)["nav"] == Decimal("123456789012.123456789012345678")


def test_crypto_is_rounded_half_to_even_once() -> None:
    assert nav.nav(value_usd("0.000000000000000005"), "ETH", Decimal(2)).nav == Decimal("0.000000000000000002")
    assert nav.nav(value_usd("0.000000000000000007"), "ETH", Decimal(2)).nav == Decimal("0.000000000000000004")


def test_a_currency_of_the_settings_is_fiat_money() -> None:
    assert nav.nav(value_usd("100"), "JPY", Decimal("151.371234567890123456")).nav == Decimal("15137.1234567890123456")


def test_what_has_no_price_or_could_not_be_read_is_said_beside_the_value() -> None:
    unpriced = snapshot(Holding(BOB, native(), 10**18), accounts=(ALICE, BOB))
    assert nav.nav(valuate([unpriced])).nav == 0
    assert nav.nav(valuate([unpriced])).unpriced_assets == 1
    for makes_partial, completeness in ((True, "partial"), (False, "complete")):
        doubted = replace(
            unpriced,
            issues=(Issue("balance", "0xaa", "the contract refuses", makes_partial=makes_partial, account=BOB),),
        )
        assert nav.nav(valuate([doubted])).completeness == completeness


def test_an_empty_wallet_is_worth_zero() -> None:
    assert nav.encode(nav.nav(valuate([]))) == b'{"nav":0,"currency":"USD","conversionPrice":1' + WHOLE


@given(st.decimals(Decimal("1E-18"), 10**12, places=18), st.decimals(Decimal("1E-8"), 10**6, places=8))
def test_crypto_is_within_half_a_unit_of_the_exact_quotient(usd: Decimal, rate: Decimal) -> None:
    converted = Fraction(nav.nav(value_usd(str(usd)), "ETH", rate).nav)
    assert abs(converted - Fraction(usd) / Fraction(rate)) <= Fraction(1, 2 * 10**18)
