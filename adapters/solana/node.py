"""A chain's nodes as one: connect, check that they are who they should be, fail over, read blocks.

A height is a slot. A slot may have no block; the parent of the next block says whether it was skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from adapters.solana.facts import Facts
from chainfolio.blocks import Block
from chainfolio.chains import Heads
from chainfolio.errors import BadAnswer, HistoryUnavailable, NoBlock, NodeBehind, SourceError, WrongChain
from chainfolio.seams import Seams
from transport.endpoint import Answer, Endpoint, Handshake
from transport.pool import Pool
from transport.wire import Request, typed

MAX_SLOT = 2**62
MAX_TIME_S = 2**37
# What is asked of a block beside its transactions. The newest that is final is confirmed, too, whoever is asked.
HEADER = {
    "transactionDetails": "none", "rewards": False, "maxSupportedTransactionVersion": 0, "commitment": "confirmed",
}  # fmt: skip


class Header(msgspec.Struct):
    """A block as `getBlock` gives it, without its transactions."""

    blockhash: str
    previousBlockhash: str
    parentSlot: int
    blockTime: int | None = None

    def block(self, source: str, slot: int) -> Block:
        """As everything else knows a block."""
        if not self.blockhash:
            raise BadAnswer(source, f"block {slot} has no hash")
        if self.blockTime is None or not 0 <= self.blockTime < MAX_TIME_S:
            raise HistoryUnavailable(source, slot, "the node does not know its time")
        return Block(slot, self.blockhash, self.previousBlockhash, self.blockTime * 1_000_000)


def result(answer: Answer) -> bytes:
    """An answer; its refusal is raised."""
    if isinstance(answer, SourceError):
        raise answer
    return answer


class Node(Pool[Endpoint]):
    """All endpoints of one chain. `finalized` is the newest slot that was seen to be final."""

    def __init__(
        self, facts: Facts, endpoints: Sequence[Endpoint], seams: Seams, *, commitment: str, hedge: bool = True
    ) -> None:
        super().__init__(facts.key, endpoints, seams, hedge=hedge)
        self.facts, self.commitment, self.finalized = facts, commitment, -1
        self.kept: dict[Any, Any] = {}  # what final blocks say, by the read: it never changes
        self.names: dict[str, tuple[str, str]] = {}  # what compressed NFTs were called when they were listed last
        handshake = Handshake([Request("getGenesisHash")], self._same_chain)
        for endpoint in self.endpoints:
            endpoint.handshake = handshake

    def _same_chain(self, endpoint: Endpoint, answers: Sequence[Answer]) -> None:
        found = typed(endpoint.name, result(answers[0]), str)
        if found != self.facts.genesis:
            raise WrongChain(
                endpoint.name, f"serves another chain than {self.facts.key}: its genesis is another one",
                remedy=f"give chains.{self.facts.key}.rpc an endpoint of the right chain",
            )  # fmt: skip
        endpoint.checked = True

    async def connect(self) -> Heads:
        """Where the chain stands: the newest slot of the commitment, and the newest that is final."""
        heads = await self.with_any(self._heads, kind="heads")
        self.finalized = max(self.finalized, heads.finalized)
        return heads

    async def _heads(self, endpoint: Endpoint) -> Heads:
        levels = dict.fromkeys((self.commitment, "finalized"))
        asked = [Request("getSlot", ({"commitment": level},)) for level in levels]
        slots = [slot_of(endpoint.name, result(answer)) for answer in await endpoint.ask(asked)]
        latest = await self.header_at(endpoint, slots[0])
        endpoint.health.height, endpoint.health.head_us = latest.height, latest.time_us
        return Heads(latest, min(slots[-1], latest.height))

    async def header_at(self, endpoint: Endpoint, slot: int) -> Block:
        """The block at a slot, by one endpoint."""
        (answer,) = await endpoint.ask([Request("getBlock", (slot, HEADER))], height=slot)
        return self.header_of(endpoint.name, slot, answer)

    def header_of(self, source: str, slot: int, answer: Answer) -> Block:
        """A block from what was answered. A null says only that the node does not have it."""
        header = typed(source, result(answer), Header | None)  # type: ignore[arg-type]
        if header is None:
            raise self.absent(source, slot)
        return header.block(source, slot)

    def absent(self, source: str, slot: int) -> SourceError:
        """What it means that a node has nothing at a slot and does not say why."""
        if slot > self.finalized:
            return NodeBehind(source, f"does not have block {slot}")
        return HistoryUnavailable(source, slot, "the node has nothing at that slot")

    async def first_served(self) -> int:
        """The oldest slot whose block a node has, by its own word."""
        return await self.with_any(first_block, kind="headers")

    async def block(self, slot: int) -> Block:
        """One block; NoBlock where the slot was skipped."""
        return await self.with_any(lambda endpoint: self.header_at(endpoint, slot), kind="headers")

    async def blocks(self, slots: Sequence[int]) -> list[Block]:
        """The blocks that there are at some slots, in order."""

        async def read(endpoint: Endpoint) -> list[Block]:
            asked = [Request("getBlock", (slot, HEADER)) for slot in slots]
            answers = await ask_each(endpoint, asked, height=slots[0])
            found = []
            for slot, answer in zip(slots, answers, strict=True):
                if not isinstance(answer, NoBlock):
                    found.append(self.header_of(endpoint.name, slot, answer))
            return found

        return await self.with_any(read, kind="headers") if slots else []


async def ask_each(endpoint: Endpoint, requests: Sequence[Request], *, height: int = 0) -> list[Answer]:
    """As `ask`; where an endpoint takes one request at a time, all are on their way together."""
    if endpoint.capabilities.get("max_batch", len(requests)) > 1 or not requests:
        return await endpoint.ask(requests, height=height)
    answers = await asyncio.gather(*(endpoint.ask([request], height=height) for request in requests))
    return [answer for (answer,) in answers]


async def first_block(endpoint: Endpoint) -> int:
    """The oldest slot whose block an endpoint has."""
    return slot_of(endpoint.name, await endpoint.one(Request("getFirstAvailableBlock")))


def slot_of(source: str, content: bytes) -> int:
    """A slot, strictly."""
    slot: Any = typed(source, content, int)
    if not 0 <= slot < MAX_SLOT:
        raise BadAnswer(source, "a number that is no slot")
    return int(slot)
