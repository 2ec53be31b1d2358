"""The nodes of a chain as one: connect, check their genesis block, fail over, read blocks.

A block can be reorganised until two thirds of the witnesses have built upon it: then it is solid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from chainfolio.adapters.tron.facts import Facts
from chainfolio.adapters.tron.forms import Header
from chainfolio.adapters.tron.refusals import error_in, rate_limit_in
from chainfolio.blocks import Block
from chainfolio.chain_results import Heads
from chainfolio.environment import Environment
from chainfolio.errors import NodeBehind, SourceError, WrongChain
from chainfolio.transport.exchange import HttpResponse
from chainfolio.transport.pool import Pool
from chainfolio.transport.rest import RestEndpoint
from chainfolio.transport.wire import typed
from chainfolio.untrusted import SkippedContracts

T = TypeVar("T")
HEADER, SOLID = "/wallet/getblock", "/walletsolidity/getblock"
MAX_ERROR_SIZE = 2_000  # bytes of an error that are searched for a limit


class TronNode(RestEndpoint):
    """The HTTP API at one address."""

    async def read(self, path: str, body: object, decode: Callable[[str, bytes], T]) -> T:
        """Return the decoded response of a path to a body (GET if it is None).

        Raises:
            SourceError: The response is an error, or cannot be decoded.
        """

        def checked(source: str, content: bytes) -> T:
            if (error := error_in(source, content)) is not None:
                raise error
            return decode(source, content)

        return await self.ask(path, checked, body)

    async def read_typed(self, path: str, body: object, kind: type[T]) -> T:
        """Return the response of a path as a value of a type, with the errors of `read`."""
        return await self.read(path, body, lambda source, content: typed(source, content, kind))

    async def header(self, path: str, height: int | None = None) -> Block:
        """Return the block at a height, or the newest.

        Raises:
            NodeBehind: The node has no such block yet.
            BadAnswer: Its id is not that of its header, or it has another height.
        """
        body = {"detail": False, **({} if height is None else {"id_or_num": str(height)})}
        response = await self.read(path, body, decode_header)
        if response is None:
            raise NodeBehind(self.name, f"does not have block {'' if height is None else height}".rstrip())
        return response.block(self.name, height)

    async def ensure_height(self, height: int) -> None:
        """Read the newest block, unless the node was at `height` before, and store it as the node's height.

        Raises:
            NodeBehind: The node is below `height`.
            SourceError: The block could not be read.
        """
        if self.health.height is None or self.health.height < height:
            newest = await self.header(HEADER)
            self.health.height, self.health.head_us = newest.height, newest.time_us
            if newest.height < height:
                raise NodeBehind(self.name, f"is at block {newest.height}, and block {height} is not there yet")

    def response_error(self, posted: HttpResponse) -> SourceError | None:
        """Return the error for an exceeded limit, else the error for the status, None if there is none."""
        if posted.status != 200 and (
            limit := rate_limit_in(self.name, posted.body[:MAX_ERROR_SIZE].decode("utf-8", "replace"))
        ):
            limit.retry_after_s = limit.retry_after_s if posted.retry_after_s is None else posted.retry_after_s
            return limit
        return super().response_error(posted)


def is_empty(content: bytes | memoryview) -> bool:
    """Return True if a response says that the requested thing does not exist: `{}` or `null`."""
    return len(content) < 16 and bytes(content).strip() in (b"{}", b"null")


def decode_header(source: str, content: bytes) -> Header | None:
    """Decode a block without its transactions; None if the node has no such block."""
    return None if is_empty(content) else typed(source, content, Header)


class Node(Pool[TronNode]):
    """The endpoints of one chain.

    Attributes:
        finalized: Height of the newest solid block so far, -1 before the first connection.
        skipped: Untrusted contracts that are not read for a number of blocks.
    """

    def __init__(
        self, facts: Facts, endpoints: Sequence[TronNode], environment: Environment, *, hedge: bool = True
    ) -> None:
        super().__init__(facts.key, endpoints, environment, hedge=hedge)
        self.facts, self.finalized, self.skipped = facts, -1, SkippedContracts()
        for endpoint in self.endpoints:
            endpoint.handshake = self._check_genesis

    async def _check_genesis(self, endpoint: RestEndpoint) -> None:
        """Raise WrongChain if an endpoint has another first block than the chain, or none."""
        header = await endpoint.ask_unchecked(HEADER, decode_header, {"id_or_num": "0", "detail": False})
        genesis = "none" if header is None else header.blockID
        if genesis != self.facts.genesis:
            raise WrongChain(
                endpoint.name,
                f"its first block is {genesis}, and that of {self.facts.key} is {self.facts.genesis}",
                remedy=f"give chains.{self.facts.key}.rpc an endpoint of the right chain",
            )

    async def connect(self) -> Heads:
        """Return the newest block and the height of the newest solid one; store the latter in `finalized`."""
        heads = await self.with_any(self._heads, kind="heads")
        self.finalized = max(self.finalized, heads.finalized)
        return Heads(heads.latest, self.finalized)

    async def _heads(self, endpoint: TronNode) -> Heads:
        """Read the newest block and the newest solid one, which is final, and store the endpoint's height."""
        await endpoint.ensure_handshake()
        latest, solid = await asyncio.gather(endpoint.header(HEADER), endpoint.header(SOLID))
        if solid.height > latest.height:  # a block was made between the two requests
            latest = solid
        endpoint.health.height, endpoint.health.head_us = latest.height, latest.time_us
        return Heads(latest, solid.height)

    async def block(self, height: int) -> Block:
        """Return the block at a height.

        Raises:
            SourceError: It could not be read; NodeBehind if no endpoint has it.
        """
        (block,) = await self.blocks([height])
        return block

    async def blocks(self, heights: Sequence[int]) -> list[Block]:
        """Return the blocks at some heights, in order, from one endpoint.

        Raises:
            SourceError: One could not be read; NodeBehind if no endpoint has it.
        """

        async def read(endpoint: TronNode) -> list[Block]:
            return list(await asyncio.gather(*(endpoint.header(HEADER, height) for height in heights)))

        return await self.with_any(read, kind="headers") if heights else []
