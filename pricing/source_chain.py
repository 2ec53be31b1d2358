"""Sources in an order: the next one is asked only for what is still unpriced, and each price says who gave it.

Where two sources know an asset before they are asked, both are asked in one round: the second is a second opinion. So
are sources that follow each other and read only the chain: their reads go out in the same requests. A relative price
waits for those of its parts, which the chain finds like any other, at the same block. All that is open is asked for at
once: an asset of its next sources, a new part of its first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.plans import MAX_ROUNDS, Plan, Report, batched
from pricing.guards import price_fault, source_fault, told_fault
from pricing.quotes import PriceSource, Quotes, Refusal, Relative
from pricing.relatives import DIRECT, MAX_STEPS, Way, absolute, relative_fault, way_fault, way_of
from pricing.rules import Rules, decreed, knows, reads_chain_only, rules_of

MAX_SOURCE_READS: Final = 1_000_000  # of one source: each looks for pools of thousands of tokens at most
MAX_CHAIN_ROUNDS: Final = 48  # of all sources together; each has the bound of a plan besides
NOBODY: Final[Mapping[Asset, Price]] = {}


class Said(NamedTuple):
    """What a source that was asked for an asset said of it; None: it does not know it. Of the chain itself (an empty
    `source`): the price that it chose."""

    asset: Asset
    source: str
    outcome: Price | Relative | Refusal | None


def source_chain(
    sources: Sequence[PriceSource],
    assets: Iterable[Asset],
    block: Block,
    last: Mapping[Asset, Price] = NOBODY,
    journal: list[Said] | None = None,
) -> Plan[Any, Any, Quotes]:
    """The first usable price of each asset, in the order of the assets, and every refusal on the way.

    An asset can be refused by one source and priced by a later one; an asset in neither list is known to nobody.
    `last` are earlier prices, from which none may be too far; `journal` is told what every source said.
    """
    wanted = list(dict.fromkeys(assets))
    search = _Search(sources, block, last, [] if journal is None else journal)
    search.want(wanted, 0)
    left = MAX_CHAIN_ROUNDS
    while asking := search.next():
        plans = {str(place): _checked(sources[place], open_, block) for place, open_ in asking.items()}
        reports: dict[str, Report[Quotes]] = yield from batched(
            plans, max_rounds=min(MAX_ROUNDS, left), max_reads=MAX_SOURCE_READS
        )
        left -= max(report.rounds for report in reports.values())
        for place, open_ in asking.items():
            report = reports[str(place)]
            if report.result is None:  # a source may be third-party code: its fault is not the chain's
                search.refuse(open_, sources[place].name, f"the source failed: {report.reason}")
            else:
                search.hear(report.result, place, open_)
        search.decide(asset for open_ in asking.values() for asset in open_)
    return search.quotes(wanted)


def _checked(source: PriceSource, assets: Sequence[Asset], block: Block) -> Plan[Any, Any, Quotes]:
    """What a source says; TypeError where that is something else than quotes."""
    quotes = yield from source.prices(assets, block)
    if not isinstance(quotes, Quotes):
        raise TypeError(f"it returned a {type(quotes).__name__}, not Quotes")
    for several, kind in ((quotes.prices, Price), (quotes.refused, Refusal), (quotes.relative, Relative)):
        for each in several:
            if not isinstance(each, kind) or not isinstance(each.asset, Asset):
                raise TypeError(f"its quotes have a {type(each).__name__} where a {kind.__name__} of an asset belongs")
    return quotes


@dataclass(slots=True)
class _Search:
    """How far the search for prices at one block is. `heard` are the prices that sources gave, by the place of the
    source, `asked` the places of those that were asked for an asset or need not be, `waiting` the relative prices of an
    asset in the order of their sources, the first of which is settled first, `away` how many assets it is away from one
    that was wanted, `why` the last reason why it has no price, `unread` assets without one because a
    feed could not be read."""

    sources: Sequence[PriceSource]
    block: Block
    last: Mapping[Asset, Price]
    journal: list[Said]
    rules: Rules = field(init=False)
    places: Mapping[str, tuple[int, ...]] = field(init=False)
    priced: dict[Asset, Price] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)
    waiting: dict[Asset, list[tuple[int, Relative]]] = field(default_factory=dict)
    heard: dict[Asset, dict[int, tuple[Price, Way]]] = field(default_factory=dict)
    held: set[tuple[Asset, int]] = field(default_factory=set)
    asked: dict[Asset, set[int]] = field(default_factory=dict)
    away: dict[Asset, int] = field(default_factory=dict)
    ways: dict[Asset, Way] = field(default_factory=dict)
    why: dict[Asset, str] = field(default_factory=dict)
    unread: set[Asset] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rules = rules_of(self.sources)
        self.places = self.rules.places(self.sources)

    def want(self, assets: Iterable[Asset], away: int) -> None:
        """Take up assets that were not, as far as their prices could count."""
        for asset in assets:
            if away <= MAX_STEPS and away < self.away.get(asset, MAX_STEPS + 1):
                self.away[asset] = away
                self.asked.setdefault(asset, set())
                for _, told in self.waiting.get(asset, ()):
                    self.want(told.needs, away + 1)

    def next(self) -> dict[int, list[Asset]]:
        """The assets to ask for next, by the place of their source; empty where there is nothing more to ask."""
        while True:
            self._settle()
            asking: dict[int, list[Asset]] = {}
            for asset in self.asked:
                for place in self._turn(asset) if self._is_open(asset) else ():
                    asking.setdefault(place, []).append(asset)
            if asking or not self.waiting:
                for place, assets in asking.items():
                    for asset in assets:
                        self.asked[asset].add(place)
                return dict(sorted(asking.items()))
            self._break_circles()

    def hear(self, quotes: Quotes, place: int, asked: Sequence[Asset]) -> None:
        """What a source said of the assets that it was asked for; of others it is ignored."""
        silent, source = set(asked), self.sources[place].name
        open_ = frozenset(silent)
        for refusal in quotes.refused:
            if refusal.asset in open_:
                silent.discard(refusal.asset)
                self._refused(refusal)
        said: tuple[Price | Relative, ...] = (*quotes.prices, *quotes.relative)
        for told in said:
            if told.asset in open_:
                silent.discard(told.asset)
                self._hear_one(told, place)
        self.journal += (Said(asset, source, None) for asset in asked if asset in silent)

    def _hear_one(self, told: Price | Relative, place: int) -> None:
        asset, source = told.asset, self.sources[place].name
        fault = source_fault(told, source)
        if isinstance(told, Price):
            fault = fault or price_fault(told, self.block) or self.rules.guards.thin(told)
        else:
            fault = fault or told_fault(told, self.block) or relative_fault(told)
        if fault:
            self.refuse([asset], source, fault)
        elif isinstance(told, Price):
            self._offer(told, place, DIRECT)
        elif place not in {*self.heard.get(asset, ()), *(each for each, _ in self.waiting.get(asset, ()))}:
            self.journal.append(Said(asset, source, told))
            self.waiting.setdefault(asset, []).append((place, told))
            self.want(told.needs, self.away[asset] + 1)

    def refuse(self, assets: Iterable[Asset], source: str, reason: str, *, is_unread: bool = False) -> None:
        """None of these has a price of this source."""
        for asset in assets:
            self._settled(asset, source)
            self._refused(Refusal(asset, source, reason, is_unread))

    def quotes(self, wanted: Sequence[Asset]) -> Quotes:
        """What was found of the assets that were wanted."""
        among = set(wanted)
        refused = tuple(each for each in self.refused if each.asset in among)
        return Quotes(tuple(self.priced[asset] for asset in wanted if asset in self.priced), refused)

    # --- which source is next ----------------------------------------------------------------------------------------

    def _is_open(self, asset: Asset) -> bool:
        return asset not in self.priced and asset not in self.waiting and bool(self._turn(asset))

    def _turn(self, asset: Asset) -> list[int]:
        """The places of the sources that are asked for an asset next: one; one and a second opinion, where both know
        it; or, where it is not known who does, all that follow each other and read only the chain."""
        asked = self.asked[asset]
        found: list[int] = []
        sure = False
        for place in self.places[self.rules.class_of(asset)]:
            if place in asked:
                continue
            known = knows(self.sources[place], asset)
            if known is False:
                asked.add(place)
            elif not found:
                found, sure = [place], bool(known)
                if decreed(self.sources[place]):
                    break
            elif sure:
                if known:
                    return [*found, place]
            elif all(reads_chain_only(self.sources[each]) for each in (*found, place)):
                found.append(place)
            else:
                break
        return found

    # --- what follows from what was said -----------------------------------------------------------------------------

    def _settle(self) -> None:
        """Price, or refuse, each asset whose parts are priced or are known to have no price, until none is left."""
        moved = True
        while moved:
            moved = False
            for asset, ((place, told), *_) in list(self.waiting.items()):
                unpriced = [part for part in told.needs if part not in self.priced]
                lost = next((part for part in unpriced if part not in self.waiting and not self._can_be(part)), None)
                if lost is not None:
                    reason = f"{lost}, which it is worth some of, has no price{self._why(lost)}"
                    self.refuse([asset], told.source, reason, is_unread=lost in self.unread)
                    self.decide([asset])
                elif not unpriced:
                    self._conclude(told, place)
                moved |= lost is not None or not unpriced

    def _settled(self, asset: Asset, source: str) -> None:
        """The relative price that a source gave waits no longer."""
        left = [each for each in self.waiting.pop(asset, ()) if each[1].source != source]
        if left:
            self.waiting[asset] = left

    def _can_be(self, part: Asset) -> bool:
        return part in self.asked and self._is_open(part)

    def _why(self, part: Asset) -> str:
        """The last reason why a part has no price."""
        if part not in self.asked:
            return f": it is more than {MAX_STEPS} assets away"
        return f": {self.why[part]}" if part in self.why else ""

    def _refused(self, refusal: Refusal) -> None:
        self.refused.append(refusal)
        self.journal.append(Said(refusal.asset, refusal.source, refusal))
        self.why[refusal.asset] = refusal.reason
        if refusal.is_unread:
            self.unread.add(refusal.asset)

    def _conclude(self, told: Relative, place: int) -> None:
        """The price that follows from those of its parts, all of which are known."""
        way = way_of(told, [self.ways[part] for part, _ in told.parts])
        fault = way_fault(way)
        if not fault:
            price = absolute(told, self.priced)
            fault = price_fault(price, self.block) or self.rules.guards.thin(price)
        if fault:
            self.refuse([told.asset], told.source, fault)
        else:
            self._settled(told.asset, told.source)
            self._offer(price, place, way)
        self.decide([told.asset])

    def _offer(self, price: Price, place: int, way: Way) -> None:
        self.journal.append(Said(price.asset, price.source, price))
        self.heard.setdefault(price.asset, {}).setdefault(place, (price, way))

    def decide(self, assets: Iterable[Asset]) -> None:
        """Choose of the prices that were given: the first in order that is not too far from the last one of its asset,
        or with which another source agrees."""
        for asset in assets:
            if asset in self.heard and asset not in self.priced and asset not in self.waiting:
                self._choose(asset)

    def _choose(self, asset: Asset) -> None:
        offers = self.heard[asset]
        order = [place for place in self.places[self.rules.class_of(asset)] if place in offers]
        for place in order:
            price, way = offers[place]
            others = tuple(offers[each][0] for each in order if each != place)
            held = "" if decreed(self.sources[place]) else self.rules.guards.held(price, self.last.get(asset))
            if not held or any(self.rules.guards.agree(price, other) for other in others):
                self.priced[asset], self.ways[asset] = replace(price, others=others), way
                self.journal.append(Said(asset, "", self.priced[asset]))
                return
            if (asset, place) not in self.held:
                self.held.add((asset, place))
                self._refused(Refusal(asset, price.source, held))

    def _break_circles(self) -> None:
        """Refuse the prices that rest on themselves: whatever waits, waits for something that does."""
        ahead = {
            asset: next(part for part in told.needs if part in self.waiting)
            for asset, ((_, told), *_) in self.waiting.items()
        }
        for circle in _circles(ahead):
            way = " → ".join(map(str, (*circle, circle[0])))
            for asset in circle:
                self.refuse([asset], self.waiting[asset][0][1].source, f"its price would rest on itself: {way}")
                self.decide([asset])


def _circles(ahead: Mapping[Asset, Asset]) -> list[list[Asset]]:
    """The circles of a graph in which one way leads out of each node."""
    found: list[list[Asset]] = []
    seen: set[Asset] = set()
    for start in ahead:
        path: dict[Asset, int] = {}
        at = start
        while at not in seen:
            seen.add(at)
            path[at] = len(path)
            at = ahead[at]
        if at in path:
            found.append(list(path)[path[at] :])
    return found
