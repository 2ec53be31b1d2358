"""A chain that also answers HTTP reads and reads at a block's parents, mixed in one round."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from chainfolio.blocks import Block
from chainfolio.errors import HistoryUnavailable, SourceError
from chainfolio.plans import Unknown
from chainfolio.pricing.http_reads import HTTP_READS, BatchedRead, Http, HttpGet
from chainfolio.reads import AtParent, Read

if TYPE_CHECKING:
    from chainfolio.chains import Chain

Located = tuple[Block, Sequence[Read[object]]]
NO_PARENT = "the parent of the block is not known"


@dataclass(frozen=True, slots=True)
class MixedReadsChain:
    """Delegates to a chain, and sends HTTP reads and reads at parent blocks where they are answered."""

    chain: Chain
    http: Http

    def __getattr__(self, name: str) -> Any:
        return getattr(self.chain, name)

    async def answer(self, reads: Sequence[Read[object]], block: Block) -> list[object]:
        """Return the results of reads at a block.

        Raises:
          SourceError: The chain could not be read at the block.
        """
        if not any(isinstance(read, (*HTTP_READS, AtParent)) for read in reads):
            return await self.chain.answer(reads, block)
        (results,) = await self.answer_each([(block, reads)])
        if isinstance(results, SourceError):
            raise results
        return results

    async def answer_each(self, requests: Sequence[Located]) -> list[list[object] | SourceError]:
        """Return the results of reads at each block, or an error if the chain could not be read at that block.

        An HTTP read that fails gives Unknown, and so does a read at a parent whose state is gone. Equal HTTP reads are
        sent once.

        Raises:
            HistoryUnavailable: The state of all blocks is gone.
            SourceError: The chain could not be read at all.
        """
        http_reads = list(
            dict.fromkeys(read for _, reads in requests for read in reads if isinstance(read, HTTP_READS))
        )
        bodies = asyncio.ensure_future(self.http.read(http_reads))
        try:
            levels = [_levels(reads) for _, reads in requests]
            located = await self._located([block for block, _ in requests], levels)
            results = iter(await self._states([part for parts in located for part in parts], requests))
            http_results = dict(zip(http_reads, await bodies, strict=True))
        finally:
            bodies.cancel()  # where the chain failed; one that is done stays done
        return [
            _merge(reads, [next(results) for _ in parts], http_results)
            for (_, reads), parts in zip(requests, located, strict=True)
        ]

    async def _located(self, blocks: Sequence[Block], levels: Sequence[list[list[Any]]]) -> list[list[Located]]:
        """Return the reads at each block, its parent, grandparent and so on; none for an unknown ancestor."""
        located: list[list[Located]] = [
            [(block, block_levels[0])] for block, block_levels in zip(blocks, levels, strict=True)
        ]
        ancestors: list[Block | None] = list(blocks)
        for depth in range(1, max(map(len, levels), default=1)):
            blocks_with_parents = [
                ancestor
                for ancestor, block_levels in zip(ancestors, levels, strict=True)
                if ancestor and len(block_levels) > depth
            ]
            parents = await self._parents(blocks_with_parents)
            ancestors = [parents.get(ancestor) if ancestor else None for ancestor in ancestors]
            for parts, ancestor, block_levels in zip(located, ancestors, levels, strict=True):
                if len(block_levels) > depth:
                    parts.append((ancestor, block_levels[depth]) if ancestor else (parts[0][0], []))
        return located

    async def _parents(self, blocks: Sequence[Block]) -> dict[Block, Block]:
        """Return the known parents of blocks; block 0 and blocks whose parent is not found are absent.

        Headers are read for blocks whose parent hash is missing. A parent has the time of its child.
        """
        bare = {block.height for block in blocks if block.height and not block.parent}
        read = {block.height: block for block in await self.chain.blocks(sorted(bare))} if bare else {}
        hashes = {
            block: block.parent or _parent_hash(block, read.get(block.height)) for block in blocks if block.height
        }
        return {block: Block(block.height - 1, parent, "", block.time_us) for block, parent in hashes.items() if parent}

    async def _states(
        self, located: Sequence[Located], requests: Sequence[Located]
    ) -> list[list[object] | SourceError]:
        """Return the results of chain reads, an error for a block whose state is gone, [] for no reads.

        Raises:
          HistoryUnavailable: All state is gone, and one of the requested blocks is among it.
        """
        nonempty = [(block, reads) for block, reads in located if reads]
        try:
            if len(nonempty) == 1:
                results: Iterator[list[object] | SourceError] = iter(
                    [await self.chain.answer(nonempty[0][1], nonempty[0][0])]
                )
            else:
                results = iter(await self.chain.answer_each(nonempty) if nonempty else [])
        except HistoryUnavailable as lost:
            if {block for block, _ in nonempty} & {block for block, _ in requests}:
                raise
            results = iter([lost] * len(nonempty))
        return [next(results) if reads else [] for _, reads in located]


def _unwrap(read: Read[object]) -> tuple[Read[object], int]:
    """Return the inner read and the number of blocks before the requested one."""
    depth = 0
    while isinstance(read, AtParent):
        read, depth = read.read, depth + 1
    return read, depth


def _levels(reads: Sequence[Read[object]]) -> list[list[Read[object]]]:
    """Return the chain's reads by depth: those of the block itself first, then its parent's, unwrapped.

    HTTP reads are left out. There is at least one level; levels without reads are empty.
    """
    levels: list[list[Read[object]]] = [[]]
    for read in reads:
        if not isinstance(read, HTTP_READS):
            inner, depth = _unwrap(read)
            levels += [[] for _ in range(depth + 1 - len(levels))]
            levels[depth].append(inner)
    return levels


def _parent_hash(block: Block, header: Block | None) -> str:
    """Return the parent hash of a header, "" if there is no header or if it belongs to another block."""
    return header.parent if header is not None and header.hash == block.hash else ""


def _merge(
    reads: Sequence[Read[object]],
    levels: Sequence[list[object] | SourceError],
    http_results: Mapping[HttpGet | BatchedRead, object],
) -> list[object] | SourceError:
    """Return all results of a block in the order of its reads.

    Reads at a parent whose state is gone give Unknown; an error of the block itself is returned as it is.
    """
    block_results = levels[0]
    if isinstance(block_results, SourceError):
        return block_results
    reasons = [each.reason if isinstance(each, SourceError) else NO_PARENT for each in levels]
    remaining = [iter([] if isinstance(each, SourceError) else each) for each in levels]

    def result(read: Read[object]) -> object:
        if isinstance(read, HTTP_READS):
            return http_results[read]
        _, depth = _unwrap(read)
        return next(remaining[depth], Unknown(reasons[depth], "gone")) if depth else next(remaining[0])

    return [result(read) for read in reads]


def with_mixed_reads(chain: Chain, http: Http) -> Chain:
    """Return a chain that also answers HTTP reads and reads at a block's parents."""
    return cast("Chain", MixedReadsChain(chain, http))
