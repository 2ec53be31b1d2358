"""What is the same of every chain behind its nodes, whatever its kind: for `chainfolio.chains.Chain`, which is
structural. A chain may have these members from here, or its own in their place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from chainfolio.blocks import Block
from chainfolio.chains import EndpointHealth, Heads
from chainfolio.errors import SourceError


class Endpoint(Protocol):
    """One of the nodes."""

    def shown_health(self, best_height: int | None) -> EndpointHealth:
        """How well it does, beside the newest block that any claimed."""


class Nodes(Protocol):
    """The nodes of a chain as one. `finalized` is the newest height that was seen to be final."""

    finalized: int

    @property
    def requests(self) -> int: ...

    @property
    def best_height(self) -> int | None: ...

    @property
    def endpoints(self) -> Sequence[Endpoint]: ...

    async def connect(self) -> Heads:
        """Where the chain stands; the endpoint is checked on the way."""

    async def block(self, height: int) -> Block: ...

    async def blocks(self, heights: Sequence[int]) -> list[Block]: ...

    async def close(self) -> None: ...


N = TypeVar("N", bound=Nodes)


class BehindNodes(ABC, Generic[N]):
    """The members of a chain that only pass on what its nodes say."""

    node: N

    @property
    def requests(self) -> int:
        """HTTP requests so far."""
        return self.node.requests

    async def close(self) -> None:
        """Let go of connections."""
        await self.node.close()

    async def probe(self, first: int) -> None:
        """Every node serves all datasets; how far back it does shows when it is asked."""

    async def heads(self) -> Heads:
        """The newest block and the newest final height; the endpoint is checked on the way."""
        return await self.node.connect()

    def is_final(self, height: int) -> bool:
        """Whether what lies at a height cannot change any more, by what was seen so far."""
        return height <= self.node.finalized

    async def block(self, height: int) -> Block:
        """The block at a height."""
        return await self.node.block(height)

    async def blocks(self, heights: Sequence[int]) -> list[Block]:
        """The blocks at some heights; those that have none are left out."""
        return await self.node.blocks(heights)

    def health(self) -> list[EndpointHealth]:
        """How well each endpoint does."""
        best = self.node.best_height
        return [endpoint.shown_health(best) for endpoint in self.node.endpoints]

    @abstractmethod
    async def answer(self, reads: Sequence[Any], block: Block) -> list[Any]:
        """The results of some reads at a block: as `chainfolio.chains.Chain` has it."""

    async def answer_each(self, asked: Sequence[tuple[Block, Sequence[Any]]]) -> list[list[Any] | SourceError]:
        """The same for several blocks, one after the other; an error in the place of one that cannot be read."""
        results: list[list[Any] | SourceError] = []
        for block, reads in asked:
            try:
                results.append(await self.answer(reads, block))
            except SourceError as error:
                results.append(error)
        return results
