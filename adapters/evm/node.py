"""A chain's nodes as one: connect, verify the chain, fail over, read blocks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Sequence

import msgspec

from chainfolio.adapters.evm.facts import Facts
from chainfolio.adapters.evm.forms import Address, Bloom, Gas, Hash, Height, MaybeHash, Seconds, Word
from chainfolio.adapters.evm.hexadecimal import quantity
from chainfolio.adapters.evm.roots import Withdrawal, check_count, check_header, check_withdrawals
from chainfolio.blocks import Block
from chainfolio.chain_results import Heads
from chainfolio.environment import Environment
from chainfolio.errors import (
    BadAnswer,
    NodeBehind,
    SourceError,
    Unavailable,
    UnsupportedMethod,
    WrongChain,
)
from chainfolio.transport.endpoint import Answer, Endpoint, Handshake
from chainfolio.transport.pool import Pool
from chainfolio.transport.wire import Request, typed
from chainfolio.untrusted import SkippedContracts

# Seconds between reads of every endpoint's head if one endpoint serves all reads.
SURVEY_S = 30.0


class Header(msgspec.Struct, gc=False):
    """A block as `eth_getBlockByNumber` gives it without bodies; only the fields that are used."""

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
        """The height as an int."""
        return int(self.number, 16)

    @property
    def time_s(self) -> int:
        """The time in Unix seconds."""
        return int(self.timestamp, 16)

    def block(self) -> Block:
        """Return the header as a `Block`."""
        return Block(self.height, self.hash, self.parentHash, self.time_s * 1_000_000)


def hex_of(number: int) -> str:
    """Return a number as nodes expect it: `0x` and hex digits without leading zeros."""
    return hex(number)


def checked(source: str, header: Header | None, height: int | None = None) -> Header:
    """Check a header's height, lower the case of its hashes in place, and return it.

    Without `height` only its presence is checked.

    Raises:
        NodeBehind: The node has no such block.
        BadAnswer: It is another block.
    """
    if header is None:
        raise NodeBehind(source, f"does not have block {height}" if height is not None else "has no such block")
    if height is not None and header.height != height:
        raise BadAnswer(source, f"block {header.height} in answer to block {height}")
    header.hash, header.parentHash = header.hash.lower(), header.parentHash.lower()
    return header


class Node(Pool[Endpoint]):
    """The endpoints of one chain.

    `hashed`: check each header against its own hash. `finalized`: the newest height known to be final.
    `skipped`: the untrusted contracts that are not read for a number of blocks.
    """

    def __init__(
        self,
        facts: Facts,
        endpoints: Sequence[Endpoint],
        environment: Environment,
        *,
        quorum: int = 1,
        hedge: bool = True,
        hashed: bool = False,
    ) -> None:
        """Prepare the handshake with which each endpoint is checked before its first use; sends nothing.

        Args:
            hashed: Check that headers hash to their hashes.
        """
        super().__init__(facts.key, endpoints, environment, quorum=quorum, hedge=hedge)
        self.facts, self.hashed = facts, hashed
        self.finalized, self.skipped = -1, SkippedContracts()
        self._surveyed_s: float | None = None
        tag = "finalized" if facts.finality == "finalized" else "latest"
        blocks = [Request("eth_getBlockByNumber", (name, False)) for name in ("latest", tag, "0x0")]
        self._handshake = Handshake([Request("eth_chainId"), *blocks], self._parse_heads)
        for endpoint in self.endpoints:
            endpoint.handshake = self._handshake

    def is_final(self, height: int) -> bool:
        """Return True if a height is known to be final."""
        return height <= self.finalized

    async def connect(self) -> Heads:
        """Return the chain's heads: of one endpoint, or with a quorum the highest that a quorum has reached.

        Without a quorum, all endpoints are read too if `SURVEY_S` seconds have passed. The newest final height is
        stored in `finalized`, which never falls.

        Raises:
            SourceError: No endpoint answers, or fewer than the quorum.
        """
        if self.quorum > 1:
            heads = await self._agreed_heads()
        else:
            heads = await self.with_any(self._heads, kind="heads")
            await self._survey()
        self.finalized = max(self.finalized, heads.finalized)
        return heads

    async def _agreed_heads(self) -> Heads:
        """Return the highest heads that a quorum has reached: no single endpoint can push or hold back a head."""
        all_heads = [heads for heads in await self._all_heads() if isinstance(heads, Heads)]
        if len(all_heads) < self.quorum:
            raise self._too_few(len(all_heads))
        latest = sorted((heads.latest.height for heads in all_heads), reverse=True)[self.quorum - 1]
        finalized = sorted((heads.finalized for heads in all_heads), reverse=True)[self.quorum - 1]
        return Heads(await self.block(latest), min(finalized, latest))

    async def _survey(self) -> None:
        """Read the heads of all endpoints, also of those that serve no reads, if SURVEY_S seconds have passed.

        Their errors are not raised.
        """
        now_s = self.environment.clock.monotonic_s()
        if len(self.endpoints) > 1 and (self._surveyed_s is None or now_s - self._surveyed_s >= SURVEY_S):
            self._surveyed_s = now_s
            await self._all_heads()

    async def _all_heads(self) -> list[Heads | SourceError]:
        """Return the heads or the error of each endpoint that is not quarantined.

        Endpoints that are down are skipped if enough others are up.
        """
        now_s = self.environment.clock.monotonic_s()
        ranked = self.ranked()
        up = [endpoint for endpoint in ranked if endpoint.down_until_s <= now_s]
        endpoints = up if len(up) >= self.quorum else ranked

        async def heads(endpoint: Endpoint) -> Heads | SourceError:
            try:
                return await self._read(self._heads, endpoint, kind="heads")
            except SourceError as error:
                return error

        return list(await asyncio.gather(*(heads(endpoint) for endpoint in endpoints)))

    async def _heads(self, endpoint: Endpoint) -> Heads:
        return self._parse_heads(endpoint, await endpoint.handshake_answers())

    def _parse_heads(self, endpoint: Endpoint, answers: Sequence[Answer]) -> Heads:
        """Return the heads by an endpoint's answers to the handshake, and store its state.

        The endpoint is marked as checked, and the newest block becomes the head of its health. A depth
        of finality in the chain's facts replaces the node's final block. Without both, the depth is 64.

        Args:
            endpoint: The endpoint that answered.
            answers: Chain id, newest block, final block and genesis.

        Raises:
            WrongChain: It serves another chain.
            BadAnswer: An answer is malformed.
            SourceError: An answer is an error. A missing genesis or final block is none.
        """
        self._check_chain(endpoint, answers[0], answers[3])
        latest = checked(endpoint.name, _block(endpoint, answers[1]))
        if isinstance(self.facts.finality, int):
            finalized = max(0, latest.height - self.facts.finality)
        elif isinstance(answers[2], UnsupportedMethod | NodeBehind | BadAnswer) or answers[2] == b"null":
            finalized = max(0, latest.height - 64)
        else:
            finalized = checked(endpoint.name, _block(endpoint, answers[2])).height
        endpoint.checked = True
        endpoint.health.height, endpoint.health.head_us = latest.height, latest.block().time_us
        return Heads(latest.block(), min(finalized, latest.height))

    def _check_chain(self, endpoint: Endpoint, chain_id: Answer, genesis: Answer) -> None:
        """Raise WrongChain if an endpoint serves another chain id or genesis.

        An unread genesis is accepted. The error of an unread chain id is raised.
        """
        if isinstance(chain_id, SourceError):
            raise chain_id
        served_id = quantity(endpoint.name, typed(endpoint.name, chain_id, str))
        if served_id != self.facts.chain_id:
            raise WrongChain(
                endpoint.name,
                f"serves chain {served_id}, not {self.facts.chain_id} ({self.facts.key})",
                remedy=f"give chains.{self.facts.key}.rpc an endpoint of the right chain",
            )
        if self.facts.genesis and not isinstance(genesis, SourceError) and genesis != b"null":
            block = checked(endpoint.name, _block(endpoint, genesis), 0)
            if block.hash != self.facts.genesis:
                raise WrongChain(
                    endpoint.name,
                    f"has genesis {block.hash}, {self.facts.key} has {self.facts.genesis}",
                    remedy="this is another chain with the same id: use an endpoint of the right one",
                )

    async def headers(self, heights: Sequence[int]) -> list[Header]:
        """Return the headers at some heights, in order, in as few requests as the endpoint allows.

        Raises:
            NodeBehind: The node lacks one of them.
            SourceError: They could not be read, or the endpoints do not agree.
        """
        return await self.agreed(
            lambda endpoint: self.headers_at(endpoint, heights),
            key=header_key,
            describe=lambda question: f"the header of block {heights[question]}",
            is_final=lambda question: self.is_final(heights[question]),
            kind="headers",
        )

    async def headers_at(self, endpoint: Endpoint, heights: Sequence[int]) -> list[Header]:
        """Return the headers at some heights from one endpoint, checked against their hashes if `hashed`.

        Without `hashed`, only their withdrawals are checked.

        Raises:
            NodeBehind: It lacks one of them.
            Contradiction: A header does not have its hash, or its withdrawals or count of transactions are wrong.
        """
        reads = [Request("eth_getBlockByNumber", (hex_of(height), False)) for height in heights]
        answers = await endpoint.ask(reads, height=heights[0] if heights else 0)
        headers = [checked(endpoint.name, _block(endpoint, a), h) for a, h in zip(answers, heights, strict=True)]
        for header in headers:
            check_withdrawals(self.facts, endpoint.name, header, hashed=self.hashed)
        if self.hashed:
            for answer, header in zip(answers, headers, strict=True):
                assert isinstance(answer, bytes), "a refusal was raised above"
                check_header(self.facts, endpoint.name, answer)
                check_count(self.facts, endpoint.name, header.number, len(header.transactions), header.transactionsRoot)
        return headers

    async def block(self, height: int) -> Block:
        """Return one block.

        Raises:
            NodeBehind: The chain is not that far.
        """
        return (await self.headers([height]))[0].block()

    async def blocks(self, heights: Sequence[int]) -> list[Block]:
        """Return the blocks at some heights, in order, in as few requests as an endpoint allows.

        Raises:
            SourceError: They could not be read, as for `headers`.
        """
        return [header.block() for header in await self.headers(heights)]

    async def hashes(self, height: int) -> dict[Endpoint, str]:
        """Return the hash that each answering endpoint has at a height, which may differ.

        Endpoints that fail or are quarantined are left out; all may be.
        """

        async def of(endpoint: Endpoint) -> list[Header] | SourceError:
            return await self._result_or_error(lambda e: self.headers_at(e, [height]), endpoint, "headers")

        endpoints = self.ranked()
        results = await asyncio.gather(*(of(endpoint) for endpoint in endpoints))
        return {
            endpoint: headers[0].hash
            for endpoint, headers in zip(endpoints, results, strict=True)
            if not isinstance(headers, SourceError)
        }

    async def agreed_hash(self, block: Block) -> str:
        """Return the hash at a formerly final height, by a majority for `block` or else by all endpoints.

        Only endpoints that answer count. If most of them still have `block`, the others are quarantined.

        Raises:
            Unavailable: There is no such majority, and the endpoints do not agree or are fewer than the quorum.
        """
        hashes = await self.hashes(block.height)
        votes = Counter(hashes.values())
        if votes[block.hash] * 2 > len(hashes):
            for endpoint, block_hash in hashes.items():
                if block_hash != block.hash:
                    question = f"the hash of block {block.height}, which was final"
                    truth = f"{block.hash} by what was indexed, and by a majority"
                    self.quarantine(endpoint, question, block_hash, truth)
            return block.hash
        if len(votes) != 1 or len(hashes) < self.quorum:
            split = ", ".join(f"{endpoint.name} has {hashes[endpoint]}" for endpoint in hashes) or "no endpoint answers"
            raise Unavailable(self.key, f"endpoints do not agree about final block {block.height}: {split}")
        return next(iter(votes))


async def raw_blocks(endpoint: Endpoint, heights: Sequence[int], method: str, *params: object) -> list[bytes]:
    """Return the undecoded results of `method(height, *params)` for each height.

    Raises:
        NodeBehind: A result is null.
        SourceError: A request was refused.
    """
    reads = [Request(method, (hex_of(height), *params)) for height in heights]
    answers = await endpoint.ask(reads, height=heights[0] if heights else 0)
    for answer, height in zip(answers, heights, strict=True):
        if isinstance(answer, SourceError):
            raise answer
        if answer == b"null":
            raise NodeBehind(endpoint.name, f"does not have block {height}")
    return [answer for answer in answers if isinstance(answer, bytes)]


async def results_of(endpoint: Endpoint, reads: Sequence[Request]) -> list[bytes]:
    """Return the undecoded results of some requests, in order.

    Raises:
        SourceError: A request was refused.
    """
    answers = await endpoint.ask(reads)
    for answer in answers:
        if isinstance(answer, SourceError):
            raise answer
    return [answer for answer in answers if isinstance(answer, bytes)]


def header_key(header: Header) -> Hashable:
    """Return everything that is stored of a header, for comparison."""
    numbers = (header.number, header.timestamp, header.gasUsed, header.gasLimit, header.baseFeePerGas)
    texts = (header.hash, header.parentHash, header.logsBloom.lower(), header.miner.lower())
    roots = (header.transactionsRoot.lower(), header.receiptsRoot.lower())
    withdrawals = tuple((item.address.lower(), int(item.amount, 16)) for item in header.withdrawals or ())
    return (*texts, *numbers, *roots, len(header.transactions), withdrawals)


def _block(endpoint: Endpoint, answer: Answer) -> Header | None:
    if isinstance(answer, SourceError):
        raise answer
    return typed(endpoint.name, answer, Header | None)  # type: ignore[arg-type]
