"""Query price sources in order: a source is read only for assets that have no price yet.

Two sources that both know an asset are read in one round, because the second is a second opinion. Consecutive sources
that read only the chain also share a round. A relative price waits for the prices of its parts, which are queried in
the same way at the same block. Each round reads everything that can be read: the next sources of each unpriced asset,
and the first sources of each new part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.plans import MAX_ROUNDS, batched
from chainfolio.price_sources import PricePlan, PriceSource, Quotes, Refusal, RelativePrice
from chainfolio.pricing.guards import observation_fault, price_fault, type_fault
from chainfolio.pricing.relatives import DIRECT, MAX_STEPS, PricePath, extend_path, path_fault, relative_fault, to_usd
from chainfolio.pricing.rules import Rules, is_fixed, knows, reads_chain_only, rules_of

MAX_SOURCE_READS: Final = 1_000_000  # of one source: each looks for pools of thousands of tokens at most
MAX_CHAIN_ROUNDS: Final = 48  # of all sources together; each source is also limited by `MAX_ROUNDS`
SOURCE_FAILED: Final = "the source failed: "
NO_PRICES: Final[Mapping[Asset, Price]] = {}


class SourceOutcome(NamedTuple):
    """The result of one source for one asset.

    `outcome` is None if the source does not know the asset. If `source` is empty, `outcome` is the price that was
    chosen among those of all sources.
    """

    asset: Asset
    source: str
    outcome: Price | RelativePrice | Refusal | None


def query_sources(
    sources: Sequence[PriceSource],
    assets: Iterable[Asset],
    block: Block,
    last_prices: Mapping[Asset, Price] = NO_PRICES,
    journal: list[SourceOutcome] | None = None,
) -> PricePlan:
    """Return a plan of the first usable price of each asset, in order, and all refusals.

    An asset can be refused by one source and priced by a later one. An asset that no source knows is in neither list.
    Queries beyond MAX_CHAIN_ROUNDS rounds are refused.

    Args:
        sources: Read in the order of their rules.
        assets: Duplicates are ignored.
        block: Prices are as of this block.
        last_prices: Earlier prices. A price that is too far from the earlier one needs a second source that agrees.
        journal: The outcome of every source, and every choice, is appended to it.
    """
    requested = list(dict.fromkeys(assets))
    search = _Search(sources, block, last_prices, [] if journal is None else journal)
    search.add_assets(requested, 0)
    rounds_left = MAX_CHAIN_ROUNDS
    while queries := search.next_queries():
        plans = {str(index): _checked_quotes(sources[index], pending, block) for index, pending in queries.items()}
        reports = yield from batched(plans, max_rounds=min(MAX_ROUNDS, rounds_left), max_reads=MAX_SOURCE_READS)
        rounds_left -= max(report.rounds for report in reports.values())
        for index, pending in queries.items():
            report = reports[str(index)]
            if report.result is None:  # a source may be third-party code: its error must not stop the others
                search.refuse(pending, sources[index].name, f"{SOURCE_FAILED}{report.reason}")
            else:
                search.add_quotes(report.result, index, pending)
        search.choose_prices(asset for pending in queries.values() for asset in pending)
    return search.quotes(requested)


def _checked_quotes(source: PriceSource, assets: Sequence[Asset], block: Block) -> PricePlan:
    """Return the quotes of a source; raise TypeError if it returns something else."""
    quotes = yield from source.prices(assets, block)
    if not isinstance(quotes, Quotes):
        raise TypeError(f"it returned a {type(quotes).__name__}, not Quotes")
    for items, kind in ((quotes.prices, Price), (quotes.refused, Refusal), (quotes.relative, RelativePrice)):
        for item in items:
            if not isinstance(item, kind) or not isinstance(item.asset, Asset):
                raise TypeError(f"its quotes have a {type(item).__name__} where a {kind.__name__} of an asset belongs")
    return quotes


@dataclass(slots=True)
class _Search:
    """The state of a search for prices at one block. Sources are named by their index in `sources`.

    Attributes:
        source_orders: Sources in the order in which they are queried, by asset class.
        pending: Relative prices whose parts have no price yet, in the order of their sources. The first is resolved
            first.
        offers: Prices of sources among which one is chosen, with their paths.
        refused_steps: Prices that were refused for being too far from the last price.
        queried: Sources that were queried for an asset, or that do not know it.
        distances: Number of steps from a requested asset to one of its parts.
        reasons: The last reason why an asset has no price.
        unread: Assets without a price because a feed could not be read.
    """

    sources: Sequence[PriceSource]
    block: Block
    last_prices: Mapping[Asset, Price]
    journal: list[SourceOutcome]
    rules: Rules = field(init=False)
    source_orders: Mapping[str, tuple[int, ...]] = field(init=False)
    priced: dict[Asset, Price] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    pending: dict[Asset, list[tuple[int, RelativePrice]]] = field(default_factory=dict)
    offers: dict[Asset, dict[int, tuple[Price, PricePath]]] = field(default_factory=dict)
    refused_steps: set[tuple[Asset, int]] = field(default_factory=set)
    queried: dict[Asset, set[int]] = field(default_factory=dict)
    distances: dict[Asset, int] = field(default_factory=dict)
    paths: dict[Asset, PricePath] = field(default_factory=dict)
    reasons: dict[Asset, str] = field(default_factory=dict)
    unread: set[Asset] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rules = rules_of(self.sources)
        self.source_orders = self.rules.source_orders(self.sources)

    def add_assets(self, assets: Iterable[Asset], distance: int) -> None:
        """Add assets to the search, with the parts they depend on; skip those more than `MAX_STEPS` away."""
        for asset in assets:
            if distance <= MAX_STEPS and distance < self.distances.get(asset, MAX_STEPS + 1):
                self.distances[asset] = distance
                self.queried.setdefault(asset, set())
                for _, relative in self.pending.get(asset, ()):
                    self.add_assets(relative.dependencies, distance + 1)

    def next_queries(self) -> dict[int, list[Asset]]:
        """Return the assets to query next by source, and mark them as queried; empty at the end of the search."""
        while True:
            self._resolve_pending()
            queries: dict[int, list[Asset]] = {}
            for asset in self.queried:
                for index in self._next_sources(asset) if self._is_open(asset) else ():
                    queries.setdefault(index, []).append(asset)
            if queries or not self.pending:
                for index, assets in queries.items():
                    for asset in assets:
                        self.queried[asset].add(index)
                return dict(sorted(queries.items()))
            self._refuse_cycles()

    def add_quotes(self, quotes: Quotes, index: int, assets: Sequence[Asset]) -> None:
        """Record the prices and refusals of a source for the assets that it was queried for.

        Quotes for other assets are ignored. An asset without a price or a refusal gets an outcome of None.
        """
        unanswered, source = set(assets), self.sources[index].name
        expected = frozenset(unanswered)
        for refusal in quotes.refused:
            if refusal.asset in expected:
                unanswered.discard(refusal.asset)
                self._record_refusal(refusal)
        prices: tuple[Price | RelativePrice, ...] = (*quotes.prices, *quotes.relative)
        for price in prices:
            if price.asset in expected:
                unanswered.discard(price.asset)
                self._add_quote(price, index)
        self.journal += (SourceOutcome(asset, source, None) for asset in assets if asset in unanswered)

    def _add_quote(self, price: Price | RelativePrice, index: int) -> None:
        """Store a source's quote as a price or, if relative, as pending; refuse it if it has a fault.

        Assets on which a relative price depends are added.
        """
        asset, source = price.asset, self.sources[index].name
        fault = type_fault(price, source)
        if isinstance(price, Price):
            fault = fault or price_fault(price, self.block) or self.rules.guards.depth_fault(price)
        else:
            fault = fault or observation_fault(price, self.block) or relative_fault(price)
        if fault:
            self.refuse([asset], source, fault)
        elif isinstance(price, Price):
            self._add_offer(price, index, DIRECT)
        elif index not in {*self.offers.get(asset, ()), *(pending for pending, _ in self.pending.get(asset, ()))}:
            self.journal.append(SourceOutcome(asset, source, price))
            self.pending.setdefault(asset, []).append((index, price))
            self.add_assets(price.dependencies, self.distances[asset] + 1)

    def refuse(self, assets: Iterable[Asset], source: str, reason: str, *, is_unread: bool = False) -> None:
        """Record a refusal by a source for each asset, and drop its pending relative prices."""
        for asset in assets:
            self._drop_pending(asset, source)
            self._record_refusal(Refusal(asset, source, reason, is_unread))

    def quotes(self, requested: Sequence[Asset]) -> Quotes:
        """Return the prices and refusals of the requested assets, without those of other parts."""
        requested_set = set(requested)
        refusals = tuple(refusal for refusal in self.refusals if refusal.asset in requested_set)
        return Quotes(tuple(self.priced[asset] for asset in requested if asset in self.priced), refusals)

    # --- choice of the next source ------------------------------------------------------------------------------------

    def _is_open(self, asset: Asset) -> bool:
        """Return True if an asset has no price and no pending price, and a source is left to query."""
        return asset not in self.priced and asset not in self.pending and bool(self._next_sources(asset))

    def _next_sources(self, asset: Asset) -> list[int]:
        """Return the sources to query next for an asset, and mark those that do not know it as queried.

        That is one source; or one and a second opinion, if both know the asset; or, if it is uncertain which sources
        know it, all consecutive ones that read only the chain. Empty if no source is left.
        """
        queried = self.queried[asset]
        indexes: list[int] = []
        is_known = False
        for index in self.source_orders[self.rules.class_of(asset)]:
            if index in queried:
                continue
            knows_asset = knows(self.sources[index], asset)
            if knows_asset is False:
                queried.add(index)
            elif not indexes:
                indexes, is_known = [index], bool(knows_asset)
                if is_fixed(self.sources[index]):
                    break
            elif is_known:
                if knows_asset:
                    return [*indexes, index]
            elif all(reads_chain_only(self.sources[i]) for i in (*indexes, index)):
                indexes.append(index)
            else:
                break
        return indexes

    # --- relative prices, and the choice between prices ---------------------------------------------------------------

    def _resolve_pending(self) -> None:
        """Price or refuse assets whose parts all have a price or cannot get one, until no asset changes."""
        has_changed = True
        while has_changed:
            has_changed = False
            for asset, ((index, relative), *_) in list(self.pending.items()):
                unpriced = [part for part in relative.dependencies if part not in self.priced]
                priceless = next((p for p in unpriced if p not in self.pending and not self._may_get_price(p)), None)
                if priceless is not None:
                    reason = f"{priceless}, which it is worth some of, has no price{self._reason(priceless)}"
                    self.refuse([asset], relative.source, reason, is_unread=priceless in self.unread)
                    self.choose_prices([asset])
                elif not unpriced:
                    self._resolve(relative, index)
                has_changed |= priceless is not None or not unpriced

    def _drop_pending(self, asset: Asset, source: str) -> None:
        """Remove the pending relative price of one source."""
        remaining = [pending for pending in self.pending.pop(asset, ()) if pending[1].source != source]
        if remaining:
            self.pending[asset] = remaining

    def _may_get_price(self, part: Asset) -> bool:
        return part in self.queried and self._is_open(part)

    def _reason(self, part: Asset) -> str:
        """Return the last reason why a part has no price, after a colon; empty if none was given."""
        if part not in self.queried:
            return f": it is more than {MAX_STEPS} assets away"
        return f": {self.reasons[part]}" if part in self.reasons else ""

    def _record_refusal(self, refusal: Refusal) -> None:
        """Store a refusal in the refusals and the journal, as the newest reason of its asset."""
        self.refusals.append(refusal)
        self.journal.append(SourceOutcome(refusal.asset, refusal.source, refusal))
        self.reasons[refusal.asset] = refusal.reason
        if refusal.is_unread:
            self.unread.add(refusal.asset)

    def _resolve(self, relative: RelativePrice, index: int) -> None:
        """Turn a relative price whose parts are all priced into an offer, or refuse it; then choose a price."""
        path = extend_path(relative, [self.paths[part] for part, _ in relative.parts])
        fault = path_fault(path)
        if not fault:
            price = to_usd(relative, self.priced)
            fault = price_fault(price, self.block) or self.rules.guards.depth_fault(price)
        if fault:
            self.refuse([relative.asset], relative.source, fault)
        else:
            self._drop_pending(relative.asset, relative.source)
            self._add_offer(price, index, path)
        self.choose_prices([relative.asset])

    def _add_offer(self, price: Price, index: int, path: PricePath) -> None:
        self.journal.append(SourceOutcome(price.asset, price.source, price))
        self.offers.setdefault(price.asset, {}).setdefault(index, (price, path))

    def choose_prices(self, assets: Iterable[Asset]) -> None:
        """Choose the first usable offer of each asset.

        Skip assets that have a price or a pending relative price.

        An offer is usable if it is close to the asset's last price, or if another offer agrees with it.
        """
        for asset in assets:
            if asset in self.offers and asset not in self.priced and asset not in self.pending:
                self._choose_price(asset)

    def _choose_price(self, asset: Asset) -> None:
        """Store the first offer in the sources' order that has no step, or that another offer confirms.

        Refused steps are recorded once. The asset stays without a price if no offer passes.
        """
        offers = self.offers[asset]
        order = [index for index in self.source_orders[self.rules.class_of(asset)] if index in offers]
        guards = self.rules.guards
        for index in order:
            price, path = offers[index]
            alternatives = tuple(offers[i][0] for i in order if i != index)
            fault = "" if is_fixed(self.sources[index]) else guards.step_fault(price, self.last_prices.get(asset))
            if not fault or any(guards.agree(price, alternative) for alternative in alternatives):
                self.priced[asset], self.paths[asset] = replace(price, alternatives=alternatives), path
                self.journal.append(SourceOutcome(asset, "", self.priced[asset]))
                return
            if (asset, index) not in self.refused_steps:
                self.refused_steps.add((asset, index))
                self._record_refusal(Refusal(asset, price.source, fault))

    def _refuse_cycles(self) -> None:
        """Refuse the pending prices that depend on themselves.

        Each pending price depends on another pending one.
        """
        next_assets = {
            asset: next(part for part in relative.dependencies if part in self.pending)
            for asset, ((_, relative), *_) in self.pending.items()
        }
        for cycle in _find_cycles(next_assets):
            path = " → ".join(map(str, (*cycle, cycle[0])))
            for asset in cycle:
                self.refuse([asset], self.pending[asset][0][1].source, f"its price would rest on itself: {path}")
                self.choose_prices([asset])


def _find_cycles(next_nodes: Mapping[Asset, Asset]) -> list[list[Asset]]:
    """Return the cycles of a graph in which each node has exactly one outgoing edge."""
    cycles: list[list[Asset]] = []
    visited: set[Asset] = set()
    for start in next_nodes:
        path: dict[Asset, int] = {}
        node = start
        while node not in visited:
            visited.add(node)
            path[node] = len(path)
            node = next_nodes[node]
        if node in path:
            cycles.append(list(path)[path[node] :])
    return cycles
