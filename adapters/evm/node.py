"""A chain's nodes as one: connect, check that they are who they should be, fail over, read blocks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import msgspec

from adapters.evm.facts import Facts
from adapters.evm.forms import Address, Bloom, Gas, Hash, Height, MaybeHash, Scalar, Seconds, Word
from adapters.evm.hexadecimal import quantity
from adapters.evm.roots import check_count, check_header, check_withdrawals
from chainfolio.blocks import Block
from chainfolio.chains import Heads
from chainfolio.errors import (
    BadAnswer,
    NodeBehind,
    SourceError,
    Unavailable,
    Unsupported,
    WrongChain,
)
from chainfolio.seams import Seams
from transport.endpoint import Answer, Endpoint, Handshake
from transport.pool import Pool
from transport.wire import Request, typed

# How often every endpoint is looked at where one alone answers.
SURVEY_S = 30.0


class Withdrawal(msgspec.Struct, gc=False):
    """Coins that a validator withdrew: `amount` is in gwei."""

    address: Address
    amount: Scalar
    index: Scalar = "0x0"
    validatorIndex: Scalar = "0x0"


class Header(msgspec.Struct, gc=False):
    """A block as `eth_getBlockByNumber` without bodies gives it; only what is used."""

    number: Height
    hash: Hash
    parentHash: Hash
    timestamp: Seconds
    logsBloom: Bloom
    gasUsed: Gas
    gasLimit: Gas
    miner: Address = "0x" + "0" * 40
    baseFeePerGas: Word | None = None
    transactions: list[msgspec.Raw] = []
    transactionsRoot: MaybeHash = ""
    receiptsRoot: MaybeHash = ""
    withdrawals: list[Withdrawal] | None = None
    withdrawalsRoot: MaybeHash = ""

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


def hex_of(number: int) -> str:
    """A height as nodes want it."""
    return hex(number)


def checked(source: str, header: Header | None, height: int | None = None) -> Header:
    """A header at the height that was asked for."""
    if header is None:
        raise NodeBehind(source, f"does not have block {height}" if height is not None else "has no such block")
    if height is not None and header.height != height:
        raise BadAnswer(source, f"block {header.height} in answer to block {height}")
    header.hash, header.parentHash = header.hash.lower(), header.parentHash.lower()
    return header


class Node(Pool[Endpoint]):
    """All endpoints of one chain. `hashed`: whether each header is held against its own hash before it is believed.

    `finalized` is the newest height that was seen to be final: what lies at or below it cannot change any more.
    """

    def __init__(
        self,
        facts: Facts,
        endpoints: Sequence[Endpoint],
        seams: Seams,
        *,
        quorum: int = 1,
        hedge: bool = True,
        hashed: bool = False,
    ) -> None:
        super().__init__(facts.key, endpoints, seams, quorum=quorum, hedge=hedge)
        self.facts, self.hashed = facts, hashed
        self.finalized = -1
        self._surveyed_s: float | None = None
        tag = "finalized" if facts.finality == "finalized" else "latest"
        blocks = [Request("eth_getBlockByNumber", (name, False)) for name in ("latest", tag, "0x0")]
        self._handshake = Handshake([Request("eth_chainId"), *blocks], self._heard)
        for endpoint in self.endpoints:
            endpoint.handshake = self._handshake

    def is_final(self, height: int) -> bool:
        """Whether what lies at this height cannot change any more."""
        return height <= self.finalized

    async def connect(self) -> Heads:
        """Check the endpoints that answer and say where the chain stands: one request each."""
        if self.quorum > 1:
            heads = await self._agreed_heads()
        else:
            heads = await self.with_any(self._heads, kind="heads")
            await self._survey()
        self.finalized = max(self.finalized, heads.finalized)
        return heads

    async def _agreed_heads(self) -> Heads:
        """The highest that a quorum has reached: nobody alone can push the head, or hold it back."""
        told = [heads for heads in await self._all_heads() if isinstance(heads, Heads)]
        if len(told) < self.quorum:
            raise self._too_few(len(told))
        latest = sorted((heads.latest.height for heads in told), reverse=True)[self.quorum - 1]
        finalized = sorted((heads.finalized for heads in told), reverse=True)[self.quorum - 1]
        return Heads(await self.block(latest), min(finalized, latest))

    async def _survey(self) -> None:
        """Now and then every endpoint is asked for its head, so that those that are not read from are known, too."""
        now_s = self.seams.clock.monotonic_s()
        if len(self.endpoints) > 1 and (self._surveyed_s is None or now_s - self._surveyed_s >= SURVEY_S):
            self._surveyed_s = now_s
            await self._all_heads()

    async def _all_heads(self) -> list[Heads | SourceError]:
        """What each endpoint that is not quarantined says; those that are down are passed over where others are not."""
        now_s = self.seams.clock.monotonic_s()
        free = self.ranked()
        up = [endpoint for endpoint in free if endpoint.down_until_s <= now_s]
        asked = up if len(up) >= self.quorum else free

        async def heads(endpoint: Endpoint) -> Heads | SourceError:
            try:
                return await self._read(self._heads, endpoint, kind="heads")
            except SourceError as error:
                return error

        return list(await asyncio.gather(*(heads(endpoint) for endpoint in asked)))

    async def _heads(self, endpoint: Endpoint) -> Heads:
        return self._heard(endpoint, await endpoint.put(self._handshake.reads))

    def _heard(self, endpoint: Endpoint, answers: Sequence[Answer]) -> Heads:
        """Where the chain stands by an endpoint's answers to the handshake. WrongChain where it is another chain."""
        self._same_chain(endpoint, answers[0], answers[3])
        latest = checked(endpoint.name, _block(endpoint, answers[1]))
        if isinstance(self.facts.finality, int):
            finalized = max(0, latest.height - self.facts.finality)
        elif isinstance(answers[2], Unsupported | NodeBehind | BadAnswer) or answers[2] == b"null":
            finalized = max(0, latest.height - 64)
        else:
            finalized = checked(endpoint.name, _block(endpoint, answers[2])).height
        endpoint.checked = True
        endpoint.health.height, endpoint.health.head_us = latest.height, latest.block().time_us
        return Heads(latest.block(), min(finalized, latest.height))

    def _same_chain(self, endpoint: Endpoint, chain_id: Answer, genesis: Answer) -> None:
        if isinstance(chain_id, SourceError):
            raise chain_id
        found = quantity(endpoint.name, typed(endpoint.name, chain_id, str))
        if found != self.facts.chain_id:
            raise WrongChain(
                endpoint.name, f"serves chain {found}, not {self.facts.chain_id} ({self.facts.key})",
                remedy=f"give chains.{self.facts.key}.rpc an endpoint of the right chain",
            )  # fmt: skip
        if self.facts.genesis and not isinstance(genesis, SourceError) and genesis != b"null":
            block = checked(endpoint.name, _block(endpoint, genesis), 0)
            if block.hash != self.facts.genesis:
                raise WrongChain(
                    endpoint.name, f"has genesis {block.hash}, {self.facts.key} has {self.facts.genesis}",
                    remedy="this is another chain with the same id: use an endpoint of the right one",
                )  # fmt: skip

    async def headers(self, heights: Sequence[int]) -> list[Header]:
        """The headers at these heights, in order, in as few requests as the endpoint allows."""
        return await self.agreed(
            lambda endpoint: self.headers_at(endpoint, heights),
            key=header_key,
            asked=lambda question: f"the header of block {heights[question]}",
            final=lambda question: self.is_final(heights[question]),
            kind="headers",
        )

    async def headers_at(self, endpoint: Endpoint, heights: Sequence[int]) -> list[Header]:
        """The same from one endpoint, held against their hashes where that is wanted."""
        reads = [Request("eth_getBlockByNumber", (hex_of(height), False)) for height in heights]
        answers = await endpoint.ask(reads, height=heights[0] if heights else 0)
        found = [checked(endpoint.name, _block(endpoint, a), h) for a, h in zip(answers, heights, strict=True)]
        for header in found:
            check_withdrawals(self.facts, endpoint.name, header, hashed=self.hashed)
        if self.hashed:
            for answer, header in zip(answers, found, strict=True):
                assert isinstance(answer, bytes), "a refusal was raised above"
                check_header(self.facts, endpoint.name, answer)
                check_count(self.facts, endpoint.name, header.number, len(header.transactions), header.transactionsRoot)
        return found

    async def block(self, height: int) -> Block:
        """One block; NodeBehind where the chain is not that far."""
        return (await self.headers([height]))[0].block()

    async def hashes(self, height: int) -> dict[Endpoint, str]:
        """Which hash each endpoint that answers has at a height: for when they may not agree."""

        async def of(endpoint: Endpoint) -> list[Header] | SourceError:
            return await self._tried(lambda e: self.headers_at(e, [height]), endpoint, "headers")

        asked = self.ranked()
        told = await asyncio.gather(*(of(endpoint) for endpoint in asked))
        return {
            endpoint: headers[0].hash
            for endpoint, headers in zip(asked, told, strict=True)
            if not isinstance(headers, SourceError)
        }

    async def agreed_hash(self, block: Block) -> str:
        """The hash that all endpoints have at the height of a block that was final; where more of them still have ours,
        the others lie. Unavailable where too few answer or they do not agree."""
        told = await self.hashes(block.height)
        votes = Counter(told.values())
        if votes[block.hash] * 2 > len(told):
            for endpoint, block_hash in told.items():
                if block_hash != block.hash:
                    asked = f"the hash of block {block.height}, which was final"
                    truth = f"{block.hash} by what was indexed, and by a majority"
                    self.quarantine(endpoint, asked, block_hash, truth)
            return block.hash
        if len(votes) != 1 or len(told) < self.quorum:
            split = ", ".join(f"{endpoint.name} has {told[endpoint]}" for endpoint in told) or "nobody answers"
            raise Unavailable(self.key, f"endpoints do not agree about final block {block.height}: {split}")
        return next(iter(votes))


async def raw_blocks(endpoint: Endpoint, heights: Sequence[int], method: str, *params: Any) -> list[bytes]:
    """The undecoded answers to `method(height, *params)` for each height; an answer of null is NodeBehind."""
    reads = [Request(method, (hex_of(height), *params)) for height in heights]
    answers = await endpoint.ask(reads, height=heights[0] if heights else 0)
    for answer, height in zip(answers, heights, strict=True):
        if isinstance(answer, SourceError):
            raise answer
        if answer == b"null":
            raise NodeBehind(endpoint.name, f"does not have block {height}")
    return [answer for answer in answers if isinstance(answer, bytes)]


async def results_of(endpoint: Endpoint, reads: Sequence[Request]) -> list[bytes]:
    """The undecoded answers to some requests, in order; a refused one is raised."""
    answers = await endpoint.ask(reads)
    for answer in answers:
        if isinstance(answer, SourceError):
            raise answer
    return [answer for answer in answers if isinstance(answer, bytes)]


def header_key(header: Header) -> Hashable:
    """What two equal headers share: everything that is stored of them."""
    numbers = (header.number, header.timestamp, header.gasUsed, header.gasLimit, header.baseFeePerGas)
    texts = (header.hash, header.parentHash, header.logsBloom.lower(), header.miner.lower())
    roots = (header.transactionsRoot.lower(), header.receiptsRoot.lower())
    paid = tuple((each.address.lower(), int(each.amount, 16)) for each in header.withdrawals or ())
    return (*texts, *numbers, *roots, len(header.transactions), paid)


def _block(endpoint: Endpoint, answer: Answer) -> Header | None:
    if isinstance(answer, SourceError):
        raise answer
    return typed(endpoint.name, answer, Header | None)  # type: ignore[arg-type]
