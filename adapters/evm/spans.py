"""Read logs in bulk: in spans as wide as each endpoint allows, learned on the way, and checked.

There are two kinds of limits. A structural one ("limited to 50 blocks") always holds: it is remembered for good. A
density one ("more than 10,000 results") holds for one stretch of the chain: it is raised again as answers get smaller.
Every refusal makes the next request strictly smaller, so that reading always progresses.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from chainfolio.adapters.evm import logs as columns
from chainfolio.adapters.evm.integrity import Query, check_links, check_logs
from chainfolio.adapters.evm.log_parser import parse
from chainfolio.adapters.evm.logs import Logs
from chainfolio.adapters.evm.node import Header, Node, header_key, hex_of
from chainfolio.adapters.evm.proven import are_receipts_proven, prove_logs
from chainfolio.blocks import Block, Span
from chainfolio.errors import BadAnswer, ResponseTooLarge, SourceError, Unavailable
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request

FirstResult = TypeVar("FirstResult")
SecondResult = TypeVar("SecondResult")
DENSE_DIVISOR = 8
CALM_ANSWERS_TO_GROW = 4


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A log that is missing from an endpoint's answers: its height and contract, and a reason for people."""

    height: int
    contract: str
    reason: str


@dataclass(slots=True)
class Chunk:
    """The logs of one span, and its headers if they were requested.

    `restored`: the number of logs that a second answer added. `left_out`: a missing log, if more may be missing
    unnoticed. `source`: the endpoint that gave the logs of accounts.
    """

    span: Span
    logs: Logs
    headers: list[Header]
    restored: int = 0
    left_out: LeftOut | None = None
    source: str = ""


class LogReader:
    """Reads spans of logs from a chain's nodes.

    `recent` are the headers of the last collected span, whose account data is usually read next.

    Args:
        node: The endpoints.
        integrity: The setting of this name: `off`, `bloom` or `roots`.
        sample: With `roots`, one block in so many is proven even if nothing seems to be missing.
    """

    def __init__(self, node: Node, *, integrity: str = "bloom", sample: int = 100) -> None:
        self.node, self.integrity, self.sample = node, integrity, sample
        self.recent: list[Header] = []
        self._density: dict[str, int] = {}
        self._calm: dict[str, int] = {}

    async def read(
        self,
        span: Span,
        query: Query,
        before: Block | None = None,
        *,
        headers: bool = False,
        further_queries: Sequence[Query] = (),
    ) -> Chunk:
        """Read the logs of one span, checked against the headers of its blocks if these are read.

        With integrity "off", headers are only read for `headers`, for a quorum, or for logs without a time. The chunk
        has headers only if they were read.

        Args:
            before: The block that the span must follow; None if it is unknown. Without headers it is not checked.
            headers: Read headers in any case.
            further_queries: Queries for the same blocks at the same endpoint, which select no common logs; needs
                `headers`.

        Raises:
            Reorged: The span does not follow `before`, or blocks changed meanwhile.
            SourceError: No endpoint answers, or answers are wrong.
        """
        assert headers or not further_queries, "only headers show that answers are about the same blocks"

        async def at(endpoint: Endpoint) -> Chunk:
            if headers or self.integrity != "off" or self.node.quorum > 1:  # endpoints are compared with headers
                header_reads = self.node.headers_at(endpoint, _heights(span))
                logs, span_headers = await _run_both(self._logs(endpoint, span, query), header_reads)
            else:
                logs = await self._logs(endpoint, span, query)
                if len(logs) == 0 or bool((logs.time_s >= 0).all()):
                    return Chunk(span, logs, [])
                span_headers = await self.node.headers_at(endpoint, _heights(span))
            check_links(endpoint.name, span_headers, before)
            chunk = await self._complete(endpoint, Chunk(span, logs, span_headers), query)
            for further_query in further_queries:
                further_chunk = Chunk(span, await self._logs(endpoint, span, further_query), span_headers)
                chunk = _join_chunks(endpoint.name, chunk, await self._complete(endpoint, further_chunk, further_query))
            return chunk

        return await self._agreed(at, span, f"the logs of blocks {span.first}..{span.last}")

    async def read_headers(self, span: Span, before: Block | None = None) -> Chunk:
        """Read the headers of one span, checked for parent links, without logs.

        Raises:
            Reorged: The span does not follow `before`.
            SourceError: No endpoint answers, or answers are wrong.
        """

        async def at(endpoint: Endpoint) -> Chunk:
            span_headers = await self.node.headers_at(endpoint, _heights(span))
            check_links(endpoint.name, span_headers, before)
            return Chunk(span, Logs.blank(0), span_headers)

        return await self._agreed(at, span, f"the headers of blocks {span.first}..{span.last}")

    async def _agreed(self, read: Callable[[Endpoint], Awaitable[Chunk]], span: Span, description: str) -> Chunk:
        """Read one span on which a quorum of endpoints agrees."""

        async def at(endpoint: Endpoint) -> list[Chunk]:
            return [await read(endpoint)]

        is_final = self.node.is_final(span.last)
        chunks = await self.node.agreed(
            at, key=chunk_key, describe=lambda _: description, is_final=lambda _: is_final, kind="logs"
        )
        return chunks[0]

    async def _logs(self, endpoint: Endpoint, span: Span, query: Query) -> Logs:
        """Read the logs of a span from one endpoint, in batches of pieces that it accepts; unchecked.

        Pieces that are too large are cut, and the limit is remembered.

        Raises:
            BadAnswer: The endpoint refuses a single block.
            SourceError: It does not answer.
        """
        pieces, parts = list(span.cut(self._cap(endpoint, len(span)))), []
        while pieces:
            answers = await self._ask(endpoint, pieces, query)
            smaller_pieces: list[Span] = []
            for piece, answer in zip(pieces, answers, strict=True):
                if isinstance(answer, ResponseTooLarge):
                    smaller_pieces += piece.cut(self._shrink(endpoint, piece, answer))
                elif isinstance(answer, SourceError):
                    raise answer
                else:
                    parts.append(_check_in_piece(endpoint, piece, answer))
            if not smaller_pieces:
                self._grow(endpoint)
            pieces = sorted(smaller_pieces)
        if len(parts) > 1:
            parts.sort(key=lambda part: int(part.height[0]) if len(part) else -1)
        return columns.join(parts)

    async def _ask(self, endpoint: Endpoint, pieces: Sequence[Span], query: Query) -> Sequence[Logs | SourceError]:
        """Return the logs of each piece, or its error, which is the same for all if the whole was too large."""
        reads = [Request("eth_getLogs", ({**_range(piece), **query.filter()},)) for piece in pieces]
        try:
            if len(reads) == 1:
                return [await endpoint.ask_large(reads[0], parse, height=pieces[0].first)]
            answers = await endpoint.ask(reads, height=pieces[0].first)
        except ResponseTooLarge as refusal:
            return [refusal] * len(pieces)
        return [
            answer if isinstance(answer, SourceError) else await asyncio.to_thread(parse, endpoint.name, answer)
            for answer in answers
        ]

    def _cap(self, endpoint: Endpoint, max_size: int) -> int:
        structural = endpoint.capabilities.get("max_span", max_size)
        return max(1, min(max_size, structural, self._density.get(endpoint.name, max_size)))

    def _shrink(self, endpoint: Endpoint, piece: Span, refusal: ResponseTooLarge) -> int:
        """Return a strictly smaller size for a refused piece, and remember the limit.

        The limit of dense pieces counts for a while, others for good.

        Raises:
            BadAnswer: The piece is a single block.
        """
        endpoint.errors.note(refusal)
        if len(piece) == 1:
            raise BadAnswer(
                endpoint.name,
                f"refuses the logs of the single block {piece.first}: {refusal.reason}",
                remedy="name the contracts to index, or use an endpoint with higher limits",
            )
        if refusal.max_span is not None:
            size = min(refusal.max_span, len(piece) - 1)  # some nodes allow one less than they say
        else:
            size = -(-len(piece) // (DENSE_DIVISOR if refusal.dense else 2))
        if refusal.dense:
            self._density[endpoint.name], self._calm[endpoint.name] = size, 0
        else:
            size = min(size, endpoint.capabilities.get("max_span", size))
            endpoint.learn("max_span", size)
        return size

    def _grow(self, endpoint: Endpoint) -> None:
        """Double a density limit after a few answers without refusal; a structural limit stays."""
        if endpoint.name in self._density:
            self._calm[endpoint.name] += 1
            if self._calm[endpoint.name] >= CALM_ANSWERS_TO_GROW:
                self._density[endpoint.name] *= 2
                self._calm[endpoint.name] = 0

    async def _complete(self, endpoint: Endpoint, chunk: Chunk, query: Query) -> Chunk:
        """Check a chunk against its headers, and return it with logs that only a second read has.

        Blocks whose bloom promises missing logs are read again by hash. Those that still have no logs are proven, or
        compared with another endpoint. Blooms are ignored if the integrity is "off".

        Raises:
            SourceError: The logs contradict the headers, a proof or another endpoint, or a read failed.
        """
        bloom = self.integrity != "off"
        missing = await asyncio.to_thread(check_logs, endpoint.name, chunk.logs, chunk.headers, query, bloom=bloom)
        without_logs = [chunk.headers[int(height) - chunk.span.first] for height in missing]
        if without_logs:
            second_answers = await self._by_hash(endpoint, [header.hash for header in without_logs], query)
            without_logs = [header for header, logs in zip(without_logs, second_answers, strict=True) if len(logs) == 0]
            chunk = await self._add_omitted(endpoint, chunk, second_answers, query)
        await self._prove(endpoint, chunk, without_logs, query)
        return chunk

    async def _add_omitted(
        self, endpoint: Endpoint, chunk: Chunk, second_answers: Sequence[Logs], query: Query
    ) -> Chunk:
        """Return the chunk with the logs that only second answers had; note them as omitted by the endpoint.

        Without any it is returned unchanged. Raises BadAnswer if they contradict headers.
        """
        count = sum(len(logs) for logs in second_answers)
        if count == 0:
            return chunk
        span = chunk.span
        endpoint.errors.note(OmittedLogs(endpoint.name, f"left out {count} logs in blocks {span.first}..{span.last}"))
        logs = _merge_logs(endpoint.name, [chunk.logs, *second_answers])
        check_logs(endpoint.name, logs, chunk.headers, query)
        return Chunk(span, logs, chunk.headers, count)

    async def _prove(self, endpoint: Endpoint, chunk: Chunk, without_logs: Sequence[Header], query: Query) -> None:
        """Check blocks that lack logs although their blooms promise some, and a sample of others.

        With "roots", the receipts decide, under the root that the header's hash covers. Otherwise a block without logs
        counts if another endpoint gives none either; without another endpoint it counts, because a bloom may promise
        too much. With a quorum, whose endpoints are compared anyway, no further endpoint is asked.
        """
        witnesses = [candidate for candidate in self.node.ranked() if candidate is not endpoint]
        if are_receipts_proven(self.node.facts, self.integrity):
            heights = {header.height for header in without_logs}
            chance = self.node.environment.random
            sampled = [h for h in chunk.headers if h.height not in heights and chance.randrange(self.sample) == 0]
            await prove_logs(self.node.facts, endpoint, chunk.logs, [*without_logs, *sampled], query)
        elif self.integrity != "off" and without_logs and witnesses and self.node.quorum < 2:
            await self._corroborate(endpoint, witnesses[0], without_logs, query)

    async def _corroborate(
        self, endpoint: Endpoint, witness: Endpoint, without_logs: Sequence[Header], query: Query
    ) -> None:
        """Compare blocks without logs with another endpoint, `witness`; if that fails, nothing is compared.

        Raises:
            OmittedLogs: The witness has logs of one of them.
        """
        try:
            second_answers = await self._by_hash(witness, [header.hash for header in without_logs], query)
            for header, logs in zip(without_logs, second_answers, strict=True):
                check_logs(witness.name, logs, [header], query)
        except SourceError as error:
            witness.errors.note(error)
            return
        for header, logs in zip(without_logs, second_answers, strict=True):
            if len(logs):
                raise OmittedLogs(endpoint.name, f"left out {len(logs)} logs of block {header.height}, twice")

    async def _by_hash(self, endpoint: Endpoint, hashes: Sequence[str], query: Query) -> list[Logs]:
        """Read the logs of single blocks by hash; raise Unavailable if the node refuses one."""
        answers = await endpoint.ask([Request("eth_getLogs", ({"blockHash": h, **query.filter()},)) for h in hashes])
        parts = []
        for answer in answers:
            if isinstance(answer, SourceError):
                raise Unavailable(endpoint.name, f"cannot give the logs of a block by its hash: {answer.reason}")
            parts.append(parse(endpoint.name, answer))
        return parts


async def _run_both(
    first: Coroutine[None, None, FirstResult], second: Coroutine[None, None, SecondResult]
) -> tuple[FirstResult, SecondResult]:
    """Run two coroutines together; if one fails, cancel the other and raise its error."""
    try:
        async with asyncio.TaskGroup() as group:
            first_task, second_task = group.create_task(first), group.create_task(second)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return first_task.result(), second_task.result()


class OmittedLogs(BadAnswer):
    """Logs that a first answer left out and a second one gave."""


def chunk_key(chunk: Chunk) -> Hashable:
    """Return a digest of a chunk's headers and logs, without the logs' times and block hashes."""
    logs, digest = chunk.logs, hashlib.sha256()
    for column in (logs.height, logs.tx_index, logs.log_index, logs.address, logs.tx_hash, logs.data_size, logs.word):
        digest.update(np.ascontiguousarray(column).tobytes())
    for k, topic in enumerate(logs.topics):
        digest.update(topic[logs.topic_count > k].tobytes())
    digest.update(repr(sorted(logs.other.items())).encode())
    digest.update(repr([header_key(header) for header in chunk.headers]).encode())
    return f"{len(logs)} logs in {len(chunk.headers)} headers, digest {digest.hexdigest()[:16]}"


def _check_in_piece(endpoint: Endpoint, piece: Span, logs: Logs) -> Logs:
    """Return the logs; raise BadAnswer if one lies outside of the piece, because it would count twice."""
    if len(logs) and (int(logs.height[0]) not in piece or int(logs.height[-1]) not in piece):
        raise BadAnswer(endpoint.name, "logs from outside the span that was asked for")
    return logs


def _join_chunks(source: str, first: Chunk, second: Chunk) -> Chunk:
    """Return two chunks of the same blocks as one."""
    return Chunk(
        first.span, _merge_logs(source, [first.logs, second.logs]), first.headers, first.restored + second.restored
    )


def _merge_logs(source: str, parts: Sequence[Logs]) -> Logs:
    """Merge logs in the order of the chain; raise BadAnswer if two share a position."""
    logs = columns.join(parts)
    logs = logs.take(np.lexsort((logs.log_index, logs.height)))
    if ((np.diff(logs.height) == 0) & (np.diff(logs.log_index) == 0)).any():
        raise BadAnswer(source, "two logs at one place of a block")
    return logs


def _heights(span: Span) -> range:
    return range(span.first, span.last + 1)


def _range(span: Span) -> dict[str, object]:
    return {"fromBlock": hex_of(span.first), "toBlock": hex_of(span.last)}
