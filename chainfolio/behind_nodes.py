"""Members that all chains behind nodes share, for `chainfolio.chains.Chain`.

The protocol is structural: a chain may inherit these members, or define others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from chainfolio.blocks import Block
from chainfolio.chain_results import EndpointHealth, Heads
from chainfolio.errors import SourceError
from chainfolio.reads import Read, Value


class Endpoint(Protocol):
    """One node."""

    def health_report(self, best_height: int | None) -> EndpointHealth:
        """Return the endpoint's state, compared with the newest block that any endpoint claimed."""


class Nodes(Protocol):
    """The nodes of a chain as one. `finalized` is the newest height that was seen to be final."""

    finalized: int

    @property
    def requests(self) -> int:
        """HTTP requests so far."""

    @property
    def best_height(self) -> int | None:
        """Height of the newest block that any endpoint claimed; None before the first claim."""

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """The nodes one by one, in the order of the settings."""

    async def connect(self) -> Heads:
        """Check the endpoints and return the newest block and the newest final height."""

    async def block(self, height: int) -> Block:
        """Read the block at a height; NodeBehind if the chain has not reached it, NoBlock if it was skipped."""

    async def blocks(self, heights: Sequence[int]) -> list[Block]:
        """Read the blocks at some heights, in order and in few requests; heights without a block are left out."""

    async def close(self) -> None:
        """Close the connections."""


N = TypeVar("N", bound=Nodes)


class NodeBackedChain(ABC, Generic[N]):
    """Base class of a chain whose members forward to its nodes."""

    node: N

    @property
    def requests(self) -> int:
        """HTTP requests so far."""
        return self.node.requests

    async def close(self) -> None:
        """Close all connections."""
        await self.node.close()

    async def probe(self, first: int) -> None:
        """Do nothing: every node serves all datasets."""

    async def heads(self) -> Heads:
        """Read the newest block and the newest final height; the endpoint is checked on the way."""
        return await self.node.connect()

    def is_final(self, height: int) -> bool:
        """Return True if `height` is final according to the newest final height that was read."""
        return height <= self.node.finalized

    async def block(self, height: int) -> Block:
        """Read the block at a height; NodeBehind if the chain has not reached it, NoBlock if it was skipped."""
        return await self.node.block(height)

    async def blocks(self, heights: Sequence[int]) -> list[Block]:
        """Read the blocks at some heights, in order; heights without a block are left out."""
        return await self.node.blocks(heights)

    def health(self) -> list[EndpointHealth]:
        """Return the state of each endpoint."""
        best = self.node.best_height
        return [endpoint.health_report(best) for endpoint in self.node.endpoints]

    @abstractmethod
    async def answer(self, reads: Sequence[Read[Value]], block: Block) -> list[Value]:
        """Return the results of reads at a block, as `chainfolio.chains.Chain.answer`."""

    async def answer_each(
        self, requests: Sequence[tuple[Block, Sequence[Read[Value]]]]
    ) -> list[list[Value] | SourceError]:
        """Return the results of reads at several blocks, block by block; a SourceError for a failed one."""
        results: list[list[Value] | SourceError] = []
        for block, reads in requests:
            try:
                results.append(await self.answer(reads, block))
            except SourceError as error:
                results.append(error)
        return results
