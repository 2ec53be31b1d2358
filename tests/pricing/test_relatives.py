"""Relative prices: what is worth other assets is priced through them, exactly, and says by which way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.adapters.evm.reads import Call
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.plans import Plan, run_batched, run_offline
from chainfolio.price_sources import Quotes, Refusal, RelativePrice
from chainfolio.pricing.relatives import (
    MAX_DETAIL,
    MAX_MARKETS,
    MAX_PARTS,
    MAX_STEPS,
    PricePath,
    path_fault,
    rounded,
    to_usd,
)
from chainfolio.pricing.source_chain import MAX_CHAIN_ROUNDS, query_sources
from chainfolio.reads import ReadResult

BLOCK = Block(100, "0xaa", "0xbb", 1_760_000_000_500_000)
OLD_US = BLOCK.time_us - 9_000_000
ONE = Fraction(1)


def token(name: str) -> Asset:
    return Asset("eip155:1", "erc20", name)


USD, ETH, A, B, C, D = map(token, ("usd", "eth", "a", "b", "c", "d"))


def price(of: Asset, usd: str, source: str = "feed") -> Price:
    return Price(of, Decimal(usd), source, BLOCK.time_us, Decimal(1), f"round of {of.reference}")


def share(of: Asset, *parts: tuple[Asset, Fraction], source: str = "share") -> RelativePrice:
    return RelativePrice(of, parts, source, BLOCK.time_us, Decimal(1), f"vault {of.reference}")


def market(
    of: Asset, quote: Asset, amount: Fraction, depth: Fraction = Fraction(10), source: str = "pool"
) -> RelativePrice:
    relative = RelativePrice(of, ((quote, amount),), source, BLOCK.time_us, Decimal(1), f"pool {of.reference}")
    return replace(relative, depth=(quote, depth))


@dataclass
class PreparedSource:
    """A source with prepared outcomes that records the assets asked of it, in one round of one read."""

    name: str
    says: Mapping[Asset, Price | RelativePrice | Refusal] = field(default_factory=dict)
    requests: list[Asset] = field(default_factory=list)

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Quotes]:
        self.requests += assets
        yield [Call(self.name, "x()(uint256)")]
        outcomes = [self.says[each] for each in assets if each in self.says]
        return Quotes(
            tuple(each for each in outcomes if isinstance(each, Price)),
            tuple(each for each in outcomes if isinstance(each, Refusal)),
            tuple(each for each in outcomes if isinstance(each, RelativePrice)),
        )


def prepared(name: str, *outcomes: Price | RelativePrice | Refusal) -> PreparedSource:
    return PreparedSource(name, {each.asset: replace(each, source=name) for each in outcomes})


def quoted(sources: Sequence[PreparedSource], *assets: Asset) -> Quotes:
    return run_offline(query_sources(sources, assets, BLOCK), lambda _: 1)


def driven(plan: Plan[Quotes]) -> tuple[Quotes, int]:
    """Return the result of a plan and the number of its rounds."""
    rounds, answers = 0, None
    while True:
        try:
            reads = next(plan) if answers is None else plan.send(answers)
        except StopIteration as stop:
            return stop.value, rounds
        rounds, answers = rounds + 1, [1 for _ in reads]


def usd_of(quotes: Quotes) -> dict[Asset, Decimal]:
    return {each.asset: each.usd for each in quotes.prices}


def reasons(quotes: Quotes, of: Asset) -> list[str]:
    return [each.reason for each in quotes.refused if each.asset == of]


# --- what follows -----------------------------------------------------------------------------------------------------


def test_a_share_is_worth_the_sum_of_its_parts_and_names_the_way_to_it() -> None:
    feed = prepared("feed", price(ETH, "2000.5"), price(USD, "0.999"))
    basket = share(A, (ETH, Fraction(1, 4)), (USD, Fraction(3)))
    (total,) = quoted([feed, prepared("share", basket)], A).prices
    assert total.usd == Decimal("2000.5") / 4 + Decimal("0.999") * 3
    assert (total.source, total.depth_usd) == ("share", None)
    assert total.detail == f"vault a → {ETH} → feed round of eth + {USD} → feed round of usd"


def test_it_is_as_old_as_its_oldest_part_and_as_sure_as_its_least_sure_and_shows_every_read_once() -> None:
    read = ReadResult(Call("0xfeed", "latest()"), 7)
    feed = PreparedSource(
        "feed",
        {
            ETH: replace(price(ETH, "5"), time_us=OLD_US, confidence=Decimal("0.5"), calls=(read,)),
            USD: replace(price(USD, "1"), calls=(read,)),
        },
    )
    rate_read = ReadResult(Call("0xvault", "rate()"), [1])
    (basket,) = quoted(
        [
            feed,
            PreparedSource("share", {A: replace(share(A, (ETH, Fraction(1)), (USD, Fraction(2))), calls=(rate_read,))}),
        ],
        A,
    ).prices
    assert (basket.usd, basket.time_us, basket.confidence, basket.calls) == (
        Decimal(7),
        OLD_US,
        Decimal("0.5"),
        (rate_read, read),
    )


def test_a_price_of_thirds_is_rounded_once_to_36_digits_half_to_even() -> None:
    prices = usd_of(quoted([prepared("feed", price(ETH, "1")), prepared("share", share(A, (ETH, Fraction(2, 3))))], A))
    assert prices == {A: Decimal("0." + "6" * 35 + "7")}
    assert rounded(Fraction(10**36 + 1, 10)) == Decimal(10**35)  # …0.1 rounds down
    assert [int(rounded(Fraction(2 * (10**35 + odd) + 1, 2))) % 10 for odd in (0, 1)] == [0, 2]  # a half goes to even


def test_a_part_that_nobody_wanted_is_priced_and_not_given() -> None:
    feed, shares = prepared("feed", price(ETH, "3")), prepared("share", share(A, (ETH, Fraction(2))))
    assert usd_of(quoted([feed, shares], A)) == {A: 6}
    assert usd_of(quoted([feed, shares], ETH, A)) == {ETH: 3, A: 6}


def test_all_that_is_open_is_asked_in_one_round_each_source_once_for_an_asset() -> None:
    feed = prepared("feed", price(ETH, "3"), price(USD, "1"))
    shares = prepared("share", *(share(token(f"s{n}"), (ETH if n % 2 else USD, Fraction(n + 1))) for n in range(50)))
    assets = [token(f"s{n}") for n in range(50)]
    quotes, rounds = driven(query_sources([feed, shares], assets, BLOCK))
    assert len(quotes.prices) == 50
    assert rounds == 3  # the feeds for the shares, the shares, the feeds for their parts
    assert (len(feed.requests), len(set(feed.requests)), sorted(shares.requests)) == (52, 52, sorted(assets))


# --- what bounds it ---------------------------------------------------------------------------------------------------


def test_what_could_be_sold_is_bounded_by_the_shallowest_market_on_the_way() -> None:
    sources = [
        prepared("feed", price(ETH, "2000")),
        prepared(
            "pool",
            market(A, ETH, Fraction(1, 100), Fraction(50)),
            market(B, A, Fraction(2), Fraction(30)),
            market(C, ETH, Fraction(1), Fraction(1, 3)),
        ),
    ]
    quotes = {each.asset: each for each in quoted(sources, A, B, C).prices}
    assert {of: each.usd for of, each in quotes.items()} == {A: 20, B: 40, C: 2000}
    assert (quotes[A].depth_usd, quotes[B].depth_usd) == (Decimal(50 * 2000), Decimal(30 * 20))
    assert quotes[C].depth_usd == rounded(Fraction(2000, 3))
    (basket,) = quoted([*sources, prepared("share", share(D, (A, Fraction(1))))], D).prices
    assert basket.depth_usd == 100_000


def test_depth_in_the_token_itself_counts_at_its_own_price() -> None:
    market_a = replace(market(A, ETH, Fraction(2)), depth=(A, Fraction(5)))
    (sum_price,) = quoted([prepared("feed", price(ETH, "10")), prepared("pool", market_a)], A).prices
    assert (sum_price.usd, sum_price.depth_usd) == (Decimal(20), Decimal(100))


def test_two_markets_may_lie_upon_each_other_and_not_three_whatever_else_is_asked() -> None:
    pools = prepared("pool", market(A, ETH, Fraction(2)), market(B, A, Fraction(2)), market(C, B, Fraction(2)))
    feed = prepared("feed", price(ETH, "1"))
    for assets in ([A, B, C], [C], [C, B, A]):
        quotes = quoted([feed, pools], *assets)
        assert usd_of(quotes) == {of: usd for of, usd in ((A, 2), (B, 4)) if of in assets}
        assert reasons(quotes, C) == ["it rests on more than 2 markets, one upon the other"]


def test_shares_of_shares_are_followed_four_deep_and_no_deeper() -> None:
    names = [token(f"v{n}") for n in range(8)]
    shares = prepared("share", *(share(of, (below, Fraction(2))) for below, of in pairwise(names)))
    quotes = quoted([prepared("feed", price(names[0], "1")), shares], names[MAX_STEPS])
    assert usd_of(quotes) == {names[4]: 16}
    deep = quoted([prepared("feed", price(names[0], "1")), shares], names[5])
    assert usd_of(deep) == {}
    assert "more than 4 assets" in reasons(deep, names[5])[-1]


def test_a_tower_of_shares_that_anybody_built_is_not_climbed() -> None:
    class Endless(PreparedSource):
        def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Quotes]:
            self.requests += assets
            yield [Call(self.name, "x()(uint256)")]
            return Quotes(
                relative=tuple(
                    replace(share(each, (token(f"{each.reference}+"), Fraction(1))), source=self.name)
                    for each in assets
                )
            )

    tower = Endless("tower")
    quotes = quoted([tower], A)
    assert quotes.prices == ()
    assert len(tower.requests) == MAX_STEPS + 1
    assert "more than 4 assets away" in reasons(quotes, A)[0]


def test_sources_that_never_end_are_stopped_and_the_others_still_price() -> None:
    class Restless(PreparedSource):
        def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Quotes]:
            while True:
                yield [Call(self.name, "x()(uint256)")]

    restless: list[PreparedSource] = [Restless(f"r{n}") for n in range(6)]
    quotes = quoted([*restless, prepared("feed", price(ETH, "1"))], ETH, A)
    assert "too many reads" in reasons(quotes, A)[0]
    _, rounds = driven(query_sources([*restless], [A], BLOCK))
    assert rounds <= MAX_CHAIN_ROUNDS


# --- what has no price ------------------------------------------------------------------------------------------------


def test_a_part_without_a_price_leaves_the_asset_without_one_and_says_why() -> None:
    feed = prepared("feed", price(ETH, "1"), Refusal(USD, "feed", "the feed is stale"))
    quotes = quoted(
        [feed, prepared("share", share(A, (ETH, Fraction(1)), (USD, Fraction(1))), share(B, (C, Fraction(1))))], A, B
    )
    assert quotes.prices == ()
    assert reasons(quotes, A) == [f"{USD}, which it is worth some of, has no price: the feed is stale"]
    assert reasons(quotes, B) == [f"{C}, which it is worth some of, has no price"]


def test_an_asset_whose_parts_have_no_price_is_asked_of_the_next_source() -> None:
    quotes = quoted([prepared("share", share(A, (B, Fraction(1)))), prepared("vendor", price(A, "7"))], A)
    assert [(each.source, each.usd) for each in quotes.prices] == [("vendor", Decimal(7))]
    assert len(reasons(quotes, A)) == 1


@pytest.mark.parametrize("assets", [[A], [B], [A, B], [B, A], [A, B, C]])
def test_what_rests_on_itself_has_no_price_and_what_rests_on_that_neither(assets: list[Asset]) -> None:
    shares = prepared("share", share(A, (B, Fraction(1))), share(B, (A, Fraction(1))), share(C, (A, Fraction(1, 2))))
    quotes = quoted([prepared("feed", price(ETH, "1")), shares], *assets)
    assert quotes.prices == ()
    for of in set(assets) - {C}:
        assert [each.partition(": ")[0] for each in reasons(quotes, of)] == ["its price would rest on itself"]
    if C in assets:
        assert len(reasons(quotes, C)) == 1


def test_an_asset_that_is_a_part_of_itself_has_no_price() -> None:
    quotes = quoted(
        [prepared("share", share(A, (A, Fraction(1, 2)), (ETH, Fraction(1)))), prepared("feed", price(ETH, "1"))], A
    )
    assert reasons(quotes, A) == [f"its price would rest on itself: {A} → {A}"]


def test_a_circle_is_left_by_whoever_has_another_source_in_whatever_order_they_are_asked() -> None:
    shares = prepared("share", share(A, (B, Fraction(2))), share(B, (A, Fraction(2))))
    for assets in ([A, B], [B, A], [A], [B]):
        prices = usd_of(quoted([shares, prepared("vendor", price(A, "3"), price(B, "5"))], *assets))
        assert prices == {of: usd for of, usd in ((A, 3), (B, 5)) if of in assets}


def test_two_that_rest_on_one_that_is_priced_in_the_same_round_are_no_circle() -> None:
    shares = prepared("share", share(A, (B, Fraction(2))), share(B, (ETH, Fraction(2))), price(ETH, "1"))
    assert usd_of(quoted([shares], A, B, ETH)) == {A: 4, B: 2, ETH: 1}


NONE: dict[str, tuple[RelativePrice, str]] = {
    "no parts": (share(A), "the price has 0 parts"),
    "too many parts": (share(A, *((token(f"p{n}"), Fraction(1)) for n in range(65))), "the price has 65 parts"),
    "a float": (share(A, (ETH, 0.5)), "an amount of the price is a float, not a Fraction"),  # type: ignore[arg-type]
    "negative": (share(A, (ETH, Fraction(-1)), (USD, Fraction(5))), "an amount of the price is negative"),
    "nothing": (share(A, (ETH, Fraction(0))), "all parts of the price are zero"),
    "negative depth": (market(A, ETH, Fraction(1), Fraction(-1), "share"), "amount of the price is negative"),
    "tomorrow": (replace(share(A, (ETH, Fraction(1))), time_us=BLOCK.time_us + 1), "dated after the block"),
    "another name": (replace(share(A, (ETH, Fraction(1))), source="feed"), "names another source: feed"),
    "unsure": (replace(share(A, (ETH, Fraction(1))), confidence=Decimal(2)), "confidence is not between 0 and 1"),
    "time in words": (replace(share(A, (ETH, Fraction(1))), time_us="x"), "time_us is a str"),  # type: ignore[arg-type]
    "enormous": (share(A, (ETH, Fraction(10**40))), "out of all proportion"),
    "next to nothing": (share(A, (ETH, Fraction(1, 10**40))), "out of all proportion"),
}


def test_a_price_has_as_many_parts_as_are_allowed_and_a_detail_that_is_cut() -> None:
    parts = [token(f"p{number:02}") for number in range(MAX_PARTS)]
    sources = [
        prepared("feed", *(price(each, "2") for each in parts)),
        prepared("share", share(A, *((p, ONE) for p in parts))),
    ]
    (basket,) = quoted(sources, A).prices
    assert basket.usd == 2 * MAX_PARTS
    assert (len(basket.detail), basket.detail[-1]) == (MAX_DETAIL, "…")
    usd = price(USD, "1")
    room = MAX_DETAIL - len(to_usd(replace(share(A, (USD, ONE)), detail="v"), {USD: usd}).detail)
    for length, is_cut in ((room, False), (room + 1, True)):
        detail = to_usd(replace(share(A, (USD, ONE)), detail="v" + "x" * length), {USD: usd}).detail
        assert (len(detail), detail.endswith("…")) == (MAX_DETAIL, is_cut)


@pytest.mark.parametrize("name", NONE)
def test_a_relative_price_that_is_none_is_refused_and_the_next_source_is_asked(name: str) -> None:
    odd, reason = NONE[name]
    sources = [
        prepared("feed", price(ETH, "1"), price(USD, "1")),
        PreparedSource("share", {A: odd}),
        prepared("vendor", price(A, "7")),
    ]
    quotes = quoted(sources, A)
    assert usd_of(quotes) == {A: 7}
    assert reason in reasons(quotes, A)[0]


def test_a_relative_price_that_nobody_asked_for_is_ignored() -> None:
    class Chatty(PreparedSource):
        def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Quotes]:
            yield from ()
            return Quotes(relative=(share(B, (ETH, Fraction(1)), source="chatty"),))

    assert quoted([Chatty("chatty")], A) == Quotes()


# --- whatever comes ---------------------------------------------------------------------------------------------------

NAMES = [token(f"t{n}") for n in range(6)]
RELATIVES = st.dictionaries(
    st.sampled_from(NAMES),
    st.tuples(
        st.lists(st.tuples(st.sampled_from(NAMES), st.fractions(0, 9, max_denominator=9)), min_size=1, max_size=3),
        st.booleans(),
    ),
    max_size=6,
)


def from_the_definition(
    of: Asset, feed: Mapping[Asset, Decimal], shares: Mapping[Asset, RelativePrice], above: tuple[Asset, ...] = ()
) -> tuple[Decimal, int, int] | None:
    """Return the price, its steps and its markets by recursion, or None without such a path."""
    if of in feed:
        return feed[of], 0, 0
    if of in above or of not in shares:
        return None
    relative = shares[of]
    part_prices = {part: from_the_definition(part, feed, shares, (*above, of)) for part in relative.dependencies}
    if None in part_prices.values():
        return None
    priced = {part: each for part, each in part_prices.items() if each is not None}
    steps = 1 + max(priced[part][1] for part, _ in relative.parts)
    markets = (relative.depth is not None) + max(priced[part][2] for part, _ in relative.parts)
    usd = rounded(sum((amount * Fraction(priced[part][0]) for part, amount in relative.parts), Fraction(0)))
    return (usd, steps, markets) if usd and steps <= 4 and markets <= 2 else None


@given(
    RELATIVES,
    st.dictionaries(st.sampled_from(NAMES), st.decimals("0.01", 10, places=2), max_size=3),
    st.permutations(NAMES),
)
def test_whatever_rests_on_whatever_has_the_price_of_the_definition_however_it_is_asked(
    drawn: Mapping[Asset, tuple[list[tuple[Asset, Fraction]], bool]], fed: Mapping[Asset, Decimal], assets: list[Asset]
) -> None:
    shares = {of: market(of, *parts[0]) if sold else share(of, *parts) for of, (parts, sold) in drawn.items()}

    def sources() -> Iterable[PreparedSource]:
        yield prepared("feed", *(price(of, str(usd)) for of, usd in fed.items()))
        yield prepared("share", *shares.values())

    expected = {of: each[0] for of in assets if (each := from_the_definition(of, fed, shares)) is not None}
    quotes = quoted([*sources()], *assets)
    assert usd_of(quotes) == expected
    alone = {of: usd for each in assets for of, usd in usd_of(quoted([*sources()], each)).items()}
    assert alone == expected
    for of in set(shares) - set(expected):
        assert reasons(quotes, of)


async def test_many_blocks_at_once_share_their_rounds() -> None:
    feed, shares = prepared("feed", price(ETH, "3")), prepared("share", share(A, (ETH, Fraction(2))))
    batches = 0

    async def answer(reads: list[Any]) -> list[Any]:
        nonlocal batches
        batches += 1
        return [1 for _ in reads]

    reports = await run_batched({str(n): query_sources([feed, shares], [A], BLOCK) for n in range(20)}, answer)
    assert batches == 3
    assert all(report.result and usd_of(report.result) == {A: 6} for report in reports.values())


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        pytest.param(PricePath(MAX_STEPS, MAX_MARKETS), "", id="longest"),
        pytest.param(PricePath(MAX_STEPS + 1), f"more than {MAX_STEPS} assets", id="steps"),
        pytest.param(PricePath(MAX_MARKETS + 1, MAX_MARKETS + 1), f"more than {MAX_MARKETS} markets", id="markets"),
    ],
)
def test_a_path_of_too_many_assets_or_markets_is_refused_with_the_reason(path: PricePath, fault: str) -> None:
    assert path_fault(path) == (f"it rests on {fault}, one upon the other" if fault else "")


@pytest.mark.parametrize("is_unread", [True, False])
def test_a_share_of_what_could_not_be_read_is_unread_and_of_what_has_no_price_is_not(is_unread: bool) -> None:
    sources = [
        prepared("feed", Refusal(ETH, "feed", "no answer", is_unread)),
        prepared("share", share(A, (ETH, Fraction(1)))),
    ]
    assert [each.is_unread for each in quoted(sources, A).refused if each.asset == A] == [is_unread]
