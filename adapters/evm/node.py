"""A chain's nodes as one: connect, check that they are who they should be, fail over, read blocks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from adapters.evm.endpoint import Answer, Endpoint
from adapters.evm.facts import Facts
from adapters.evm.wire import Request, data, quantity, typed
from chainfolio.blocks import Block
from chainfolio.errors import (
    BadAnswer,
    HistoryUnavailable,
    NodeBehind,
    SourceError,
    Unavailable,
    Unsupported,
    WrongChain,
)
from chainfolio.seams import Seams

T = TypeVar("T")
BEHIND_TRIES = 4
BEHIND_WAIT_S = 0.5


class Header(msgspec.Struct, gc=False):
    """A block as `eth_getBlockByNumber` without bodies gives it; only what is used."""

    number: str
    hash: str
    parentHash: str
    timestamp: str
    logsBloom: str
    gasUsed: str
    gasLimit: str
    miner: str = "0x" + "0" * 40
    baseFeePerGas: str | None = None
    transactions: list[msgspec.Raw] = []

    @property
    def height(self) -> int:
        """The height as a number."""
        return int(self.number, 16)

    @property
    def time_s(self) -> int:
        """Unix seconds."""
        return int(self.timestamp, 16)

    def block(self) -> Block:
        """As everything else knows a block."""
        return Block(self.height, self.hash, self.parentHash, self.time_s * 1_000_000)


@dataclass(frozen=True, slots=True)
class Heads:
    """Where the chain stands: its newest block and the newest that will not change any more."""

    latest: Block
    finalized: int


def hex_of(number: int) -> str:
    """A height as nodes want it."""
    return hex(number)


def checked(source: str, header: Header | None, height: int | None = None) -> Header:
    """A header whose fields can be meant, at the height that was asked for."""
    if header is None:
        raise NodeBehind(source, f"does not have block {height}" if height is not None else "has no such block")
    number = quantity(source, header.number, bits=62)
    quantity(source, header.timestamp, bits=40)
    if height is not None and number != height:
        raise BadAnswer(source, f"block {number} in answer to block {height}")
    if [len(data(source, text)) for text in (header.hash, header.parentHash, header.logsBloom)] != [32, 32, 256]:
        raise BadAnswer(source, f"block {number} with a hash or bloom of the wrong size")
    header.hash, header.parentHash = header.hash.lower(), header.parentHash.lower()
    return header


class Node:
    """All endpoints of one chain. Every read names the error of the last endpoint tried when none could answer."""

    def __init__(self, facts: Facts, endpoints: Sequence[Endpoint], seams: Seams) -> None:
        if not endpoints:
            raise Unavailable(
                facts.key, "no endpoint is configured", cure=f"set chains.{facts.key}.rpc in the settings"
            )
        self.facts, self.endpoints, self.seams = facts, list(endpoints), seams

    @property
    def requests(self) -> int:
        """HTTP requests sent so far, to all endpoints."""
        return sum(endpoint.requests for endpoint in self.endpoints)

    async def close(self) -> None:
        """Let go of connections."""
        for endpoint in self.endpoints:
            await endpoint.close()

    def troubles(self) -> dict[str, dict[str, int]]:
        """What went wrong so far, by endpoint and kind of error."""
        return {e.name: dict(e.trouble.counts) for e in self.endpoints if e.trouble.counts}

    async def with_any(self, read: Callable[[Endpoint], Awaitable[T]], *, check: bool = True) -> T:
        """`read` at the first endpoint that can answer it; the others only after it could not."""
        now_s = self.seams.clock.monotonic_s()
        last: SourceError | None = None
        for attempt in range(BEHIND_TRIES):
            for endpoint in sorted(self.endpoints, key=lambda e: e.down_until_s > now_s):
                try:
                    if check and not endpoint.checked:
                        await self._heads(endpoint)
                    return await read(endpoint)
                except (Unavailable, HistoryUnavailable, WrongChain, BadAnswer) as error:
                    endpoint.trouble.note(error)
                    last = error
                    if len(self.endpoints) == 1 and not isinstance(error, NodeBehind):
                        raise
            if not isinstance(last, NodeBehind) or attempt == BEHIND_TRIES - 1:
                break
            await self.seams.clock.sleep(BEHIND_WAIT_S * 2**attempt)
        assert last is not None
        raise last

    async def connect(self) -> Heads:
        """Check the endpoints that answer and say where the chain stands: one request each."""
        return await self.with_any(self._heads, check=False)

    async def _heads(self, endpoint: Endpoint) -> Heads:
        tag = "finalized" if self.facts.finality == "finalized" else "latest"
        by_number = [("latest", False), (tag, False), ("0x0", False)]
        asks = [Request("eth_chainId"), *(Request("eth_getBlockByNumber", params) for params in by_number)]
        answers = await endpoint.ask(asks)
        self._same_chain(endpoint, answers[0], answers[3])
        latest = checked(endpoint.name, _block(endpoint, answers[1]))
        if isinstance(self.facts.finality, int):
            finalized = max(0, latest.height - self.facts.finality)
        elif isinstance(answers[2], Unsupported | NodeBehind | BadAnswer) or answers[2] == b"null":
            finalized = max(0, latest.height - 64)
        else:
            finalized = checked(endpoint.name, _block(endpoint, answers[2])).height
        endpoint.checked = True
        return Heads(latest.block(), min(finalized, latest.height))

    def _same_chain(self, endpoint: Endpoint, chain_id: Answer, genesis: Answer) -> None:
        if isinstance(chain_id, SourceError):
            raise chain_id
        found = quantity(endpoint.name, typed(endpoint.name, chain_id, str))
        if found != self.facts.chain_id:
            raise WrongChain(
                endpoint.name, f"serves chain {found}, not {self.facts.chain_id} ({self.facts.key})",
                cure=f"give chains.{self.facts.key}.rpc an endpoint of the right chain",
            )  # fmt: skip
        if self.facts.genesis and not isinstance(genesis, SourceError) and genesis != b"null":
            block = checked(endpoint.name, _block(endpoint, genesis), 0)
            if block.hash != self.facts.genesis:
                raise WrongChain(
                    endpoint.name, f"has genesis {block.hash}, {self.facts.key} has {self.facts.genesis}",
                    cure="this is another chain with the same id: use an endpoint of the right one",
                )  # fmt: skip

    async def headers(self, heights: Sequence[int]) -> list[Header]:
        """The headers at these heights, in order, in as few requests as the endpoint allows."""
        return await self.with_any(lambda endpoint: headers_of(endpoint, heights))

    async def block(self, height: int) -> Block:
        """One block; NodeBehind where the chain is not that far."""
        return (await self.headers([height]))[0].block()

    async def raw_blocks(self, heights: Sequence[int], method: str, *params: Any) -> list[bytes]:
        """The undecoded answers to `method(height, *params)` for each height; an answer of null is NodeBehind."""
        asks = [Request(method, (hex_of(height), *params)) for height in heights]

        async def read(endpoint: Endpoint) -> list[bytes]:
            answers = await endpoint.ask(asks, height=heights[0] if heights else 0)
            for answer, height in zip(answers, heights, strict=True):
                if isinstance(answer, SourceError):
                    raise answer
                if answer == b"null":
                    raise NodeBehind(endpoint.name, f"does not have block {height}")
            return [answer for answer in answers if isinstance(answer, bytes)]

        return await self.with_any(read)

    async def results(self, asks: Sequence[Request]) -> list[bytes]:
        """The undecoded answers to some requests, in order, all from one endpoint; a refused one is raised."""

        async def read(endpoint: Endpoint) -> list[bytes]:
            answers = await endpoint.ask(asks)
            for answer in answers:
                if isinstance(answer, SourceError):
                    raise answer
            return [answer for answer in answers if isinstance(answer, bytes)]

        return await self.with_any(read)


async def headers_of(endpoint: Endpoint, heights: Sequence[int]) -> list[Header]:
    """The headers at some heights from one endpoint, in order, in as few requests as it allows."""
    asks = [Request("eth_getBlockByNumber", (hex_of(height), False)) for height in heights]
    answers = await endpoint.ask(asks, height=heights[0] if heights else 0)
    return [checked(endpoint.name, _block(endpoint, a), h) for a, h in zip(answers, heights, strict=True)]


def _block(endpoint: Endpoint, answer: Answer) -> Header | None:
    if isinstance(answer, SourceError):
        raise answer
    return typed(endpoint.name, answer, Header | None)  # type: ignore[arg-type]
