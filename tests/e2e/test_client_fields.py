"""Fields that a customer reads beside amounts: pictures, rates of other currencies, percentages."""

from __future__ import annotations

from fractions import Fraction

import pytest
from msgspec import UNSET

from tests.e2e.client import Client
from tests.e2e.running import DAVE, Demo
from tests.e2e.test_client import CURRENCIES


@pytest.fixture(scope="module")
def me(demo: Demo) -> Client:
    return demo.client(demo.account("fields", plan="PRO", grants=("portfolio",)).key)


def test_wallet_and_transactions_have_pictures_if_asked_for(me: Client) -> None:
    (bare,), (full,) = me.wallet(DAVE), me.wallet(DAVE, includeImages=True, includeExplorerUrls=True)
    assert {each.img_small for each in (*bare.assets(), *bare.chains.values())} == {UNSET}
    assert all(isinstance(each.img_large, str) for each in (*full.assets(), *full.chains.values()))
    plain, with_images = me.transactions(DAVE, 250, 0), me.transactions(DAVE, 250, 0, includeImages=True)
    assert [each.hash for each in plain] == [each.hash for each in with_images]
    for records, kind in ((plain, type(UNSET)), (with_images, str)):
        parts = [part for each in records for part in (each.chain, each.protocol, *each.assets_in, *each.assets_out)]
        assert parts
        assert all(isinstance(part.img_small, kind) and isinstance(part.img_large, kind) for part in parts)


def test_a_portfolio_has_the_rates_by_which_a_net_asset_value_is_converted(me: Client) -> None:
    (portfolio,), (wallet,) = me.portfolio(DAVE), me.wallet(DAVE)
    navs = {currency: me.nav(DAVE, currency=currency).conversion_price for currency in CURRENCIES}
    assert portfolio.conversion_rates == {name: bytes(price).decode() for name, price in navs.items()}
    assert wallet.conversion_rates == portfolio.conversion_rates


def test_the_percentages_of_assets_are_parts_of_the_net_worth(me: Client) -> None:
    (portfolio,) = me.portfolio(DAVE)
    assert portfolio.assets()
    for asset in portfolio.assets():
        share = Fraction(asset.value) * 100 / Fraction(portfolio.networth)
        assert abs(Fraction(asset.percentage) - share) <= Fraction(1, 20_000)
        assert asset.address == asset.contract
