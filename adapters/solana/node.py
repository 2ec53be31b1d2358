"""The endpoints of a chain as one node: genesis check, heads, blocks, failover.

A height is a slot. A slot may have no block; the next block's parent tells whether it was skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from chainfolio.adapters.solana.facts import Facts
from chainfolio.blocks import Block
from chainfolio.chain_results import Heads
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, HistoryUnavailable, NoBlock, NodeBehind, SourceError, WrongChain
from chainfolio.transport.endpoint import Answer, Endpoint, Handshake
from chainfolio.transport.pool import Pool
from chainfolio.transport.wire import Request, typed

if TYPE_CHECKING:
    from chainfolio.adapters.solana.reads import Reward, RewardRead
    from chainfolio.plans import Unknown

MAX_SLOT = 2**62
MAX_TIME_S = 2**37
FIRST_SLOTS = 32  # of a chain, which are final after as many
# Options of a block without its transactions. Commitment "confirmed" also covers final blocks on every endpoint.
HEADER = {
    "transactionDetails": "none",
    "rewards": False,
    "maxSupportedTransactionVersion": 0,
    "commitment": "confirmed",
}


class Header(msgspec.Struct):
    """A block as `getBlock` gives it, without its transactions."""

    blockhash: str
    previousBlockhash: str
    parentSlot: int
    blockTime: int | None = None

    def block(self, source: str, slot: int) -> Block:
        """Return the block with this header.

        Raises:
            BadAnswer: It has no hash.
            HistoryUnavailable: It has no time.
        """
        if not self.blockhash:
            raise BadAnswer(source, f"block {slot} has no hash")
        if self.blockTime is None or not 0 <= self.blockTime < MAX_TIME_S:
            raise HistoryUnavailable(source, slot, "the node does not know its time")
        return Block(slot, self.blockhash, self.previousBlockhash, self.blockTime * 1_000_000)


def result(answer: Answer) -> bytes:
    """Return an answer, or raise it if it is an error."""
    if isinstance(answer, SourceError):
        raise answer
    return answer


class Node(Pool[Endpoint]):
    """The endpoints of one chain.

    Attributes:
        finalized: The newest slot known to be final; -1 before `connect`.
        reward_cache: Rewards in final blocks, which never change, by read.
        nft_names: Symbol and name of compressed NFTs, as they were last listed, by id.
    """

    def __init__(
        self,
        facts: Facts,
        endpoints: Sequence[Endpoint],
        environment: Environment,
        *,
        commitment: str,
        hedge: bool = True,
    ) -> None:
        """Prepare the endpoints, which are checked by the hash of the genesis; no request is sent."""
        super().__init__(facts.key, endpoints, environment, hedge=hedge)
        self.facts, self.commitment, self.finalized = facts, commitment, -1
        self.reward_cache: dict[RewardRead, Reward | Unknown | None] = {}
        self.nft_names: dict[str, tuple[str, str]] = {}
        handshake = Handshake([Request("getGenesisHash")], self._same_chain)
        for endpoint in self.endpoints:
            endpoint.handshake = handshake

    def _same_chain(self, endpoint: Endpoint, answers: Sequence[Answer]) -> None:
        """Raise WrongChain if the endpoint has another genesis, else mark it as checked."""
        genesis = typed(endpoint.name, result(answers[0]), str)
        if genesis != self.facts.genesis:
            raise WrongChain(
                endpoint.name,
                f"serves another chain than {self.facts.key}: its genesis is another one",
                remedy=f"give chains.{self.facts.key}.rpc an endpoint of the right chain",
            )
        endpoint.checked = True

    async def connect(self) -> Heads:
        """Return the heads of the chain: the newest block of the commitment, and the newest final slot."""
        heads = await self.with_any(self._heads, kind="heads")
        self.finalized = max(self.finalized, heads.finalized)
        return heads

    async def _heads(self, endpoint: Endpoint) -> Heads:
        """Read the newest block of the commitment and the newest final slot, and store the endpoint's height."""
        levels = dict.fromkeys((self.commitment, "finalized"))
        requests = [Request("getSlot", ({"commitment": level},)) for level in levels]
        slots = [slot_of(endpoint.name, result(answer)) for answer in await endpoint.ask(requests)]
        latest = await self.header_at(endpoint, slots[0])
        endpoint.health.height, endpoint.health.head_us = latest.height, latest.time_us
        return Heads(latest, min(slots[-1], latest.height))

    async def header_at(self, endpoint: Endpoint, slot: int) -> Block:
        """Read the block at a slot from one endpoint; NoBlock if it was skipped, else as `absent`."""
        (answer,) = await endpoint.ask([Request("getBlock", (slot, HEADER))], height=slot)
        return self.header_of(endpoint.name, slot, answer)

    def header_of(self, source: str, slot: int, answer: Answer) -> Block:
        """Return the block in an answer. A null raises the error of `absent`."""
        header = typed(source, result(answer), Header | None)  # type: ignore[arg-type]
        if header is None:
            raise self.absent(source, slot)
        return header.block(source, slot)

    def absent(self, source: str, slot: int) -> SourceError:
        """Return the error for a slot without a block and without a reason.

        NodeBehind if the slot is newer than the last final one, else HistoryUnavailable.
        """
        if slot > self.finalized:
            return NodeBehind(source, f"does not have block {slot}")
        return HistoryUnavailable(source, slot, "the node has nothing at that slot")

    async def first_served(self) -> int:
        """Return the oldest slot whose block a node has, as the node states it."""
        return await self.with_any(first_block, kind="headers")

    async def block(self, slot: int) -> Block:
        """Read one block.

        Raises:
            NoBlock: The slot was skipped.
            NodeBehind: The slot is newer than the node's newest.
            HistoryUnavailable: The node no longer has it, or does not know its time.
        """
        return await self.with_any(lambda endpoint: self.header_at(endpoint, slot), kind="headers")

    async def blocks(self, slots: Sequence[int]) -> list[Block]:
        """Read the blocks at some slots, in order. Skipped slots are left out, and have no error."""

        async def read(endpoint: Endpoint) -> list[Block]:
            requests = [Request("getBlock", (slot, HEADER)) for slot in slots]
            answers = await ask_each(endpoint, requests, height=slots[0])
            blocks = []
            for slot, answer in zip(slots, answers, strict=True):
                if not isinstance(answer, NoBlock):
                    blocks.append(self.header_of(endpoint.name, slot, answer))
            return blocks

        return await self.with_any(read, kind="headers") if slots else []


async def ask_each(endpoint: Endpoint, requests: Sequence[Request], *, height: int = 0) -> list[Answer]:
    """Send requests and return an answer or error for each.

    They are sent as a batch, or at the same time if the endpoint accepts no batches.
    """
    if endpoint.capabilities.get("max_batch", len(requests)) > 1 or not requests:
        return await endpoint.ask(requests, height=height)
    answers = await asyncio.gather(*(endpoint.ask([request], height=height) for request in requests))
    return [answer for (answer,) in answers]


async def first_block(endpoint: Endpoint) -> int:
    """Return the oldest slot whose block an endpoint has."""
    return slot_of(endpoint.name, await endpoint.ask_one(Request("getFirstAvailableBlock")))


async def pruned_until(endpoint: Endpoint, first: int) -> int:
    """Return the oldest slot whose block an endpoint has, if it lacks older ones from `first` on; else 0.

    The first slots of a chain do not count: nodes drop many more at once, and new chains may name a final slot.
    """
    first_served = await first_block(endpoint)
    return first_served if first_served > max(first, FIRST_SLOTS) else 0


def slot_of(source: str, content: bytes) -> int:
    """Return a slot from its JSON.

    Raises:
        BadAnswer: It is no slot.
    """
    slot = typed(source, content, int)
    if not 0 <= slot < MAX_SLOT:
        raise BadAnswer(source, "a number that is no slot")
    return slot
