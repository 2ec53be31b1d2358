"""Bulk logs: as wide a span as each endpoint allows, learnt as it goes, and checked before it is believed.

Two kinds of caps are told apart. A structural one ("limited to 50 blocks") holds everywhere: it is remembered for good.
A density one ("more than 10,000 results") holds for the stretch of chain at hand: it is forgotten again as answers get
smaller. Every refusal makes the next question strictly smaller, so there is no standing still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from adapters.evm import logs as columns
from adapters.evm.endpoint import Answer, Endpoint
from adapters.evm.integrity import Query, check_links, check_logs
from adapters.evm.logs import Logs
from adapters.evm.node import Header, Node, headers_of, hex_of
from adapters.evm.wire import Request
from chainfolio.blocks import Block, Span
from chainfolio.errors import BadAnswer, SourceError, TooMuch, Unavailable

T = TypeVar("T")
U = TypeVar("U")
DENSE_CUT = 8
GROW_AFTER = 4


@dataclass(slots=True)
class Chunk:
    """One span as it came: logs, headers where they were wanted, and how many logs had to be asked for again."""

    span: Span
    logs: Logs
    headers: list[Header]
    restored: int = 0


class LogReader:
    """Reads spans of logs from a chain's nodes."""

    def __init__(self, node: Node, *, integrity: str = "bloom") -> None:
        self.node, self.integrity = node, integrity
        self._density: dict[str, int] = {}
        self._calm: dict[str, int] = {}

    async def read(self, span: Span, query: Query, before: Block | None = None, *, headers: bool = False) -> Chunk:
        """The logs of one span, verified against the headers of its blocks unless integrity is off."""

        async def at(endpoint: Endpoint) -> Chunk:
            if headers or self.integrity != "off":
                logs, chain = await _both(self._logs(endpoint, span, query), headers_of(endpoint, _heights(span)))
            else:
                logs = await self._logs(endpoint, span, query)
                if len(logs) == 0 or bool((logs.time_s >= 0).all()):
                    return Chunk(span, logs, [])
                chain = await headers_of(endpoint, _heights(span))
            check_links(endpoint.name, chain, before)
            return await self._complete(endpoint, Chunk(span, logs, chain), query)

        return await self.node.with_any(at)

    async def read_headers(self, span: Span, before: Block | None = None) -> Chunk:
        """The headers of one span, linked, without any log."""

        async def at(endpoint: Endpoint) -> Chunk:
            chain = await headers_of(endpoint, _heights(span))
            check_links(endpoint.name, chain, before)
            return Chunk(span, Logs.blank(0), chain)

        return await self.node.with_any(at)

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
                    parts.append(
                        _within(endpoint, piece, await asyncio.to_thread(columns.parse, endpoint.name, answer))
                    )
            if not refused:
                self._grow(endpoint)
            pieces = sorted(refused)
        if len(parts) > 1:
            parts.sort(key=lambda part: int(part.height[0]) if len(part) else -1)
        return columns.join(parts)

    async def _ask(self, endpoint: Endpoint, pieces: Sequence[Span], query: Query) -> Sequence[Answer | memoryview]:
        asks = [Request("eth_getLogs", ({**_range(piece), **query.filter()},)) for piece in pieces]
        try:
            if len(asks) == 1:
                return [await endpoint.big(asks[0], height=pieces[0].first)]
            return await endpoint.ask(asks, height=pieces[0].first)
        except TooMuch as refusal:
            return [refusal] * len(pieces)

    def _cap(self, endpoint: Endpoint, wanted: int) -> int:
        structural = endpoint.learnt.get("max_span", wanted)
        return max(1, min(wanted, structural, self._density.get(endpoint.name, wanted)))

    def _shrink(self, endpoint: Endpoint, piece: Span, refusal: TooMuch) -> int:
        """A strictly smaller size for a refused piece, remembered as a rule of the node or as a dense stretch."""
        endpoint.trouble.note(refusal)
        if len(piece) == 1:
            raise BadAnswer(
                endpoint.name, f"refuses the logs of the single block {piece.first}: {refusal.reason}",
                cure="name the contracts to index, or use an endpoint with higher limits",
            )  # fmt: skip
        if refusal.max_span is not None:
            size = min(refusal.max_span, len(piece) - 1)  # a node may mean one less than it says
        else:
            size = -(-len(piece) // (DENSE_CUT if refusal.dense else 2))
        if refusal.dense:
            self._density[endpoint.name], self._calm[endpoint.name] = size, 0
        else:
            size = min(size, endpoint.learnt.get("max_span", size))
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
        if len(missing) == 0:
            return chunk
        first = chunk.span.first
        again = await self._by_hash(endpoint, [chunk.headers[int(height) - first].hash for height in missing], query)
        count = sum(len(logs) for logs in again)
        if count == 0:
            return chunk  # a bloom may also promise what is not there
        endpoint.trouble.note(Omitted(endpoint.name, f"left out {count} logs in blocks {first}..{chunk.span.last}"))
        logs = _merged(endpoint.name, [chunk.logs, *again])
        check_logs(endpoint.name, logs, chunk.headers, query)
        return Chunk(chunk.span, logs, chunk.headers, count)

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


def _within(endpoint: Endpoint, piece: Span, logs: Logs) -> Logs:
    """Logs from elsewhere would be counted twice: with this piece and with their own."""
    if len(logs) and (int(logs.height[0]) not in piece or int(logs.height[-1]) not in piece):
        raise BadAnswer(endpoint.name, "logs from outside the span that was asked for")
    return logs


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
