"""The order of sources by class of asset, second opinions, and the guards: floor, disagreement, step."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from chainfolio.assets import Asset, asset
from chainfolio.contracts import Price
from chainfolio.errors import BadSettings
from chainfolio.plans import run_offline
from chainfolio.price_sources import Quotes, Refusal, RelativePrice
from chainfolio.pricing.fixed import FixedPrices, build_fixed
from chainfolio.pricing.registry import build_sources
from chainfolio.pricing.rules import Guards, OrderedSources, Rules, any_knows, parse_rules
from chainfolio.pricing.source_chain import SourceOutcome, query_sources
from tests.pricing.test_relatives import (
    BLOCK,
    ETH,
    USD,
    A,
    PreparedSource,
    driven,
    market,
    prepared,
    price,
    reasons,
    share,
    usd_of,
)

COIN, WRAPPED = asset("eip155:1/slip44:60"), f"eip155:1/erc20:0x{'c0' * 20}"
STABLE = f"eip155:1/erc20:0x{'a0' * 20}"


class Knowing(PreparedSource):
    """A source that can say what it knows."""

    def knows(self, of: Asset) -> bool:
        return of in self.says


def knowing(name: str, *outcomes: Price) -> Knowing:
    return Knowing(name, {each.asset: replace(each, source=name) for each in outcomes})


def ordered(*chained: PreparedSource | FixedPrices, **settings: Any) -> OrderedSources:
    guards = Guards(
        **{name: settings.pop(name) for name in ("floor", "step", "disagreement", "step_days") if name in settings}
    )
    return OrderedSources(chained, Rules(guards, **settings))


def quoted(chained: OrderedSources, *assets: Asset, last: Mapping[Asset, Price] | None = None) -> Quotes:
    return run_offline(query_sources(chained, assets, BLOCK, last or {}), lambda _: 1)


# --- the order --------------------------------------------------------------------------------------------------------


def test_each_class_of_assets_has_its_own_order_and_the_rest_follow_as_they_come() -> None:
    wrapped, stable, share = asset(WRAPPED), asset(STABLE), A
    all_prices = [price(of, "1") for of in (COIN, wrapped, stable, share, ETH)]
    chained = ordered(
        *(prepared(name, *all_prices) for name in ("one", "two", "three")),
        order={"native": ("three",), "stable": ("two", "three"), "share": ("three", "two", "one")},
        wrapped=frozenset({wrapped}),
        stable=frozenset({stable}),
        share=frozenset({share}),
    )
    chosen = {each.asset: each.source for each in quoted(chained, COIN, wrapped, stable, share, ETH).prices}
    assert chosen == {COIN: "three", wrapped: "three", stable: "two", share: "three", ETH: "one"}


def test_what_the_operator_fixed_comes_before_any_order_and_nobody_else_is_asked() -> None:
    feed = knowing("feed", price(COIN, "2000"))
    chained = ordered(feed, build_fixed({str(COIN): "5"}, "fixed"), order={"native": ("feed",)})
    (fixed_price,) = quoted(chained, COIN, last={COIN: price(COIN, "1900")}).prices
    assert (fixed_price.source, fixed_price.alternatives, feed.requests) == ("fixed", (), [])


# --- second opinions --------------------------------------------------------------------------------------------------


def test_a_second_source_that_knows_an_asset_is_asked_in_the_same_round() -> None:
    chained = ordered(
        knowing("feed", price(ETH, "2000")),
        prepared("pools", price(ETH, "1")),
        knowing("vendor", price(ETH, "2010")),
        knowing("third", price(ETH, "3")),
    )
    quotes, rounds = driven(query_sources(chained, [ETH], BLOCK))
    (feed_price,) = quotes.prices
    assert (rounds, feed_price.source, [(each.source, each.usd) for each in feed_price.alternatives]) == (
        1,
        "feed",
        [("vendor", Decimal(2010))],
    )
    assert [len(source.requests) for source in chained if isinstance(source, PreparedSource)] == [1, 0, 1, 0]
    assert chained.rules.guards.disagreements(feed_price) == ""


def test_sources_that_disagree_are_shown_with_the_choice() -> None:
    chained = ordered(knowing("feed", price(ETH, "2000")), knowing("vendor", price(ETH, "2200")))
    (feed_price,) = quoted(chained, ETH).prices
    assert chained.rules.guards.disagreements(feed_price) == (
        "feed says 2000 USD and is used; vendor says 2200: more than 5.00% apart"
    )


@pytest.mark.parametrize(
    ("vendor_usd", "agrees"), [("95", True), ("94.99", False), ("105.26", True), ("105.27", False)]
)
def test_the_bound_of_a_disagreement_is_a_part_of_the_larger_price(vendor_usd: str, agrees: bool) -> None:
    assert Guards().agree(price(ETH, "100"), price(ETH, vendor_usd)) is agrees


def test_a_second_opinion_is_the_price_where_the_first_source_refuses() -> None:
    feed = Knowing("feed", {ETH: Refusal(ETH, "feed", "stale")})
    (vendor_price,) = quoted(ordered(feed, knowing("vendor", price(ETH, "7"))), ETH).prices
    assert (vendor_price.source, vendor_price.alternatives) == ("vendor", ())


def test_of_several_sources_one_that_knows_an_asset_suffices_and_one_that_cannot_say_leaves_it_open() -> None:
    known, silent = knowing("known", price(ETH, "1")), prepared("silent", price(ETH, "1"))
    assert any_knows([silent, known], ETH) is True
    assert any_knows([silent, known], A) is None
    assert any_knows([known], A) is False


def test_a_source_that_says_what_it_knows_is_not_asked_for_anything_else() -> None:
    feed = knowing("feed", price(ETH, "7"))
    _, rounds = driven(query_sources(ordered(feed, prepared("pools", price(A, "1"))), [A, ETH], BLOCK))
    assert (feed.requests, rounds) == ([ETH], 1)


class OnChain(PreparedSource):
    """A source that reads only the chain, and cannot say what it knows."""

    reads_chain_only = True


def on_chain(name: str, *outcomes: Price | RelativePrice | Refusal) -> OnChain:
    return OnChain(name, {each.asset: replace(each, source=name) for each in outcomes})


def test_sources_that_read_only_the_chain_are_asked_in_one_round_and_the_others_are_second_opinions() -> None:
    feed = knowing("feed", price(ETH, "10"))
    shares, pools = on_chain("shares", price(A, "7")), on_chain("pools", market(A, ETH, Fraction(2), Fraction(999)))
    quotes, rounds = driven(
        query_sources(ordered(feed, shares, pools, prepared("vendor", price(A, "1"))), [A, ETH], BLOCK)
    )
    assert rounds == 1
    (of_a,) = [each for each in quotes.prices if each.asset == A]
    assert (of_a.source, of_a.usd, [(each.source, each.usd) for each in of_a.alternatives]) == (
        "shares",
        Decimal(7),
        [("pools", Decimal(20))],
    )


def test_of_two_relative_prices_the_second_counts_where_the_first_has_a_part_without_price() -> None:
    shares, pools = on_chain("shares", share(A, (USD, Fraction(3)))), on_chain("pools", market(A, ETH, Fraction(2)))
    chained = ordered(knowing("feed", price(ETH, "10")), shares, pools)
    quotes, rounds = driven(query_sources(chained, [A], BLOCK))
    assert (usd_of(quotes), rounds) == ({A: Decimal(20)}, 2)
    assert reasons(quotes, A) == [f"{USD}, which it is worth some of, has no price"]
    assert (shares.requests, pools.requests) == ([A, USD], [A, USD])


def test_a_vendor_between_two_sources_of_the_chain_is_not_passed_over() -> None:
    shares, pools = on_chain("shares"), on_chain("pools", price(A, "1"))
    (vendor_price,) = quoted(ordered(shares, prepared("vendor", price(A, "7")), pools), A).prices
    assert (vendor_price.source, vendor_price.alternatives, pools.requests) == ("vendor", (), [])


def test_a_vendor_is_not_asked_along_with_sources_of_the_chain() -> None:
    vendor = prepared("vendor", price(A, "7"))
    assert usd_of(quoted(ordered(on_chain("shares"), on_chain("pools", price(A, "1")), vendor), A)) == {A: 1}
    assert vendor.requests == []


# --- guards -----------------------------------------------------------------------------------------------------------


def test_a_market_below_the_floor_prices_nothing_and_one_at_it_does() -> None:
    def of(depth: int) -> Quotes:
        pools = prepared("pools", market(A, ETH, Fraction(2), Fraction(depth)))
        return quoted(ordered(prepared("feed", price(ETH, "10")), pools, floor=Decimal(5000)), A)

    assert usd_of(of(500)) == {A: 20}
    assert reasons(of(499), A) == ["its market could pay 4990 USD, less than 5000"]


LAST = {ETH: replace(price(ETH, "100"), time_us=BLOCK.time_us - 86_400_000_000)}


@pytest.mark.parametrize("usd", ["1000.01", "9.99", "1000000000"])
def test_an_implausible_step_is_held_and_the_next_source_is_asked(usd: str) -> None:
    alone = quoted(ordered(prepared("feed", price(ETH, usd))), ETH, last=LAST)
    assert alone.prices == ()
    assert [each.partition(":")[0] for each in reasons(alone, ETH)] == ["held"]
    (vendor_price,) = quoted(
        ordered(prepared("feed", price(ETH, usd)), prepared("vendor", price(ETH, "101"))), ETH, last=LAST
    ).prices
    assert (vendor_price.source, vendor_price.usd) == ("vendor", Decimal(101))


@pytest.mark.parametrize("kind", [prepared, knowing])
def test_a_step_with_which_a_second_source_agrees_is_the_price(kind: Any) -> None:
    chained = ordered(kind("feed", price(ETH, "1500")), kind("vendor", price(ETH, "1510")))
    (feed_price,) = quoted(chained, ETH, last=LAST).prices
    assert (feed_price.source, [each.source for each in feed_price.alternatives]) == ("feed", ["vendor"])


def test_two_steps_that_do_not_agree_are_both_held() -> None:
    quotes = quoted(
        ordered(prepared("feed", price(ETH, "1500")), prepared("vendor", price(ETH, "9000"))), ETH, last=LAST
    )
    assert (quotes.prices, len(reasons(quotes, ETH))) == ((), 2)


@pytest.mark.parametrize("last", [{}, {ETH: replace(price(ETH, "1"), time_us=BLOCK.time_us - 8 * 86_400_000_000)}])
def test_without_a_last_price_of_these_days_nothing_is_held(last: Mapping[Asset, Price]) -> None:
    assert usd_of(quoted(ordered(prepared("feed", price(ETH, "1500"))), ETH, last=last)) == {ETH: 1500}


def test_the_journal_has_what_every_source_said_and_the_choice() -> None:
    journal: list[SourceOutcome] = []
    chained = [prepared("silent"), prepared("feed", Refusal(ETH, "feed", "stale")), prepared("vendor", price(ETH, "7"))]
    run_offline(query_sources(chained, [ETH], BLOCK, journal=journal), lambda _: 1)
    assert [(each.asset, each.source, type(each.outcome).__name__) for each in journal] == [
        (ETH, "silent", "NoneType"),
        (ETH, "feed", "Refusal"),
        (ETH, "vendor", "Price"),
        (ETH, "", "Price"),
    ]


# --- bad input, one row each ------------------------------------------------------------------------------------------

BAD = ["0", "-1", "NaN", "Infinity", "1E40", "1E-40", "sNaN"]


@pytest.mark.parametrize("usd", BAD)
def test_zero_negative_not_a_number_and_out_of_all_proportion_are_refused_by_any_source(usd: str) -> None:
    quotes = quoted(ordered(prepared("feed", price(ETH, usd)), prepared("vendor", price(ETH, "7"))), ETH)
    assert usd_of(quotes) == {ETH: 7}
    assert len(reasons(quotes, ETH)) == 1


def test_a_price_in_the_wrong_unit_is_held_by_the_last_price_of_its_asset() -> None:
    cents = prepared("feed", price(ETH, "10000"))  # hundred times too much
    assert quoted(ordered(cents), ETH, last=LAST).prices == ()


def test_two_tokens_of_one_symbol_have_prices_of_their_own_contracts() -> None:
    stable, wrapped = asset(STABLE), asset(WRAPPED)
    feed = knowing("feed", price(stable, "1"))
    assert usd_of(quoted(ordered(feed), stable, wrapped)) == {stable: 1}
    assert feed.requests == [stable]


def test_a_delisted_token_is_without_price_and_keeps_those_of_its_past() -> None:
    vendor = prepared("vendor", Refusal(USD, "vendor", "delisted"))
    quotes = quoted(ordered(vendor), USD, last={USD: price(USD, "3")})
    assert (quotes.prices, reasons(quotes, USD)) == ((), ["delisted"])


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"order": {"coins": []}}, "unknown class"),
        ({"order": {"native": ["chainlink"]}}, "which is no section"),
        ({"order": {"native": "peg"}}, "is no section|names"),
        ({"order": {"native": ["peg", "peg"]}}, "names one twice"),
        ({"order": 5}, "is not a section"),
        ({"classes": {"stable": "x"}}, "not a list"),
        ({"classes": {"stable": ["usdc"]}}, "CAIP-19"),
        ({"classes": {"other": []}}, "only stable and share"),
        ({"guards": {"flour": "1"}}, "unknown key flour"),
        ({"guards": {"floor": 5000}}, "in quotes"),
        ({"guards": {"disagreement": "1.5"}}, "from 0 to 1"),
        ({"guards": {"step": "NaN"}}, "from 1.1"),
        ({"guards": {"step": "1"}}, "from 1.1"),
        ({"guards": {"step_days": "7"}}, "whole number"),
    ],
)
def test_rules_that_cannot_be_meant_are_a_settings_error_that_says_where(tree: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSettings, match=message) as caught:
        parse_rules({"peg": {}, **tree}, ["peg", "pool"], "prices.toml")
    (section,) = tree
    assert caught.value.field.startswith(f"prices.toml: {section}")
    if "section" in message or "twice" in message:
        assert caught.value.remedy in ("sections are peg, pool", "")


def test_the_shipped_file_has_an_order_and_guards_that_hold_for_every_chain() -> None:
    tree = tomllib.loads((Path(__file__).parents[2] / "configs" / "prices.toml").read_text())
    rules = build_sources(tree, {}, "ethereum", "evm").rules
    assert (rules.guards.floor, rules.guards.disagreement, rules.guards.step, rules.guards.step_days) == (
        Decimal(5000),
        Decimal("0.05"),
        Decimal(10),
        7,
    )
    assert rules.class_of(asset("eip155:1/erc20:0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48")) == "stable"
    assert rules.order.keys() == {"native", "stable", "other"}
