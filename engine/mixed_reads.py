"""A chain whose reads may be HTTP reads, or of a block's parent: of one round, each goes where it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from chainfolio.blocks import Block
from chainfolio.errors import HistoryUnavailable, SourceError
from chainfolio.plans import Unknown
from chainfolio.reads import AtParent
from pricing.http_reads import OVER_HTTP, BatchedRead, Http, HttpGet

if TYPE_CHECKING:
    from chainfolio.chains import Chain

Located = tuple[Block, Sequence[Any]]
NO_PARENT = "the parent of the block is not known"


@dataclass(frozen=True, slots=True)
class Mixed:
    """The chain, in all but how it answers reads, and in what it is an instance of: from Python 3.12 on, `isinstance`
    sees no members that are passed on."""

    chain: Chain
    http: Http

    def __getattr__(self, name: str) -> Any:
        return getattr(self.chain, name)

    async def answer(self, reads: Sequence[Any], block: Block) -> list[Any]:
        """The results of some reads, of the chain at the block."""
        if not any(isinstance(read, (*OVER_HTTP, AtParent)) for read in reads):
            return await self.chain.answer(reads, block)
        (given,) = await self.answer_each([(block, reads)])
        if isinstance(given, SourceError):
            raise given
        return given

    async def answer_each(self, asked: Sequence[Located]) -> list[list[Any] | SourceError]:
        """The results of some reads at each of several blocks; an error where the chain cannot be read at one."""
        others = list(dict.fromkeys(read for _, reads in asked for read in reads if isinstance(read, OVER_HTTP)))
        bodies = asyncio.ensure_future(self.http.answers(others))
        try:
            levels = [_levels(reads) for _, reads in asked]
            located = await self._located([block for block, _ in asked], levels)
            given = iter(await self._states([part for parts in located for part in parts], asked))
            texts = dict(zip(others, await bodies, strict=True))
        finally:
            bodies.cancel()  # where the chain failed; one that is done stays done
        return [
            _together(reads, [next(given) for _ in parts], texts)
            for (_, reads), parts in zip(asked, located, strict=True)
        ]  # fmt: skip

    async def _located(self, blocks: Sequence[Block], levels: Sequence[list[list[Any]]]) -> list[list[Located]]:
        """What is read at each of some blocks, at their parents, and so on: nothing where no such block is known."""
        located: list[list[Located]] = [[(block, own[0])] for block, own in zip(blocks, levels, strict=True)]
        places: list[Block | None] = list(blocks)
        for depth in range(1, max(map(len, levels), default=1)):
            wanted = [place for place, own in zip(places, levels, strict=True) if place and len(own) > depth]
            parents = await self._parents(wanted)
            places = [parents.get(place) if place else None for place in places]
            for parts, place, own in zip(located, places, levels, strict=True):
                if len(own) > depth:
                    parts.append((place, own[depth]) if place else (parts[0][0], []))
        return located

    async def _parents(self, blocks: Sequence[Block]) -> dict[Block, Block]:
        """The parents of blocks, as far as there are any: their hashes are read where they are not known."""
        bare = {block.height for block in blocks if block.height and not block.parent}
        read = {block.height: block for block in await self.chain.blocks(sorted(bare))} if bare else {}
        known = {block: block.parent or _parent_hash(block, read.get(block.height)) for block in blocks if block.height}
        return {block: Block(block.height - 1, parent, "", block.time_us) for block, parent in known.items() if parent}

    async def _states(self, located: Sequence[Located], asked: Sequence[Located]) -> list[list[Any] | SourceError]:
        """The results of reads of the chain: nothing is asked of a block of which nothing is read. An error in the
        place of a block whose state is gone; raised where it is gone of all, and one of them was asked for."""
        wanted = [(block, reads) for block, reads in located if reads]
        try:
            if len(wanted) == 1:
                given: Iterator[list[Any] | SourceError] = iter([await self.chain.answer(wanted[0][1], wanted[0][0])])
            else:
                given = iter(await self.chain.answer_each(wanted) if wanted else [])
        except HistoryUnavailable as lost:
            if {block for block, _ in wanted} & {block for block, _ in asked}:
                raise
            given = iter([lost] * len(wanted))
        return [next(given) if reads else [] for _, reads in located]


def _unfolded(read: Any) -> tuple[Any, int]:
    """A read, and how many blocks before the one that is asked for it is made."""
    depth = 0
    while isinstance(read, AtParent):
        read, depth = read.read, depth + 1
    return read, depth


def _levels(reads: Sequence[Any]) -> list[list[Any]]:
    """The reads of the chain by how many blocks before they are made: those of the block itself first."""
    levels: list[list[Any]] = [[]]
    for read in reads:
        if not isinstance(read, OVER_HTTP):
            inner, depth = _unfolded(read)
            levels += [[] for _ in range(depth + 1 - len(levels))]
            levels[depth].append(inner)
    return levels


def _parent_hash(block: Block, header: Block | None) -> str:
    """What a header says of a block's parent, if it is the header of that block."""
    return header.parent if header is not None and header.hash == block.hash else ""


def _together(
    reads: Sequence[Any], levels: Sequence[list[Any] | SourceError], texts: dict[HttpGet | BatchedRead, Any]
) -> list[Any] | SourceError:
    """All results of a block, in the order of its reads. A parent whose state is gone is no reason to give nothing."""
    own = levels[0]
    if isinstance(own, SourceError):
        return own
    lost = [each.reason if isinstance(each, SourceError) else NO_PARENT for each in levels]
    left = [iter([] if isinstance(each, SourceError) else each) for each in levels]

    def result(read: Any) -> Any:
        if isinstance(read, OVER_HTTP):
            return texts[read]
        _, depth = _unfolded(read)
        return next(left[depth], Unknown(lost[depth], "gone")) if depth else next(left[0])

    return [result(read) for read in reads]


def mixed(chain: Chain, http: Http) -> Chain:
    """A chain that answers HTTP reads and reads of a block's parent beside its own."""
    return cast("Chain", Mixed(chain, http))
