"""A chain's nodes as one: connect, check that they are who they should be, fail over, read blocks.

A block that its witness has made may still go until two thirds of the witnesses have built upon it: then it is solid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from adapters.tron.facts import Facts
from adapters.tron.forms import Header
from adapters.tron.refusals import error_in, limit_in
from chainfolio.blocks import Block
from chainfolio.chains import Heads
from chainfolio.errors import NodeBehind, SourceError, WrongChain
from chainfolio.seams import Seams
from chainfolio.untrusted import Skipped
from transport.exchange import Posted
from transport.pool import Pool
from transport.rest import RestEndpoint
from transport.wire import typed

T = TypeVar("T")
HEADER, SOLID = "/wallet/getblock", "/walletsolidity/getblock"
SAID = 2_000  # characters of a refusal that are looked at


class TronNode(RestEndpoint):
    """The HTTP API at one address."""

    async def read(self, path: str, body: Any, decode: Callable[[str, bytes], T]) -> T:
        """What a path answers to a body; its own errors are raised."""

        def checked(source: str, content: bytes) -> T:
            if (error := error_in(source, content)) is not None:
                raise error
            return decode(source, content)

        return await self.ask(path, checked, body)

    async def told(self, path: str, body: Any, kind: type[T]) -> T:
        """The same as a typed value."""
        return await self.read(path, body, lambda source, content: typed(source, content, kind))

    async def header(self, path: str, height: int | None = None) -> Block:
        """A block, or the newest. NodeBehind where there is none so far."""
        body = {"detail": False, **({} if height is None else {"id_or_num": str(height)})}
        found = await self.read(path, body, header)
        if found is None:
            raise NodeBehind(self.name, f"does not have block {'' if height is None else height}".rstrip())
        return found.block(self.name, height)

    def refused(self, posted: Posted) -> SourceError | None:
        """A limit that was passed, whatever its status; else the error that the status is."""
        if posted.status != 200 and (limit := limit_in(self.name, posted.body[:SAID].decode("utf-8", "replace"))):
            limit.retry_after_s = limit.retry_after_s if posted.retry_after_s is None else posted.retry_after_s
            return limit
        return super().refused(posted)


def is_empty(content: bytes | memoryview) -> bool:
    """Whether an answer says that there is nothing of that name."""
    return len(content) < 16 and bytes(content).strip() in (b"{}", b"null")


def header(source: str, content: bytes) -> Header | None:
    """A block without its transactions; None where the node has none."""
    return None if is_empty(content) else typed(source, content, Header)


class Node(Pool[TronNode]):
    """All endpoints of one chain. `finalized` is the newest block that was seen to be solid, `skipped` are untrusted
    contracts that are not read for a while."""

    def __init__(self, facts: Facts, endpoints: Sequence[TronNode], seams: Seams, *, hedge: bool = True) -> None:
        super().__init__(facts.key, endpoints, seams, hedge=hedge)
        self.facts, self.finalized, self.skipped = facts, -1, Skipped()
        for endpoint in self.endpoints:
            endpoint.handshake = self._same_chain

    async def _same_chain(self, endpoint: RestEndpoint) -> None:
        body = {"id_or_num": "0", "detail": False}
        found = await endpoint.put(HEADER, lambda source, content: header(source, content), body)
        said = "none" if found is None else found.blockID
        if said != self.facts.genesis:
            raise WrongChain(
                endpoint.name, f"its first block is {said}, and that of {self.facts.key} is {self.facts.genesis}",
                remedy=f"give chains.{self.facts.key}.rpc an endpoint of the right chain",
            )  # fmt: skip

    async def connect(self) -> Heads:
        """Where the chain stands: its newest block, and the newest that cannot change any more."""
        heads = await self.with_any(self._heads, kind="heads")
        self.finalized = max(self.finalized, heads.finalized)
        return Heads(heads.latest, self.finalized)

    async def _heads(self, endpoint: TronNode) -> Heads:
        await endpoint.greet()
        latest, solid = await asyncio.gather(endpoint.header(HEADER), endpoint.header(SOLID))
        if solid.height > latest.height:  # one more was made in between
            latest = solid
        endpoint.health.height, endpoint.health.head_us = latest.height, latest.time_us
        return Heads(latest, solid.height)

    async def block(self, height: int) -> Block:
        """One block."""
        (block,) = await self.blocks([height])
        return block

    async def blocks(self, heights: Sequence[int]) -> list[Block]:
        """Some blocks, in order."""

        async def read(endpoint: TronNode) -> list[Block]:
            return list(await asyncio.gather(*(endpoint.header(HEADER, height) for height in heights)))

        return await self.with_any(read, kind="headers") if heights else []
