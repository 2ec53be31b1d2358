"""Prices at past blocks: many blocks are priced in as few requests as one.

Prices at final blocks cannot change, so they are stored for ever. A price belongs to its own block; if the node no
longer has the state of that block, an issue says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Issue, Price
from chainfolio.engine.stored_prices.steps import BlockSearch, Steps
from chainfolio.errors import BadAnswer, SourceError
from chainfolio.plans import Rounds, Unknown, run_batched
from chainfolio.positions import MAX_READS, MAX_ROUNDS
from chainfolio.price_sources import PricePlan, PriceSource, Quotes
from chainfolio.pricing.http_reads import HTTP_READS
from chainfolio.pricing.rules import reads_chain_only, rules_of
from chainfolio.pricing.source_chain import query_sources
from chainfolio.reads import Read

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.engine.stored_prices.store import PriceStore

MAX_BLOCKS: Final = 20_000  # in the cache; the oldest entries are evicted first
MAX_ITERATIONS: Final = 16  # of pricing blocks again because a price before them was held back; usually one
Located = tuple[Block, Read[object]]
Prices = dict[int, dict[Asset, Price]]  # by height


@dataclass(slots=True)
class PastPrices:
    """Past prices of one chain; assets without a price are absent."""

    chain: Chain
    sources: Sequence[PriceSource]
    store: PriceStore | None = None
    _cache: dict[int, dict[Asset, Price | None]] = field(default_factory=dict)

    async def prices(self, assets_by_block: Mapping[Block, Iterable[Asset]]) -> tuple[Prices, list[Issue]]:
        """Return the prices of assets by height, and issues about blocks that could not be read.

        Each height has an entry; assets without a price are absent. A block may lack its hash. Prices of final blocks
        are stored. It takes about one request if all hashes are known, else two; none the second time.
        """
        # What is cached is copied first: `_read` and parallel requests may evict it before the answer is built.
        known = {block.height: self._cached(block, assets) for block, assets in assets_by_block.items()}
        unknown = {block: sorted(set(assets) - known[block.height].keys()) for block, assets in assets_by_block.items()}
        if self.store is not None:
            for height, stored in (await asyncio.to_thread(self._stored, self.store, unknown)).items():
                known[height] |= stored
                self._add_to_cache(height, stored)
        missing = {
            block: [asset for asset in assets if asset not in known[block.height]] for block, assets in unknown.items()
        }
        fresh, issues = await self._read({block: assets for block, assets in missing.items() if assets})
        prices = {}
        for block, assets in assets_by_block.items():
            block_prices = {**known[block.height], **fresh.get(block.height, {})}
            prices[block.height] = {each: price for each in assets if (price := block_prices.get(each)) is not None}
        return prices, issues

    async def stored(self, assets_by_block: Mapping[Block, Iterable[Asset]], final: int) -> tuple[Prices, list[Issue]]:
        """Return stored and cached prices by height without asking a node, and an issue if some are missing.

        Each height has an entry; assets without a price are absent.

        Args:
            final: The height up to which blocks are final: stored prices above it are not used.
        """
        blocks = [block for block in assets_by_block if block.height <= final]
        store = self.store
        stored: Prices = {} if store is None else await asyncio.to_thread(store.at_each, blocks)
        prices: Prices = {}
        missing = 0
        for block, assets in assets_by_block.items():
            block_prices = {**self._cache.get(block.height, {}), **stored.get(block.height, {})}
            known_prices = {each: price for each in set(assets) if (price := block_prices.get(each)) is not None}
            missing += len(set(assets) - block_prices.keys())
            prices[block.height] = known_prices
        reason = f"{missing} prices of these blocks are not stored, and the node does not answer"
        return prices, [Issue(self.chain.key, "prices", reason, makes_partial=False)] if missing else []

    async def _read(
        self, unknown: Mapping[Block, Sequence[Asset]]
    ) -> tuple[dict[int, dict[Asset, Price | None]], list[Issue]]:
        """Read prices by height, None for assets without one, and return an issue if states were unavailable.

        Answers are stored and cached, except None if a vendor did not answer.
        """
        if not unknown:
            return {}, []
        node = _Node(self.chain)
        prices_by_height: dict[int, dict[Asset, Price | None]] = {}
        for block, search in (await self._search(unknown, node)).items():
            assets, prices = unknown[block], {price.asset: price for price in search.prices}
            if self._is_storable(block, node):
                if self.store is not None:
                    prices = await asyncio.to_thread(self.store.add, block, search.prices, final=True)
                    refused = search.refused(assets, self._chain_sources)
                    await asyncio.to_thread(self.store.add_refused, block.height, refused)
                # An asset without a price is asked for again if a vendor did not answer.
                answered_assets = [asset for asset in assets if asset in prices or block.height not in node.unanswered]
                self._add_to_cache(block.height, {asset: prices.get(asset) for asset in answered_assets})
            prices_by_height[block.height] = {asset: prices.get(asset) for asset in assets}
        return prices_by_height, [self._issue(node.unavailable)] if node.unavailable else []

    async def _search(self, unknown: Mapping[Block, Sequence[Asset]], node: _Node) -> dict[Block, BlockSearch]:
        """Return the search at each block, as if the blocks had been requested in their order.

        A price is compared with the last one before it. Blocks that are not settled after MAX_ITERATIONS have no
        prices and no outcomes.
        """
        guards = rules_of(self.sources).guards
        stored: list[tuple[int, Price]] = []
        if self.store is not None:
            stored = await asyncio.to_thread(self.store.before_each, list(unknown), guards.step_days)
        steps = Steps(stored, guards, lambda block: self.store is not None and self._is_storable(block, node))
        for _ in range(MAX_ITERATIONS):
            repeated = steps.unsettled(unknown)
            if not repeated:
                break
            steps.searches |= {block: BlockSearch(last) for block, last in repeated.items()}
            plans = {
                str(block.height): _at(
                    block, query_sources(self.sources, unknown[block], block, last, steps.searches[block].outcomes)
                )
                for block, last in repeated.items()
            }
            reports = await run_batched(plans, node.answers, max_rounds=MAX_ROUNDS, max_reads=MAX_READS)
            for block in repeated:
                steps.searches[block].prices = (reports[str(block.height)].result or Quotes()).prices
        unsettled = steps.unsettled(unknown)
        return {block: BlockSearch({}) if block in unsettled else steps.searches[block] for block in unknown}

    @property
    def _chain_sources(self) -> frozenset[str]:
        """The names of the sources that read nothing but the chain."""
        others = {each.name for each in self.sources if not reads_chain_only(each)}
        return frozenset(each.name for each in self.sources) - others

    def _is_storable(self, block: Block, node: _Node) -> bool:
        """Return True if prices at the block are stored: it is final, and the node has its state."""
        return block.height not in node.unavailable and self.chain.is_final(block.height)

    def _cached(self, block: Block, assets: Iterable[Asset]) -> dict[Asset, Price | None]:
        """Return the cached prices of assets at a block, None for assets without one; others are absent."""
        prices = self._cache.get(block.height, {})
        return {asset: prices[asset] for asset in assets if asset in prices}

    def _stored(
        self, store: PriceStore, unknown: Mapping[Block, Sequence[Asset]]
    ) -> dict[int, dict[Asset, Price | None]]:
        """Return the stored prices of final blocks by height, None for assets whose refusal is stored.

        A height may have prices of further assets. Assets about which nothing is stored are absent.
        """
        final = [block for block, assets in unknown.items() if assets and self.chain.is_final(block.height)]
        stored: dict[int, dict[Asset, Price | None]] = {
            height: dict(prices) for height, prices in store.at_each(final).items() if prices
        }
        missing = {
            block.height: [each for each in unknown[block] if each not in stored.get(block.height, {})]
            for block in final
        }
        for height, refused in store.refused({height: assets for height, assets in missing.items() if assets}).items():
            stored.setdefault(height, {}).update(dict.fromkeys(refused))
        return stored

    def _add_to_cache(self, height: int, prices: Mapping[Asset, Price | None]) -> None:
        self._cache.setdefault(height, {}).update(prices)
        while len(self._cache) > MAX_BLOCKS:
            del self._cache[next(iter(self._cache))]

    def _issue(self, unavailable: Mapping[int, str]) -> Issue:
        first, last = min(unavailable), max(unavailable)
        blocks = f"block {first}" if len(unavailable) == 1 else f"{len(unavailable)} blocks from {first} to {last}"
        reason = f"prices at {blocks} could not be read: {unavailable[first]}"
        return Issue(self.chain.key, "prices", reason, makes_partial=False)


@dataclass(slots=True)
class _Node:
    """Answers reads at blocks.

    Attributes:
        unavailable: The reasons for heights whose state could not be read.
        unanswered: Heights at which a price vendor did not answer; a later request may succeed.
    """

    chain: Chain
    unavailable: dict[int, str] = field(default_factory=dict)
    unanswered: set[int] = field(default_factory=set)

    async def answers(self, reads: Sequence[Located]) -> list[object]:
        """Return results in order, Unknown with the reason at heights that could not be read."""
        by_block: dict[Block, list[Any]] = {}
        for block, read in reads:
            by_block.setdefault(block, []).append(read)
        results = await self._read(by_block)
        return [
            results[request] if request in results else Unknown(self.unavailable[request[0].height])
            for request in reads
        ]

    async def _read(self, by_block: Mapping[Block, Sequence[Read[object]]]) -> dict[Located, object]:
        """Return the results of reads; blocks that fail are read again until none succeeds.

        No error is raised: heights that could not be read have no results, and their reason is in `unavailable`.
        """
        results: dict[Located, object] = {}
        try:
            pending = await self._with_hashes([block for block in by_block if block.height not in self.unavailable])
            while pending:
                responses = await self.chain.answer_each(
                    [(pinned, by_block[block]) for block, pinned in pending.items()]
                )
                failed = {}
                for (block, pinned), answers in zip(pending.items(), responses, strict=True):
                    if isinstance(answers, SourceError):
                        failed[block] = pinned  # by another node, until none answers any block
                    else:
                        results |= {(block, read): value for read, value in zip(by_block[block], answers, strict=True)}
                if len(failed) == len(pending):
                    raise next(answers for answers in responses if isinstance(answers, SourceError))
                pending = failed
        except SourceError as error:
            answered = {block for block, _ in results}
            self.unavailable |= {block.height: error.reason for block in by_block if block not in answered}
        for (block, read), value in results.items():
            if isinstance(value, Unknown) and value.cause == "read":
                if isinstance(read, HTTP_READS):
                    self.unanswered.add(block.height)  # a vendor failed: other sources can still price the block
                else:
                    self.unavailable[block.height] = value.reason
        return results

    async def _with_hashes(self, blocks: Sequence[Block]) -> dict[Block, Block]:
        """Return the blocks with their hashes, by the blocks given; missing ones are read in one request.

        Raises:
            BadAnswer: A block does not exist, or has another time than in the index.
        """
        unhashed = [block for block in blocks if not block.hash]
        read = await self.chain.blocks([block.height for block in unhashed]) if unhashed else []
        headers_by_height = {block.height: block for block in read}
        headers = {block: headers_by_height.get(block.height) for block in unhashed}
        for block, header in headers.items():
            if header is None or header.time_us != block.time_us:
                raise BadAnswer(self.chain.key, f"block {block.height} is another one than in the index")
        return {block: headers_by_height[block.height] if block in headers else block for block in blocks}


def _at(block: Block, plan: PricePlan) -> Rounds[Located, object, Quotes]:
    """Wrap a plan so that each of its reads names the block."""
    answers: Sequence[object] | None = None
    while True:
        try:
            reads = next(plan) if answers is None else plan.send(answers)
        except StopIteration as stop:
            result: Quotes = stop.value
            return result
        answers = yield [(block, read) for read in reads]
