"""Venues, shares and sources built from sections of the settings, without a node."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from chainfolio.adapters.evm.prices.markets import Pair, Pool
from chainfolio.adapters.evm.prices.section import VenueSection
from chainfolio.adapters.evm.prices.shares import ExchangeRate, Shares
from chainfolio.adapters.evm.prices.venues import curve_ng, slipstream, uniswap_v3
from chainfolio.adapters.evm.reads import Call
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.errors import BadSettings
from chainfolio.plans import run_offline
from chainfolio.price_sources import by_chain
from chainfolio.reads import AtParent

LOW, HIGH, FACTORY = "0x" + "01" * 20, "0x" + "02" * 20, "0x" + "0f" * 20
PAIR = Pair(LOW, HIGH)
Q96 = 1 << 96
BLOCK = Block(7, "0x" + "77" * 32, "0x" + "66" * 32, 1_700_000_000_000_000)


def test_a_pool_at_tick_0_is_a_market_and_one_without_a_price_is_none() -> None:
    at_par = uniswap_v3.concentrated_state(PAIR, (Q96, 0), 1_000, 500, 700)
    assert at_par is not None
    assert at_par.price == 1
    assert uniswap_v3.concentrated_state(PAIR, (0, 7), 1_000, 500, 700) is None


@pytest.mark.parametrize(
    ("family", "tiers", "getter"),
    [
        (uniswap_v3, {"fees": [500, 3000]}, uniswap_v3.GET_POOL),
        (slipstream, {"spacings": [500, 3000]}, slipstream.GET_POOL),
    ],
)
def test_a_venue_asks_its_factory_for_each_tier_and_its_pools_for_ten_minutes(
    family: Any, tiers: dict[str, Any], getter: str
) -> None:
    venue = family.build(VenueSection({"family": "v", "factory": FACTORY, **tiers}, "here"))
    assert venue.lookups(PAIR) == [Call(FACTORY, getter, (LOW, HIGH, tier)) for tier in (500, 3000)]
    pools = venue.pools(PAIR, [FACTORY, LOW])
    assert [each.key for each in pools] == [FACTORY, LOW]
    assert len({each.label for each in pools}) == 2
    assert Call(FACTORY, uniswap_v3.OBSERVE, ((600, 0),)) in venue.reads(Pool(PAIR, "", FACTORY))


@pytest.mark.parametrize(("section", "count"), [({}, 4), ({"pools": 1}, 1), ({"pools": 32}, 32)])
def test_a_section_says_how_many_pools_of_a_pair_are_read(section: dict[str, Any], count: int) -> None:
    settings = VenueSection({"family": "curve_ng", "name": "Curve", "factory": FACTORY, **section}, "here")
    venue = curve_ng.build(settings)
    settings.reject_unread_keys()
    assert venue.name == "Curve"
    assert venue.lookups(PAIR) == [Call(FACTORY, curve_ng.FIND_POOL, (LOW, HIGH, number)) for number in range(count)]


@pytest.mark.parametrize("number", [0, 33, True, "4"])
def test_a_number_out_of_its_range_is_a_settings_error(number: object) -> None:
    with pytest.raises(BadSettings, match=r"pools of Curve is .*, not a whole number from 1 to 32"):
        curve_ng.build(VenueSection({"name": "Curve", "factory": FACTORY, "pools": number}, "here"))


def test_the_rate_of_a_token_is_its_own_price() -> None:
    token, rate_asset = (Asset("eip155:1", "erc20", "0x" + letter * 40) for letter in "ab")
    source = Shares((), {token: ExchangeRate(rate_asset, "rate()(uint256)")}, None)
    read = Call(token.reference, "rate()(uint256)")
    quotes = run_offline(source.prices([token], BLOCK), {read: 3 * 10**18, AtParent(read): 3 * 10**18})
    (relative,) = quotes.relative
    assert (relative.asset, relative.parts) == (token, ((rate_asset, Fraction(3)),))
    assert (relative.detail, relative.time_us) == ("what it redeems for", BLOCK.time_us)
    assert [(call.read, call.result) for call in relative.calls] == [(read, 3 * 10**18)]


def test_a_source_by_chain_is_built_of_the_section_of_that_chain() -> None:
    built: list[Any] = []

    def build(section: Mapping[str, Any], label: str) -> Any:
        built.append((section, label))

    factory = by_chain(build)
    factory({"base": {"key": 1}}, "base", "prices.toml: [mine]")
    factory({"base": {"key": 1}}, "ethereum", "prices.toml: [mine]")
    assert built == [({"key": 1}, "prices.toml: [mine].base"), ({}, "prices.toml: [mine].ethereum")]
