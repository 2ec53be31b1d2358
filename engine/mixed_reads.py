"""A chain whose reads may be HTTP reads, too: of one round, each goes where it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pricing.http_reads import Http, HttpGet

if TYPE_CHECKING:
    from chainfolio.blocks import Block
    from chainfolio.chains import Chain
    from chainfolio.errors import SourceError


@dataclass(frozen=True, slots=True)
class Mixed:
    """The chain, in all but how it answers reads."""

    chain: Chain
    http: Http

    def __getattr__(self, name: str) -> Any:
        return getattr(self.chain, name)

    async def answer(self, reads: Sequence[Any], block: Block) -> list[Any]:
        """The results of some reads, of the chain at the block."""
        own = [read for read in reads if not isinstance(read, HttpGet)]
        others = [read for read in reads if isinstance(read, HttpGet)]
        if not others:
            return await self.chain.answer(reads, block)
        bodies = asyncio.ensure_future(self.http.answers(others))
        try:
            results = iter(await self.chain.answer(own, block) if own else [])
            texts = iter(await bodies)
        finally:
            bodies.cancel()  # where the chain failed; one that is done stays done
        return [next(texts) if isinstance(read, HttpGet) else next(results) for read in reads]

    async def answer_each(self, asked: Sequence[tuple[Block, Sequence[Any]]]) -> list[list[Any] | SourceError]:
        """The results of some reads at each of several blocks; an error where the chain cannot be read at one."""
        others = list(dict.fromkeys(read for _, reads in asked for read in reads if isinstance(read, HttpGet)))
        if not others:
            return await self.chain.answer_each(asked)
        own = [(block, [read for read in reads if not isinstance(read, HttpGet)]) for block, reads in asked]
        bodies = dict(zip(others, await self.http.answers(others), strict=True))
        given = iter(await self.chain.answer_each([each for each in own if each[1]]))
        found: list[list[Any] | SourceError] = []
        for (_, reads), (_, chains) in zip(asked, own, strict=True):
            results = next(given) if chains else []
            if isinstance(results, list):
                left = iter(results)
                results = [bodies[read] if isinstance(read, HttpGet) else next(left) for read in reads]
            found.append(results)
        return found


def mixed(chain: Chain, http: Http) -> Chain:
    """A chain that answers HTTP reads beside its own."""
    return cast("Chain", Mixed(chain, http))
