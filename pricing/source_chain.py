"""Sources in an order: the next one is asked only for what is still unpriced, and each price says who gave it.

A relative price waits for those of its parts, which the chain finds like any other, at the same block. All that is open
is asked for at once: an asset of its next source, a new part of its first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.plans import MAX_ROUNDS, Plan, Report, batched
from pricing.guards import price_fault, source_fault, told_fault
from pricing.quotes import PriceSource, Quotes, Refusal, Relative
from pricing.relatives import DIRECT, MAX_STEPS, Way, absolute, relative_fault, way_fault, way_of

MAX_SOURCE_READS: Final = 1_000_000  # of one source: each looks for pools of thousands of tokens at most
MAX_CHAIN_ROUNDS: Final = 48  # of all sources together; each has the bound of a plan besides


def source_chain(sources: Sequence[PriceSource], assets: Iterable[Asset], block: Block) -> Plan[Any, Any, Quotes]:
    """The first usable price of each asset, in the order of the assets, and every refusal on the way.

    An asset can be refused by one source and priced by a later one; an asset in neither list is known to nobody.
    """
    wanted = list(dict.fromkeys(assets))
    search = _Search(sources, block)
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
                search.hear(report.result, sources[place].name, open_)
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
    """How far the search for prices at one block is. `turn` is the place of the source that an asset is asked of next,
    `away` how many assets it is away from one that was wanted, `why` the last reason why it has no price."""

    sources: Sequence[PriceSource]
    block: Block
    priced: dict[Asset, Price] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)
    waiting: dict[Asset, Relative] = field(default_factory=dict)
    turn: dict[Asset, int] = field(default_factory=dict)
    away: dict[Asset, int] = field(default_factory=dict)
    ways: dict[Asset, Way] = field(default_factory=dict)
    why: dict[Asset, str] = field(default_factory=dict)

    def want(self, assets: Iterable[Asset], away: int) -> None:
        """Take up assets that were not, as far as their prices could count."""
        for asset in assets:
            if away <= MAX_STEPS and away < self.away.get(asset, MAX_STEPS + 1):
                self.away[asset] = away
                self.turn.setdefault(asset, 0)
                if asset in self.waiting:
                    self.want(self.waiting[asset].needs, away + 1)

    def next(self) -> dict[int, list[Asset]]:
        """The assets to ask for next, by the place of their source; empty where there is nothing more to ask."""
        while True:
            self._settle()
            asking: dict[int, list[Asset]] = {}
            for asset, turn in self.turn.items():
                if self._is_open(asset):
                    asking.setdefault(turn, []).append(asset)
            if asking or not self.waiting:
                for asset in (each for several in asking.values() for each in several):
                    self.turn[asset] += 1
                return asking
            self._break_circles()

    def hear(self, quotes: Quotes, source: str, asked: Sequence[Asset]) -> None:
        """What a source said of the assets that it was asked for; of others it is ignored."""
        open_ = set(asked)
        for each in quotes.refused:
            if each.asset in open_:
                self._refused(each)
        for price in quotes.prices:
            fault = source_fault(price, source) or price_fault(price, self.block)
            if price.asset in open_ and fault:
                self.refuse([price.asset], source, fault)
            elif price.asset in open_:
                self._price(price, DIRECT)
        for told in quotes.relative:
            if told.asset not in open_ or told.asset in self.priced or told.asset in self.waiting:
                continue
            fault = source_fault(told, source) or told_fault(told, self.block) or relative_fault(told)
            if fault:
                self.refuse([told.asset], source, fault)
            else:
                self.waiting[told.asset] = told
                self.want(told.needs, self.away[told.asset] + 1)

    def refuse(self, assets: Iterable[Asset], source: str, reason: str) -> None:
        """None of these has a price of this source."""
        for asset in assets:
            self.waiting.pop(asset, None)
            self._refused(Refusal(asset, source, reason))

    def quotes(self, wanted: Sequence[Asset]) -> Quotes:
        """What was found of the assets that were wanted."""
        asked = set(wanted)
        refused = tuple(each for each in self.refused if each.asset in asked)
        return Quotes(tuple(self.priced[asset] for asset in wanted if asset in self.priced), refused)

    def _is_open(self, asset: Asset) -> bool:
        return self.turn[asset] < len(self.sources) and asset not in self.priced and asset not in self.waiting

    def _settle(self) -> None:
        """Price, or refuse, each asset whose parts are priced or are known to have no price, until none is left."""
        moved = True
        while moved:
            moved = False
            for asset, told in list(self.waiting.items()):
                unpriced = [part for part in told.needs if part not in self.priced]
                lost = next((part for part in unpriced if part not in self.waiting and not self._can_be(part)), None)
                if lost is not None:
                    self.refuse(
                        [asset], told.source, f"{lost}, which it is worth some of, has no price{self._why(lost)}"
                    )
                elif not unpriced:
                    self._conclude(told)
                moved |= lost is not None or not unpriced

    def _can_be(self, part: Asset) -> bool:
        return part in self.turn and self._is_open(part)

    def _why(self, part: Asset) -> str:
        """The last reason why a part has no price."""
        if part not in self.turn:
            return f": it is more than {MAX_STEPS} assets away"
        return f": {self.why[part]}" if part in self.why else ""

    def _refused(self, refusal: Refusal) -> None:
        self.refused.append(refusal)
        self.why[refusal.asset] = refusal.reason

    def _conclude(self, told: Relative) -> None:
        """The price that follows from those of its parts, all of which are known."""
        way = way_of(told, [self.ways[part] for part, _ in told.parts])
        fault = way_fault(way)
        if not fault:
            price = absolute(told, self.priced)
            fault = price_fault(price, self.block)
        if fault:
            self.refuse([told.asset], told.source, fault)
        else:
            del self.waiting[told.asset]
            self._price(price, way)

    def _price(self, price: Price, way: Way) -> None:
        if self.priced.setdefault(price.asset, price) is price:
            self.ways[price.asset] = way

    def _break_circles(self) -> None:
        """Refuse the prices that rest on themselves: whatever waits, waits for something that does."""
        ahead = {
            asset: next(part for part in told.needs if part in self.waiting) for asset, told in self.waiting.items()
        }
        for circle in _circles(ahead):
            way = " → ".join(map(str, (*circle, circle[0])))
            for asset in circle:
                self.refuse([asset], self.waiting[asset].source, f"its price would rest on itself: {way}")


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
