"""Bulk logs: as wide a span as each endpoint allows, learnt as it goes, and checked before it is believed.

Two kinds of caps are told apart. A structural one ("limited to 50 blocks") holds everywhere: it is remembered for good.
A density one ("more than 10,000 results") holds for the stretch of chain at hand: it is forgotten again as answers get
smaller. Every refusal makes the next question strictly smaller, so there is no standing still.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from adapters.evm import logs as columns
from adapters.evm.integrity import Query, check_links, check_logs
from adapters.evm.logs import Logs
from adapters.evm.node import Header, Node, header_key, hex_of
from adapters.evm.proven import are_receipts_proven, prove_logs
from chainfolio.blocks import Block, Span
from chainfolio.errors import BadAnswer, SourceError, TooMuch, Unavailable
from transport.endpoint import Endpoint
from transport.wire import Request

T = TypeVar("T")
U = TypeVar("U")
DENSE_CUT = 8
GROW_AFTER = 4


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A log that an endpoint left out of its answers: its height and contract, and a sentence for people."""

    height: int
    contract: str
    reason: str


@dataclass(slots=True)
class Chunk:
    """One span as it came: logs, headers where they were wanted, and how many logs had to be asked for again.
    `left_out`: a log that an answer lacked, if the answer may lack more that nothing shows. `source`: the endpoint that
    gave the logs of accounts."""

    span: Span
    logs: Logs
    headers: list[Header]
    restored: int = 0
    left_out: LeftOut | None = None
    source: str = ""


class LogReader:
    """Reads spans of logs from a chain's nodes."""

    def __init__(self, node: Node, *, integrity: str = "bloom", sample: int = 100) -> None:
        self.node, self.integrity, self.sample = node, integrity, sample
        self._density: dict[str, int] = {}
        self._calm: dict[str, int] = {}

    async def read(
        self,
        span: Span,
        query: Query,
        before: Block | None = None,
        *,
        headers: bool = False,
        also: Sequence[Query] = (),
    ) -> Chunk:
        """The logs of one span, verified against the headers of its blocks unless integrity is off.

        `also`: other questions, of which no log answers two, about the same blocks of the same endpoint; with headers.
        """
        assert headers or not also, "only headers show that answers are about the same blocks"

        async def at(endpoint: Endpoint) -> Chunk:
            if headers or self.integrity != "off" or self.node.quorum > 1:  # what is compared is read alike
                chain_asked = self.node.headers_at(endpoint, _heights(span))
                logs, chain = await _both(self._logs(endpoint, span, query), chain_asked)
            else:
                logs = await self._logs(endpoint, span, query)
                if len(logs) == 0 or bool((logs.time_s >= 0).all()):
                    return Chunk(span, logs, [])
                chain = await self.node.headers_at(endpoint, _heights(span))
            check_links(endpoint.name, chain, before)
            chunk = await self._complete(endpoint, Chunk(span, logs, chain), query)
            for other in also:
                more = Chunk(span, await self._logs(endpoint, span, other), chain)
                chunk = _together(endpoint.name, chunk, await self._complete(endpoint, more, other))
            return chunk

        return await self._agreed(at, span, f"the logs of blocks {span.first}..{span.last}")

    async def read_headers(self, span: Span, before: Block | None = None) -> Chunk:
        """The headers of one span, linked, without any log."""

        async def at(endpoint: Endpoint) -> Chunk:
            chain = await self.node.headers_at(endpoint, _heights(span))
            check_links(endpoint.name, chain, before)
            return Chunk(span, Logs.blank(0), chain)

        return await self._agreed(at, span, f"the headers of blocks {span.first}..{span.last}")

    async def _agreed(self, read: Callable[[Endpoint], Awaitable[Chunk]], span: Span, asked: str) -> Chunk:
        """One span as a quorum of endpoints gives it."""

        async def at(endpoint: Endpoint) -> list[Chunk]:
            return [await read(endpoint)]

        is_final = self.node.is_final(span.last)
        chunks = await self.node.agreed(at, key=chunk_key, asked=lambda _: asked, final=lambda _: is_final, kind="logs")
        return chunks[0]

    async def _logs(self, endpoint: Endpoint, span: Span, query: Query) -> Logs:
        """All logs of a span from one endpoint, in pieces it accepts, pieces together in one batch."""
        pieces, parts = list(span.cut(self._cap(endpoint, len(span)))), []
        while pieces:
            answers = await self._ask(endpoint, pieces, query)
            refused: list[Span] = []
            for piece, answer in zip(pieces, answers, strict=True):
                if isinstance(answer, TooMuch):
                    refused += piece.cut(self._shrink(endpoint, piece, answer))
                elif isinstance(answer, SourceError):
                    raise answer
                else:
                    parts.append(_within(endpoint, piece, answer))
            if not refused:
                self._grow(endpoint)
            pieces = sorted(refused)
        if len(parts) > 1:
            parts.sort(key=lambda part: int(part.height[0]) if len(part) else -1)
        return columns.join(parts)

    async def _ask(self, endpoint: Endpoint, pieces: Sequence[Span], query: Query) -> Sequence[Logs | SourceError]:
        reads = [Request("eth_getLogs", ({**_range(piece), **query.filter()},)) for piece in pieces]
        try:
            if len(reads) == 1:
                return [await endpoint.big(reads[0], columns.parse, height=pieces[0].first)]
            answers = await endpoint.ask(reads, height=pieces[0].first)
        except TooMuch as refusal:
            return [refusal] * len(pieces)
        return [
            answer if isinstance(answer, SourceError) else await asyncio.to_thread(columns.parse, endpoint.name, answer)
            for answer in answers
        ]

    def _cap(self, endpoint: Endpoint, wanted: int) -> int:
        structural = endpoint.capabilities.get("max_span", wanted)
        return max(1, min(wanted, structural, self._density.get(endpoint.name, wanted)))

    def _shrink(self, endpoint: Endpoint, piece: Span, refusal: TooMuch) -> int:
        """A strictly smaller size for a refused piece, remembered as a rule of the node or as a dense stretch."""
        endpoint.errors.note(refusal)
        if len(piece) == 1:
            raise BadAnswer(
                endpoint.name, f"refuses the logs of the single block {piece.first}: {refusal.reason}",
                remedy="name the contracts to index, or use an endpoint with higher limits",
            )  # fmt: skip
        if refusal.max_span is not None:
            size = min(refusal.max_span, len(piece) - 1)  # a node may mean one less than it says
        else:
            size = -(-len(piece) // (DENSE_CUT if refusal.dense else 2))
        if refusal.dense:
            self._density[endpoint.name], self._calm[endpoint.name] = size, 0
        else:
            size = min(size, endpoint.capabilities.get("max_span", size))
            endpoint.learn("max_span", size)
        return size

    def _grow(self, endpoint: Endpoint) -> None:
        """After a few calm answers a density cap is doubled; a structural one never is."""
        if endpoint.name in self._density:
            self._calm[endpoint.name] += 1
            if self._calm[endpoint.name] >= GROW_AFTER:
                self._density[endpoint.name] *= 2
                self._calm[endpoint.name] = 0

    async def _complete(self, endpoint: Endpoint, chunk: Chunk, query: Query) -> Chunk:
        """Check a chunk; blocks whose bloom promises logs that did not come are asked again, by hash."""
        bloom = self.integrity != "off"
        missing = await asyncio.to_thread(check_logs, endpoint.name, chunk.logs, chunk.headers, query, bloom=bloom)
        silent = [chunk.headers[int(height) - chunk.span.first] for height in missing]
        if silent:
            again = await self._by_hash(endpoint, [header.hash for header in silent], query)
            silent = [header for header, logs in zip(silent, again, strict=True) if len(logs) == 0]
            chunk = await self._restored(endpoint, chunk, again, query)
        await self._prove(endpoint, chunk, silent, query)
        return chunk

    async def _restored(self, endpoint: Endpoint, chunk: Chunk, again: Sequence[Logs], query: Query) -> Chunk:
        count = sum(len(logs) for logs in again)
        if count == 0:
            return chunk
        span = chunk.span
        endpoint.errors.note(Omitted(endpoint.name, f"left out {count} logs in blocks {span.first}..{span.last}"))
        logs = _merged(endpoint.name, [chunk.logs, *again])
        check_logs(endpoint.name, logs, chunk.headers, query)
        return Chunk(span, logs, chunk.headers, count)

    async def _prove(self, endpoint: Endpoint, chunk: Chunk, silent: Sequence[Header], query: Query) -> None:
        """Blocks that stay silent though their blooms promise logs, and some others: are these all of their logs?

        With "roots" the receipts say so, under the root that the header's hash covers. Else a silent block is believed
        where another endpoint gives nothing either; where there is none, a bloom may promise what is not there.
        """
        others = [each for each in self.node.ranked() if each is not endpoint]
        if are_receipts_proven(self.node.facts, self.integrity):
            heights = {header.height for header in silent}
            chance = self.node.seams.random
            sampled = [h for h in chunk.headers if h.height not in heights and chance.randrange(self.sample) == 0]
            await prove_logs(self.node.facts, endpoint, chunk.logs, [*silent, *sampled], query)
        elif self.integrity != "off" and silent and others and self.node.quorum < 2:
            await self._corroborate(endpoint, others[0], silent, query)

    async def _corroborate(self, endpoint: Endpoint, other: Endpoint, silent: Sequence[Header], query: Query) -> None:
        try:
            told = await self._by_hash(other, [header.hash for header in silent], query)
            for header, logs in zip(silent, told, strict=True):
                check_logs(other.name, logs, [header], query)
        except SourceError as error:
            other.errors.note(error)
            return
        for header, logs in zip(silent, told, strict=True):
            if len(logs):
                raise Omitted(endpoint.name, f"left out {len(logs)} logs of block {header.height}, twice")

    async def _by_hash(self, endpoint: Endpoint, hashes: Sequence[str], query: Query) -> list[Logs]:
        """The logs of single blocks named by hash: a node that does not have the block must say so instead of `[]`."""
        answers = await endpoint.ask([Request("eth_getLogs", ({"blockHash": h, **query.filter()},)) for h in hashes])
        found = []
        for answer in answers:
            if isinstance(answer, SourceError):
                raise Unavailable(endpoint.name, f"cannot give the logs of a block by its hash: {answer.reason}")
            found.append(columns.parse(endpoint.name, answer))
        return found


async def _both(one: Coroutine[Any, Any, T], other: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Two questions on their way at once; where one fails the other is called off, and the failure is its own."""
    try:
        async with asyncio.TaskGroup() as group:
            first, second = group.create_task(one), group.create_task(other)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return first.result(), second.result()


class Omitted(BadAnswer):
    """Logs that a first answer left out and a second one gave."""


def chunk_key(chunk: Chunk) -> Hashable:
    """What two equal chunks share: all that is read from their headers and logs."""
    logs, digest = chunk.logs, hashlib.sha256()
    for column in (logs.height, logs.tx_index, logs.log_index, logs.address, logs.tx_hash, logs.data_size, logs.word):
        digest.update(np.ascontiguousarray(column).tobytes())
    for k, topic in enumerate(logs.topics):
        digest.update(topic[logs.topic_count > k].tobytes())
    digest.update(repr(sorted(logs.other.items())).encode())
    digest.update(repr([header_key(header) for header in chunk.headers]).encode())
    return f"{len(logs)} logs in {len(chunk.headers)} headers, digest {digest.hexdigest()[:16]}"


def _within(endpoint: Endpoint, piece: Span, logs: Logs) -> Logs:
    """Logs from elsewhere would be counted twice: with this piece and with their own."""
    if len(logs) and (int(logs.height[0]) not in piece or int(logs.height[-1]) not in piece):
        raise BadAnswer(endpoint.name, "logs from outside the span that was asked for")
    return logs


def _together(source: str, one: Chunk, other: Chunk) -> Chunk:
    """Two chunks of the same blocks as one."""
    return Chunk(one.span, _merged(source, [one.logs, other.logs]), one.headers, one.restored + other.restored)


def _merged(source: str, parts: Sequence[Logs]) -> Logs:
    logs = columns.join(parts)
    logs = logs.take(np.lexsort((logs.log_index, logs.height)))
    if ((np.diff(logs.height) == 0) & (np.diff(logs.log_index) == 0)).any():
        raise BadAnswer(source, "two logs at one place of a block")
    return logs


def _heights(span: Span) -> range:
    return range(span.first, span.last + 1)


def _range(span: Span) -> dict[str, Any]:
    return {"fromBlock": hex_of(span.first), "toBlock": hex_of(span.last)}
