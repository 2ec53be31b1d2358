"""Prices from pools on chain: of a token's pools with trusted tokens, the one that could pay most.

The plan has two rounds for any number of tokens: find the pools, and read their state. For many tokens one round comes
first that finds the venues which are deployed on the chain. All venues compete, and the pool is chosen at the block
that is read. The price of the trusted token comes from other sources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from importlib import import_module
from typing import Any, Final

from chainfolio.adapters.evm.prices.markets import Market, Pair, Pool, Venue, deepest_market, first_read_error
from chainfolio.adapters.evm.prices.section import KIND, VenueSection, raw_unit
from chainfolio.adapters.evm.reads import DECIMALS, Call
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.errors import BadSettings
from chainfolio.plans import Plan, Unknown, read_distinct
from chainfolio.pool_prices import TOO_MANY_TOKENS, parse_minimum
from chainfolio.price_sources import (
    PricePlan,
    PriceSection,
    Quotes,
    Refusal,
    RelativePrice,
    Section,
    by_chain,
    parse_asset,
)
from chainfolio.reads import AtParent, ContractRead, ReadResult

SOURCE: Final = "pools"
MAX_LOOKUPS: Final = 300_000  # of one plan, whose reads are limited
MAX_STATE_READS: Final = 300_000
MAX_TOKENS_FOR_ALL_VENUES: Final = 200  # for more tokens the venues that are not deployed are removed first
FAMILIES: Final = (
    "uniswap_v2",
    "uniswap_v3",
    "uniswap_v4",
    "slipstream",
    "algebra",
    "solidly",
    "curve_ng",
    "balancer_v2",
)
MOVE_PERCENT: Final = 10

Results = dict[ContractRead, Any]


@dataclass(frozen=True, slots=True)
class Pools:
    """The venues of one chain, and its trusted tokens.

    Attributes:
        quotes: Trusted tokens, with the amount that a pool must be able to pay.
        max_move: Largest factor by which a price may differ from its parent block and its average.
    """

    quotes: Mapping[Asset, Fraction]
    venues: Sequence[Venue]
    max_move: Fraction
    name: str = SOURCE
    reads_chain_only: bool = True

    def knows(self, asset: Asset) -> bool | None:
        """Return None for tokens of the chain, whose pools are only known after a lookup.

        False for other assets.
        """
        return None if asset.kind == "erc20" and any(asset.chain == quote.chain for quote in self.quotes) else False

    def prices(self, assets: Sequence[Asset], block: Block) -> PricePlan:
        """Return a relative price or a refusal for each token with a pool, in two or three rounds.

        Tokens are refused if all together need more than MAX_LOOKUPS lookups or MAX_STATE_READS reads of pools: those
        at the end of `assets`, or those whose pools do not fit.
        """
        candidates = [asset for asset in assets if self.knows(asset) is not False]
        tokens, too_many = candidates[: self._max_tokens], candidates[self._max_tokens :]
        refusals = [Refusal(token, SOURCE, TOO_MANY_TOKENS) for token in too_many]
        if not tokens:
            return Quotes(refused=tuple(refusals))
        has_many = len(tokens) > MAX_TOKENS_FOR_ALL_VENUES
        venues = (yield from self._deployed_venues(tokens)) if has_many else self.venues
        searches = [_Search(token, self, venues) for token in tokens]
        decimals = [Call(token.reference, DECIMALS) for token in dict.fromkeys((*tokens, *self.quotes))]
        results = yield from read_distinct([*decimals, *(read for s in searches for read in s.lookups())])
        budget = MAX_STATE_READS
        for search in searches:
            budget -= search.add_pools(results, budget)
        state_reads = [read for search in searches for read in search.reads()]
        results |= yield from read_distinct(state_reads)
        outcomes = [search.outcome(results, block) for search in searches]
        refusals += [outcome for outcome in outcomes if isinstance(outcome, Refusal)]
        relative = tuple(outcome for outcome in outcomes if isinstance(outcome, RelativePrice))
        return Quotes(refused=tuple(refusals), relative=relative)

    def _deployed_venues(self, tokens: Sequence[Asset]) -> Plan[list[Venue]]:
        """Return the venues without those whose contracts are all absent at the block.

        One round of lookups, for the first pair of a token and a different quote; there must be one. A venue stays if a
        lookup failed for another reason, or if it has no lookups.
        """
        pair = next(
            Pair(token.reference, quote.reference) for token in tokens for quote in self.quotes if quote != token
        )
        lookups = {id(venue): venue.lookups(pair) for venue in self.venues}
        results = yield from read_distinct([read for reads in lookups.values() for read in reads])
        return [venue for venue in self.venues if not _is_absent([results[read] for read in lookups[id(venue)]])]

    @property
    def _max_tokens(self) -> int:
        """Maximum number of tokens that fit into one plan, by the lookups that depend on the token."""
        a, b = (
            {read for venue in self.venues for read in venue.lookups(Pair(token, "0x3"))} for token in ("0x1", "0x2")
        )
        return MAX_LOOKUPS // (1 + len(self.quotes) * len(a - b))


@dataclass(slots=True)
class _Search:
    """The search for the market of one token. `fault` is the reason why it failed; empty if it did not."""

    asset: Asset
    source: Pools
    venues: Sequence[Venue]
    pools: dict[Pool, Venue] = field(default_factory=dict)
    fault: str = ""

    def _venues_and_pairs(self) -> list[tuple[Venue, Pair]]:
        pairs = [Pair(self.asset.reference, quote.reference) for quote in self.source.quotes if quote != self.asset]
        return [(venue, pair) for pair in pairs for venue in self.venues]

    def lookups(self) -> list[ContractRead]:
        """Return the reads that find its pools."""
        return [read for venue, pair in self._venues_and_pairs() for read in venue.lookups(pair)]

    def add_pools(self, results: Results, budget: int) -> int:
        """Store the pools of the lookups and return the number of their reads (0 if over `budget`).

        Over budget no pool is stored. `fault` is set then, and if a lookup failed.
        """
        for venue, pair in self._venues_and_pairs():
            lookup_results = [results[read] for read in venue.lookups(pair)]
            self.fault = self.fault or first_read_error(lookup_results)
            self.pools |= dict.fromkeys(venue.pools(pair, lookup_results), venue)
        read_count = len(self.reads())
        if read_count > budget:
            self.pools, self.fault, read_count = {}, TOO_MANY_TOKENS, 0
        return read_count

    def reads(self) -> list[ContractRead]:
        """Return the reads of its pools' states."""
        return [read for pool, venue in self.pools.items() for read in venue.reads(pool)]

    def outcome(self, results: Results, block: Block) -> RelativePrice | Refusal | None:
        """Return the price of the deepest pool; None without a pool that has a price.

        A refusal if a pool is unread, the token has no known decimals, all are too small, or the price moved too far in
        one block or from its average.
        """
        markets: dict[Pool, Market] = {}
        for pool, venue in self.pools.items():
            state = [results[read] for read in venue.reads(pool)]
            self.fault = self.fault or first_read_error(state)
            if not self.fault and (market := venue.market(pool, state)) is not None:
                markets[pool] = market
        if self.fault:
            return self._refusal(f"its pools could not be read: {self.fault}")
        if not markets:
            return None
        minimums = {quote.reference: minimum for quote, minimum in self.source.quotes.items()}
        units = {token: raw_unit(results[Call(token, DECIMALS)]) for token in (*minimums, self.asset.reference)}
        if not units[self.asset.reference]:
            return self._refusal("the token does not say how many decimals it has")
        floors = {token: max(int(minimum * units[token]), 1) for token, minimum in minimums.items() if units[token]}
        deepest = deepest_market(markets, floors)
        if deepest is None:
            return self._refusal(f"none of its {len(markets)} pools could pay enough for a price")
        pool, market = deepest
        if fault := market.fault(self.source.max_move):
            return self._refusal(f"{fault} ({pool.label})")
        return self._relative_price(pool, market, units, results, block)

    def _relative_price(
        self, pool: Pool, market: Market, units: Mapping[str, int], results: Results, block: Block
    ) -> RelativePrice:
        """Return the price of a whole token in the pool's quote, with the reads and the depth."""
        quote, quote_unit = self.asset._replace(reference=pool.pair.quote), units[pool.pair.quote]
        price = market.current.price * Fraction(units[self.asset.reference], quote_unit)
        decimals = [Call(token, DECIMALS) for token in (pool.pair.token, pool.pair.quote)]
        reads = dict.fromkeys((*decimals, *self.pools[pool].reads(pool)))
        return RelativePrice(
            self.asset,
            ((quote, price),),
            SOURCE,
            block.time_us,
            market.confidence,
            pool.label,
            tuple(ReadResult(read, results[read]) for read in reads if not isinstance(read, AtParent)),
            (quote, Fraction(market.depth, quote_unit)),
        )

    def _refusal(self, reason: str) -> Refusal:
        return Refusal(self.asset, SOURCE, reason)


def _is_absent(results: Sequence[object]) -> bool:
    """Return True if all contracts of a venue are absent; False for a venue without lookups."""
    return bool(results) and all(isinstance(result, Unknown) and result.cause == "absent" for result in results)


def build_pools(section: Section, location: str) -> Pools:
    """Build the source from a chain's section.

    Raise BadSettings, which names `location`, if it is malformed.
    """
    for key in sorted(section.keys() - {"quotes", "venues", "max_move_percent"}):
        raise BadSettings(location, f"unknown key `{key}`")
    lines, venues = section.get("quotes", {}), section.get("venues", [])
    if not isinstance(lines, Mapping) or not isinstance(venues, list):
        raise BadSettings(location, "`quotes` has lines asset = amount, and `venues` is a list of sections")
    quotes = {parse_asset(text, location): parse_minimum(amount, text, location) for text, amount in lines.items()}
    if len({quote.chain for quote in quotes}) > 1 or any(quote.kind != "erc20" for quote in quotes):
        raise BadSettings(location, "the quotes have to be ERC-20 tokens of one chain")
    percent = section.get("max_move_percent", MOVE_PERCENT)
    if type(percent) is not int or not 1 <= percent <= 100:
        raise BadSettings(location, f"max_move_percent is {percent!r}, not a whole number from 1 to 100")
    return Pools(quotes, [_build_venue(venue, location) for venue in venues], 1 + Fraction(percent, 100))


def _build_venue(section: Any, location: str) -> Venue:
    """Build a venue from its section; raise BadSettings for an unknown family or key."""
    family = section.get("family") if isinstance(section, Mapping) else None
    if family not in FAMILIES:
        raise BadSettings(location, f"a venue's family is {family!r}", remedy=f"one of {', '.join(FAMILIES)}")
    venue_section = VenueSection(section, location)
    venue: Venue = import_module(f"chainfolio.adapters.evm.prices.venues.{family}").build(venue_section)
    venue_section.reject_unread_keys()
    return venue


SECTION = PriceSection(by_chain(build_pools), order=70, kinds=(KIND,))
