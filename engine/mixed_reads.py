"""A chain whose reads may be HTTP reads, or of a block's parent: of one round, each goes where it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from chainfolio.blocks import Block
from chainfolio.errors import SourceError
from chainfolio.plans import Unknown
from chainfolio.reads import AtParent
from pricing.http_reads import OVER_HTTP, BatchedRead, Http, HttpGet

if TYPE_CHECKING:
    from chainfolio.chains import Chain

Located = tuple[Block, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Mixed:
    """The chain, in all but how it answers reads."""

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
            parents = await self._parents([block for block, reads in asked if any(map(_of_parent, reads))])
            located = [part for block, reads in asked for part in _located(block, reads, parents.get(block))]
            given = iter(await self._states(located))
            texts = dict(zip(others, await bodies, strict=True))
        finally:
            bodies.cancel()  # where the chain failed; one that is done stays done
        return [_together(reads, next(given), next(given), texts) for _, reads in asked]

    async def _parents(self, blocks: Sequence[Block]) -> dict[Block, Block]:
        """The parents of blocks, as far as there are any: their hashes are read where they are not known."""
        bare = {block.height for block in blocks if block.height and not block.parent}
        read = {block.height: block for block in await self.chain.blocks(sorted(bare))} if bare else {}
        known = {block: block.parent or _parent_hash(block, read.get(block.height)) for block in blocks if block.height}
        return {block: Block(block.height - 1, parent, "", block.time_us) for block, parent in known.items() if parent}

    async def _states(self, located: Sequence[Located]) -> list[list[Any] | SourceError]:
        """The results of reads of the chain: nothing is asked of a block of which nothing is read."""
        wanted = [(block, reads) for block, reads in located if reads]
        if len(wanted) == 1:
            given: Iterator[list[Any] | SourceError] = iter([await self.chain.answer(wanted[0][1], wanted[0][0])])
        else:
            given = iter(await self.chain.answer_each(wanted) if wanted else [])
        return [next(given) if reads else [] for _, reads in located]


def _of_parent(read: Any) -> bool:
    return isinstance(read, AtParent)


def _parent_hash(block: Block, header: Block | None) -> str:
    """What a header says of a block's parent, if it is the header of that block."""
    return header.parent if header is not None and header.hash == block.hash else ""


def _located(block: Block, reads: Sequence[Any], parent: Block | None) -> tuple[Located, Located]:
    """What is read of the chain at a block, and at its parent."""
    before = [read.read for read in reads if _of_parent(read)] if parent else []
    return (block, [read for read in reads if not isinstance(read, (*OVER_HTTP, AtParent))]), (parent or block, before)


def _together(
    reads: Sequence[Any],
    own: list[Any] | SourceError,
    before: list[Any] | SourceError,
    texts: dict[HttpGet | BatchedRead, Any],
) -> list[Any] | SourceError:
    """All results of a block, in the order of its reads. A parent whose state is gone is no reason to give nothing."""
    if isinstance(own, SourceError):
        return own
    own_left, why = (
        iter(own),
        before.reason if isinstance(before, SourceError) else "the parent of the block is not known",
    )
    before_left = iter([] if isinstance(before, SourceError) else before)

    def result(read: Any) -> Any:
        if isinstance(read, OVER_HTTP):
            return texts[read]
        return next(before_left, Unknown(why, "absent")) if _of_parent(read) else next(own_left)

    return [result(read) for read in reads]


def mixed(chain: Chain, http: Http) -> Chain:
    """A chain that answers HTTP reads and reads of a block's parent beside its own."""
    return cast("Chain", Mixed(chain, http))
