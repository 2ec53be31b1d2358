"""What assets were worth at past blocks: the source chain at many blocks at once, in as few requests as at one.

What is read at a final block is kept: it cannot change, and a price of it is kept for ever. A price is of its own block
or there is none; where the node has forgotten that block, that is said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Issue, Price
from chainfolio.engine.prices.steps import Heard, Steps
from chainfolio.errors import BadAnswer, SourceError
from chainfolio.plans import Plan, Unknown, run_batched
from chainfolio.positions import MAX_READS, MAX_ROUNDS
from chainfolio.pricing.http_reads import HTTP_READS
from chainfolio.pricing.quotes import PriceSource, Quotes
from chainfolio.pricing.rules import rules_of
from chainfolio.pricing.source_chain import query_sources

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.engine.prices.store import PriceStore

MAX_BLOCKS: Final = 20_000  # that are kept: those asked for first go first
MAX_TURNS: Final = 16  # in which blocks are asked again, because a price before them was held: usually one
Located = tuple[Block, Any]
Prices = dict[int, dict[Asset, Price]]  # by height


@dataclass(slots=True)
class Past:
    """The past prices of one chain. What it gives is `Prices`: what has none is absent."""

    chain: Chain
    sources: Sequence[PriceSource]
    store: PriceStore | None = None
    _kept: dict[int, dict[Asset, Price | None]] = field(default_factory=dict)

    async def prices(self, wanted: Mapping[Block, Iterable[Asset]]) -> tuple[Prices, list[Issue]]:
        """The prices of some assets at some blocks (without a hash where that is not known), and what could not be
        read. About one request where all hashes are known, two where not, none the second time."""
        unknown = {
            block: sorted(set(assets) - self._kept.get(block.height, {}).keys()) for block, assets in wanted.items()
        }
        if self.store is not None:
            unknown = await asyncio.to_thread(self._recalled, self.store, unknown)
        fresh, issues = await self._read({block: open_ for block, open_ in unknown.items() if open_})
        found = {}
        for block, assets in wanted.items():
            known = {**self._kept.get(block.height, {}), **fresh.get(block.height, {})}
            found[block.height] = {each: price for each in assets if (price := known.get(each)) is not None}
        return found, issues

    async def stored(self, wanted: Mapping[Block, Iterable[Asset]], final: int) -> tuple[Prices, list[Issue]]:
        """Return the stored prices of some assets at some blocks without a node, and an issue if some are missing.

        Args:
            final: The height up to which blocks are final: prices of blocks above it are not used.
        """
        blocks = [block for block in wanted if block.height <= final]
        store = self.store
        kept: Prices = {} if store is None else await asyncio.to_thread(store.at_each, blocks)
        prices: Prices = {}
        missing = 0
        for block, assets in wanted.items():
            known = {**self._kept.get(block.height, {}), **kept.get(block.height, {})}
            found = {each: price for each in set(assets) if (price := known.get(each)) is not None}
            missing += len(set(assets) - known.keys())
            prices[block.height] = found
        reason = f"{missing} prices of these blocks are not stored, and the node does not answer"
        return prices, [Issue(self.chain.key, "prices", reason, makes_partial=False)] if missing else []

    async def _read(
        self, unknown: Mapping[Block, Sequence[Asset]]
    ) -> tuple[dict[int, dict[Asset, Price | None]], list[Issue]]:
        if not unknown:
            return {}, []
        node = _Node(self.chain)
        found: dict[int, dict[Asset, Price | None]] = {}
        for block, quoted in (await self._searched(unknown, node)).items():
            assets, prices = unknown[block], {price.asset: price for price in quoted}
            if self._stays(block, node):
                if self.store is not None:
                    prices = await asyncio.to_thread(self.store.keep, block, quoted, final=True)
                # Who did not answer may the next time: what has no price for want of an answer is asked for again.
                sure = [asset for asset in assets if asset in prices or block.height not in node.unanswered]
                self._keep(block.height, {asset: prices.get(asset) for asset in sure})
            found[block.height] = {asset: prices.get(asset) for asset in assets}
        return found, [self._issue(node.lost)] if node.lost else []

    async def _searched(self, unknown: Mapping[Block, Sequence[Asset]], node: _Node) -> dict[Block, Sequence[Price]]:
        """What the sources say at each block, as if they had been asked in the order of the blocks."""
        guards = rules_of(self.sources).guards
        kept: list[tuple[int, Price]] = []
        if self.store is not None:
            kept = await asyncio.to_thread(self.store.before_each, list(unknown), guards.step_days)
        steps = Steps(kept, guards, lambda block: self.store is not None and self._stays(block, node))
        for _ in range(MAX_TURNS):
            repeated = steps.open(unknown)
            if not repeated:
                break
            steps.heard |= {block: Heard(last) for block, last in repeated.items()}
            plans = {
                str(block.height): _at(
                    block, query_sources(self.sources, unknown[block], block, last, steps.heard[block].said)
                )
                for block, last in repeated.items()
            }
            reports = await run_batched(plans, node.answers, max_rounds=MAX_ROUNDS, max_reads=MAX_READS)
            for block in repeated:
                steps.heard[block].prices = (reports[str(block.height)].result or Quotes()).prices
        unsettled = steps.open(unknown)
        return {block: () if block in unsettled else steps.heard[block].prices for block in unknown}

    def _stays(self, block: Block, node: _Node) -> bool:
        """Whether what was said of a block is kept: it cannot change, and the node has the block."""
        return block.height not in node.lost and self.chain.is_final(block.height)

    def _recalled(self, store: PriceStore, unknown: Mapping[Block, Sequence[Asset]]) -> dict[Block, list[Asset]]:
        """What is still unknown, once the prices are remembered that are kept."""
        final = [block for block, assets in unknown.items() if assets and self.chain.is_final(block.height)]
        for height, known in store.at_each(final).items():
            if known:
                self._keep(height, known)
        return {
            block: [each for each in assets if each not in self._kept.get(block.height, {})]
            for block, assets in unknown.items()
        }

    def _keep(self, height: int, prices: Mapping[Asset, Price | None]) -> None:
        self._kept.setdefault(height, {}).update(prices)
        while len(self._kept) > MAX_BLOCKS:
            del self._kept[next(iter(self._kept))]

    def _issue(self, lost: Mapping[int, str]) -> Issue:
        first, last = min(lost), max(lost)
        where = f"block {first}" if len(lost) == 1 else f"{len(lost)} blocks from {first} to {last}"
        reason = f"prices at {where} could not be read: {lost[first]}"
        return Issue(self.chain.key, "prices", reason, makes_partial=False)


@dataclass(slots=True)
class _Node:
    """Answers reads at blocks; `lost` are the heights at which it could not, and why; at those
    `unanswered` a vendor did not answer, who may the next time."""

    chain: Chain
    lost: dict[int, str] = field(default_factory=dict)
    unanswered: set[int] = field(default_factory=set)

    async def answers(self, reads: Sequence[Located]) -> list[Any]:
        """The answers in order, Unknown where a block is lost."""
        by_block: dict[Block, list[Any]] = {}
        for block, read in reads:
            by_block.setdefault(block, []).append(read)
        said = await self._said(by_block)
        return [said[ask] if ask in said else Unknown(self.lost[ask[0].height]) for ask in reads]

    async def _said(self, by_block: Mapping[Block, Sequence[Any]]) -> dict[Located, Any]:
        said: dict[Located, Any] = {}
        try:
            left = await self._hashed([block for block in by_block if block.height not in self.lost])
            while left:
                given = await self.chain.answer_each([(pinned, by_block[block]) for block, pinned in left.items()])
                behind = {}
                for (block, pinned), answers in zip(left.items(), given, strict=True):
                    if isinstance(answers, SourceError):
                        behind[block] = pinned  # another node is asked, until none answers any block
                    else:
                        said |= {(block, read): value for read, value in zip(by_block[block], answers, strict=True)}
                if len(behind) == len(left):
                    raise next(answers for answers in given if isinstance(answers, SourceError))
                left = behind
        except SourceError as error:
            answered = {block for block, _ in said}
            self.lost |= {block.height: error.reason for block in by_block if block not in answered}
        for (block, read), value in said.items():
            if isinstance(value, Unknown) and value.cause == "read":
                if isinstance(read, HTTP_READS):
                    self.unanswered.add(block.height)  # by a vendor: the chain has the block, and other sources go on
                else:
                    self.lost[block.height] = value.reason
        return said

    async def _hashed(self, blocks: Sequence[Block]) -> dict[Block, Block]:
        """The blocks with their hashes: those that are not known are read, in one request."""
        bare = [block for block in blocks if not block.hash]
        read = await self.chain.blocks([block.height for block in bare]) if bare else []
        found = {block.height: block for block in read}
        headers = {block: found.get(block.height) for block in bare}
        for block, header in headers.items():
            if header is None or header.time_us != block.time_us:
                raise BadAnswer(self.chain.key, f"block {block.height} is another one than in the index")
        return {block: found[block.height] if block in headers else block for block in blocks}


def _at(block: Block, plan: Plan[Any, Any, Quotes]) -> Plan[Located, Any, Quotes]:
    """A plan whose reads say at which block."""
    answers: Sequence[Any] | None = None
    while True:
        try:
            reads = next(plan) if answers is None else plan.send(answers)
        except StopIteration as stop:
            result: Quotes = stop.value
            return result
        answers = yield [(block, ask) for ask in reads]
