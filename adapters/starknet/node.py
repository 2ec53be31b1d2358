"""A chain's nodes as one: connect, check that they are who they should be, fail over, read blocks.

A block that its sequencer has accepted may still go until it is accepted on Ethereum, together with a thousand others.
"""

from __future__ import annotations

from collections.abc import Sequence

from chainfolio.adapters.starknet.facts import ON_L1, Facts
from chainfolio.adapters.starknet.felts import felt, packed, short_text
from chainfolio.adapters.starknet.forms import Header
from chainfolio.blocks import Block
from chainfolio.chains import Heads
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, NodeBehind, SourceError, WrongChain
from chainfolio.transport.endpoint import Answer, Endpoint, Handshake
from chainfolio.transport.pool import Pool
from chainfolio.transport.wire import Request, typed
from chainfolio.untrusted import Skipped

BY_TAG = "l1_tag"  # whether an endpoint knows the block that Ethereum accepted last by a name
ACCEPTED_ON_L1 = "ACCEPTED_ON_L1"


def result(answer: Answer) -> bytes:
    """An answer; its refusal is raised."""
    if isinstance(answer, SourceError):
        raise answer
    return answer


def header_at(at: int | str) -> Request:
    """The request for a block, by its height or its tag."""
    return Request("starknet_getBlockWithTxHashes", ({"block_number": at} if isinstance(at, int) else at,))


class Node(Pool[Endpoint]):
    """All endpoints of one chain. `finalized` is the newest block that was seen to be final, `skipped` are untrusted
    contracts that are not asked for a while."""

    def __init__(
        self, facts: Facts, endpoints: Sequence[Endpoint], environment: Environment, *, hedge: bool = True
    ) -> None:
        super().__init__(facts.key, endpoints, environment, hedge=hedge)
        self.facts, self.finalized, self.skipped = facts, -1, Skipped()
        handshake = Handshake([Request("starknet_chainId")], self._same_chain)
        for endpoint in self.endpoints:
            endpoint.handshake = handshake

    def _same_chain(self, endpoint: Endpoint, answers: Sequence[Answer]) -> None:
        found = felt(endpoint.name, typed(endpoint.name, result(answers[0]), str))
        if found != packed(self.facts.network):
            raise WrongChain(
                endpoint.name,
                f"serves {short_text(found) or 'another chain'}, and {self.facts.key} is {self.facts.network}",
                remedy=f"give chains.{self.facts.key}.rpc an endpoint of the right chain",
            )
        endpoint.checked = True

    async def connect(self) -> Heads:
        """Where the chain stands: its newest block, and the newest that cannot change any more."""
        heads = await self.with_any(self._heads, kind="heads")
        self.finalized = max(self.finalized, heads.finalized)
        return Heads(heads.latest, self.finalized)

    async def _heads(self, endpoint: Endpoint) -> Heads:
        finality = self.facts.finality
        tagged = finality == ON_L1 and endpoint.capabilities.get(BY_TAG, 1) > 0
        asked = [header_at("latest"), *([header_at("l1_accepted")] if tagged else ())]
        first, *others = await endpoint.ask(asked)
        latest = self.header_of(endpoint.name, first)
        endpoint.health.height, endpoint.health.head_us = latest.height, latest.time_us
        if isinstance(finality, int):
            return Heads(latest, latest.height - finality)
        if not tagged:
            return Heads(latest, await self._accepted(endpoint, latest))
        (accepted,) = others
        if isinstance(accepted, NodeBehind):  # none is yet
            return Heads(latest, -1)
        if isinstance(accepted, BadAnswer):  # the name is younger than the node
            endpoint.learn(BY_TAG, 0)
            return Heads(latest, await self._accepted(endpoint, latest))
        return Heads(latest, min(self.header_of(endpoint.name, accepted).height, latest.height))

    async def _accepted(self, endpoint: Endpoint, latest: Block) -> int:
        """The newest block that Ethereum accepted, where no tag names it: looked for below the head in steps that
        double, then between the last two of them."""
        low, high, step = self.finalized, latest.height + 1, 1
        while (probe := latest.height + 1 - step) > low:
            if await self._is_accepted(endpoint, probe):
                low = probe
                break
            high, step = probe, step * 2
        while high - low > 1:
            middle = (low + high) // 2
            if await self._is_accepted(endpoint, middle):
                low = middle
            else:
                high = middle
        return low

    async def _is_accepted(self, endpoint: Endpoint, height: int) -> bool:
        header = typed(endpoint.name, await endpoint.ask_one(header_at(height), height=height), Header)
        return header.status == ACCEPTED_ON_L1

    def header_of(self, source: str, answer: Answer, height: int | None = None) -> Block:
        """A block from what was answered."""
        return typed(source, result(answer), Header).block(source, height)

    async def block(self, height: int) -> Block:
        """One block."""
        (block,) = await self.blocks([height])
        return block

    async def blocks(self, heights: Sequence[int]) -> list[Block]:
        """Some blocks, in order, in one batch."""

        async def read(endpoint: Endpoint) -> list[Block]:
            answers = await endpoint.ask([header_at(height) for height in heights], height=max(heights))
            return [
                self.header_of(endpoint.name, answer, height) for height, answer in zip(heights, answers, strict=True)
            ]

        return await self.with_any(read, kind="headers") if heights else []
