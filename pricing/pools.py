"""Prices from pools on chain, with no vendor: of all pools of a token with a trusted one, the pool that could pay most.

Two rounds, whatever the number of tokens: where pools lie, and what they say; for many tokens one more before: which
venues are on the chain. All venues compete, and the pool is chosen at the block that is read. What the trusted token
is worth is found by the source chain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from importlib import import_module
from typing import Any, Final

from chainfolio import amounts
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.errors import BadSettings
from chainfolio.plans import Plan, Unknown
from chainfolio.reads import AtParent, Read, ReadResult
from pricing.fixed import canonical
from pricing.markets import Market, Pair, Pool, Venue, deepest, unread
from pricing.quotes import PriceSection, Quotes, Refusal, Relative, by_chain
from pricing.venues.section import DECIMALS, KIND, Facts, call, scale

SOURCE: Final = "pools"
MAX_LOOKUPS: Final = 300_000  # of one plan, whose reads are bounded
MAX_STATES: Final = 300_000
FEW: Final = 200  # tokens: of more, venues are asked first whether they are on the chain
FAMILIES: Final = (
    "uniswap_v2", "uniswap_v3", "uniswap_v4", "slipstream", "algebra", "solidly", "curve_ng", "balancer_v2",
)  # fmt: skip
TOO_MANY: Final = "too many tokens at once: its pools were not looked for"
MOVE_PERCENT: Final = 10


@dataclass(frozen=True, slots=True)
class Pools:
    """The venues of one chain, and its trusted tokens with how much of each a pool has to be able to pay (amounts)."""

    quotes: Mapping[Asset, Fraction]
    venues: Sequence[Venue]
    max_move: Fraction
    name: str = SOURCE
    reads_chain_only: bool = True

    def knows(self, asset: Asset) -> bool | None:
        """Not what is no token of the chain; of a token it cannot be told before pools are looked for."""
        return None if asset.kind == "erc20" and any(asset.chain == quote.chain for quote in self.quotes) else False

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Any, Any, Quotes]:
        """A relative price, or the reason for none, for each token that has a pool."""
        tokens = [asset for asset in assets if self.knows(asset) is not False]
        wanted, left_out = tokens[: self._most], tokens[self._most :]
        refused = [Refusal(asset, SOURCE, TOO_MANY) for asset in left_out]
        if not wanted:
            return Quotes(refused=tuple(refused))
        venues = (yield from self._there(wanted)) if len(wanted) > FEW else self.venues
        searches = [_Search(asset, self, venues) for asset in wanted]
        decimals = [call(asset.reference, DECIMALS) for asset in dict.fromkeys((*wanted, *self.quotes))]
        known = yield from _answered([*decimals, *(read for each in searches for read in each.lookups())])
        room = MAX_STATES
        for each in searches:
            room -= each.find(known, room)
        states = [read for each in searches for read in each.reads()]
        known |= (yield from _answered(states)) if states else {}
        outcomes = [each.outcome(known, block) for each in searches]
        refused += [each for each in outcomes if isinstance(each, Refusal)]
        return Quotes(refused=tuple(refused), relative=tuple(each for each in outcomes if isinstance(each, Relative)))

    def _there(self, wanted: Sequence[Asset]) -> Plan[Any, Any, list[Venue]]:
        """The venues whose contracts are on the chain at the block: asked for the pools of one pair, in one round."""
        pair = next(
            Pair(asset.reference, quote.reference) for asset in wanted for quote in self.quotes if quote != asset
        )
        lookups = {id(venue): venue.lookups(pair) for venue in self.venues}
        known = yield from _answered([read for reads in lookups.values() for read in reads])
        return [venue for venue in self.venues if not _is_absent([known[read] for read in lookups[id(venue)]])]

    @property
    def _most(self) -> int:
        """How many tokens a plan has room for."""
        one, other = (set(_lookups(self.venues, Pair(token, "0x3"))) for token in ("0x1", "0x2"))
        return MAX_LOOKUPS // (1 + len(self.quotes) * len(one - other))


@dataclass(slots=True)
class _Search:
    """The search for the market of one token. `failed` is why it came to nothing."""

    asset: Asset
    source: Pools
    venues: Sequence[Venue]
    pools: dict[Pool, Venue] = field(default_factory=dict)
    failed: str = ""

    def _places(self) -> list[tuple[Venue, Pair]]:
        pairs = [Pair(self.asset.reference, quote.reference) for quote in self.source.quotes if quote != self.asset]
        return [(venue, pair) for pair in pairs for venue in self.venues]

    def lookups(self) -> list[Read]:
        """Where its pools may lie."""
        return [read for venue, pair in self._places() for read in venue.lookups(pair)]

    def find(self, known: Mapping[Any, Any], room: int) -> int:
        """Its pools, by the answers to that; how many reads they take, which are none if there is no room for them."""
        for venue, pair in self._places():
            said = [known[read] for read in venue.lookups(pair)]
            self.failed = self.failed or unread(said)
            self.pools |= dict.fromkeys(venue.pools(pair, said), venue)
        count = len(self.reads())
        if count > room:
            self.pools, self.failed, count = {}, TOO_MANY, 0
        return count

    def reads(self) -> list[Read | AtParent]:
        """What to ask of its pools."""
        return [read for pool, venue in self.pools.items() for read in venue.reads(pool)]

    def outcome(self, known: Mapping[Any, Any], block: Block) -> Relative | Refusal | None:
        """Its price, why it has none, or nothing where it has no pool."""
        markets: dict[Pool, Market] = {}
        for pool, venue in self.pools.items():
            said = [known[read] for read in venue.reads(pool)]
            self.failed = self.failed or unread(said)
            if not self.failed and (market := venue.market(pool, said)) is not None:
                markets[pool] = market
        if self.failed:
            return self._refusal(f"its pools could not be read: {self.failed}")
        if not markets:
            return None
        quotes = {quote.reference: floor for quote, floor in self.source.quotes.items()}
        scales = {token: scale(known[call(token, DECIMALS)]) for token in (*quotes, self.asset.reference)}
        if not scales[self.asset.reference]:
            return self._refusal("the token does not say how many decimals it has")
        floors = {token: max(int(floor * scales[token]), 1) for token, floor in quotes.items() if scales[token]}
        best = deepest(markets, floors)
        if best is None:
            return self._refusal(f"none of its {len(markets)} pools could pay enough for a price")
        pool, market = best
        if fault := market.fault(self.source.max_move):
            return self._refusal(f"{fault} ({pool.label})")
        return self._relative(pool, market, scales, known, block)

    def _relative(
        self, pool: Pool, market: Market, scales: Mapping[str, int], known: Mapping[Any, Any], block: Block
    ) -> Relative:
        quote, one = self.asset._replace(reference=pool.pair.quote), scales[pool.pair.quote]
        price = market.now.price * Fraction(scales[self.asset.reference], one)
        decimals = [call(token, DECIMALS) for token in (pool.pair.token, pool.pair.quote)]
        asked = dict.fromkeys((*decimals, *self.pools[pool].reads(pool)))
        own = [read for read in asked if not isinstance(read, AtParent)]
        return Relative(
            self.asset, ((quote, price),), SOURCE, block.time_us, market.confidence, pool.label,
            tuple(ReadResult(read, known[read]) for read in own), (quote, Fraction(market.depth, one)),
        )  # fmt: skip

    def _refusal(self, reason: str) -> Refusal:
        return Refusal(self.asset, SOURCE, reason)


def _is_absent(answers: Sequence[Any]) -> bool:
    """Whether a venue answered as where there is no contract."""
    return bool(answers) and all(isinstance(each, Unknown) and each.cause == "absent" for each in answers)


def _lookups(venues: Sequence[Venue], pair: Pair) -> list[Read]:
    return [read for venue in venues for read in venue.lookups(pair)]


def _answered(reads: Sequence[Any]) -> Plan[Any, Any, dict[Any, Any]]:
    """One round: the answers by their reads, each of which is sent once."""
    once = list(dict.fromkeys(reads))
    return dict(zip(once, (yield once), strict=True))


def pools(section: Mapping[str, Any], where: str) -> Pools:
    """The source behind a chain's section; `where` is what a BadSettings calls it."""
    for key in sorted(section.keys() - {"quotes", "venues", "max_move_percent"}):
        raise BadSettings(where, f"unknown key `{key}`")
    quotes, venues = section.get("quotes", {}), section.get("venues", [])
    if not isinstance(quotes, Mapping) or not isinstance(venues, list):
        raise BadSettings(where, "`quotes` has lines asset = amount, and `venues` is a list of sections")
    trusted = {canonical(written, where): _amount(amount, written, where) for written, amount in quotes.items()}
    if len({quote.chain for quote in trusted}) > 1 or any(quote.kind != "erc20" for quote in trusted):
        raise BadSettings(where, "the quotes have to be ERC-20 tokens of one chain")
    percent = section.get("max_move_percent", MOVE_PERCENT)
    if type(percent) is not int or not 1 <= percent <= 100:
        raise BadSettings(where, f"max_move_percent is {percent!r}, not a whole number from 1 to 100")
    return Pools(trusted, [_venue(each, where) for each in venues], 1 + Fraction(percent, 100))


def _venue(section: Any, where: str) -> Venue:
    family = section.get("family") if isinstance(section, Mapping) else None
    if family not in FAMILIES:
        raise BadSettings(where, f"a venue's family is {family!r}", remedy=f"one of {', '.join(FAMILIES)}")
    facts = Facts(section, where)
    venue: Venue = import_module(f"pricing.venues.{family}").of(facts)
    facts.done()
    return venue


def _amount(written: Any, asset: str, where: str) -> Fraction:
    try:
        amount = amounts.parse(written) if isinstance(written, str) else None
    except ValueError:
        amount = None
    if amount is None or amount <= 0:
        raise BadSettings(where, f"what a pool has to have of {asset} is {written!r}", remedy='an amount: "5000"')
    return Fraction(amount)


SECTION = PriceSection(by_chain(pools), order=70, kinds=(KIND,))
