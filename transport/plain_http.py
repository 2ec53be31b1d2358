"""HTTP without TLS, as nodes near by speak it: small answers by the thousand, and large ones, without a thread.

Loading a client that can do everything takes a tenth of a second, and its work on a small answer takes longer than to
read that answer. This one speaks what a node speaks: a question at a time on a connection that is kept for the next.
"""

from __future__ import annotations

import asyncio
import itertools
import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from chainfolio.errors import Unavailable
from chainfolio.memory import ByteBudget, Lease
from chainfolio.transport.exchange import (
    CONNECT_S,
    PIECE,
    Body,
    HttpResponse,
    NoResponse,
    Sink,
    StreamedBody,
    asked_by,
    retry_after,
    room_for,
    unreachable,
)
from chainfolio.transport.http_connection import Line, connected
from chainfolio.transport.http_head import (
    END,
    MAX_HEAD,
    Address,
    Head,
    address_of,
    chunk_size,
    head_of,
    request,
    trailer,
)

_SCHEME = len("http://")
_INTERIM = 8  # answers of 1xx before the one that counts
_CHUNKS = 256  # chunks that are read while nobody else has a turn: those of a byte each come by the ten thousand


@dataclass(frozen=True, slots=True)
class _Peer:
    """One server: whose turn it is to ask it, so that one that hangs holds up no other, and who is kept."""

    gate: asyncio.Semaphore
    idle: list[Line] = field(default_factory=list)

    def kept(self) -> Line | None:
        """A connection that is still open, if there is one."""
        while self.idle:
            line = self.idle.pop()
            if line.is_quiet:
                return line
            line.close()
        return None


@dataclass(frozen=True, slots=True)
class _Question:
    """A request as it is written, to whom it goes, and who takes the answer: a sink, or a body of so many bytes."""

    source: str
    address: Address
    written: bytes
    room: int
    lease: Lease
    sink: Sink | None


class PlainTransport:
    """At most so many exchanges at once with each server, each on a connection that is kept for the next one."""

    def __init__(
        self, budget: ByteBudget, *, connections: int, max_body: int, headers: Mapping[str, str] | None = None
    ) -> None:
        self.budget, self._headers = budget, headers or {}
        self._max_body = max_body
        self._addresses: dict[str, Address] = {}
        self._peers = defaultdict[tuple[str, int], _Peer](lambda: _Peer(asyncio.Semaphore(connections)))
        self._is_closed = False

    async def exchange(
        self, source: str, url: str, body: bytes | None, timeout_s: float, sink: Sink | None = None
    ) -> HttpResponse:
        """Post a body, or get what is asked by the address alone, for a sink where there is one; no retry, no
        redirect."""
        try:
            address, asked = self._request(url, body, sink)
        except ValueError as error:  # a port that is none
            raise unreachable(source, error) from None
        lease, is_answered = self.budget.lease(), False
        try:
            peer = self._peers[address.host, address.port]
            async with asyncio.timeout(timeout_s), peer.gate:
                room = room_for(body, self._max_body)
                posted = await self._exchanged(peer, _Question(source, address, asked, room, lease, sink))
                is_answered = True
                return posted
        except TimeoutError:
            raise NoResponse(source, timeout_s) from None
        except (OSError, ValueError, zlib.error) as error:
            raise Unavailable(source, f"the connection broke ({type(error).__name__})") from None
        finally:
            if not is_answered:  # nobody else knows of the lease
                lease.give_back()

    def _request(self, url: str, body: bytes | None, sink: Sink | None) -> tuple[Address, bytes]:
        at = min((at for at in (url.find(mark, _SCHEME) for mark in "/?#") if at > 0), default=len(url))
        if sink is not None:
            address = address_of(url[:at], {**self._headers, **asked_by(sink)})
        elif (known := self._addresses.get(url[:at])) is None:
            address = self._addresses[url[:at]] = address_of(url[:at], self._headers)
        else:
            address = known
        return address, request(address, url[at:], body)

    async def _exchanged(self, peer: _Peer, question: _Question) -> HttpResponse:
        """Asked on a kept connection if there is one. Where that ends without a byte, the other side hung up as it was
        asked: it is asked once more, for every question may be asked twice."""
        if (line := peer.kept()) is not None:
            try:
                return await self._asked(peer, line, question)
            except ConnectionResetError:
                if line.is_heard:
                    raise
        return await self._asked(peer, await _connected(question.source, question.address), question)

    async def _asked(self, peer: _Peer, line: Line, question: _Question) -> HttpResponse:
        is_kept = False
        try:
            line.send(question.written)
            sink = question.sink
            head = await _head(line, sink.reads if sink is not None else frozenset())
            if sink is not None and head.status == 200:
                handed = StreamedBody(sink, head.more, head.length, head.encoding)
                await _read(line, head, handed)
                is_kept = head.is_kept and not self._is_closed
                return HttpResponse(head.status, None, b"", question.lease, handed.took)
            body = Body(question.source, question.room, question.lease, head.encoding)
            body.announced(head.length)
            await _read(line, head, body)
            is_kept = head.is_kept and not self._is_closed
            return HttpResponse(head.status, retry_after(head.retry_after), body.whole(), question.lease)
        finally:
            if is_kept:
                line.keep()
                peer.idle.append(line)
            else:
                line.close()

    async def close(self) -> None:
        """Let go of all connections; those in use are let go when their answer is there."""
        self._is_closed = True
        for peer in self._peers.values():
            while peer.idle:
                peer.idle.pop().close()
        await asyncio.sleep(0)  # the event loop closes them at its next turn


async def _connected(source: str, address: Address) -> Line:
    try:
        async with asyncio.timeout(CONNECT_S):
            return await connected(address.host, address.port)
    except (OSError, ValueError) as error:
        raise unreachable(source, error) from None


async def _head(line: Line, more: frozenset[bytes]) -> Head:
    for _ in range(_INTERIM):
        head = head_of(await line.until(END, MAX_HEAD), more)
        if head.status >= 200:
            return head
        if head.status == 101:
            break
    raise ValueError("no answer but interim ones")


async def _read(line: Line, head: Head, body: Body | StreamedBody) -> None:
    """All of a body. TooMuch as soon as it is known to outgrow its bound."""
    if head.is_chunked:
        await _read_chunks(line, body)
    elif head.length is None:
        while len(piece := await line.last()):
            await body.take(piece)
    else:
        await _read_some(line, head.length, body)


async def _read_chunks(line: Line, body: Body | StreamedBody) -> None:
    for count in itertools.count(1):
        if not (size := chunk_size(await line.until(b"\r\n", MAX_HEAD))):
            break
        await _read_some(line, size, body)
        await line.until(b"\r\n", 0)  # ValueError where the chunk is longer than announced
        if not count % _CHUNKS:
            await asyncio.sleep(0)
    left = MAX_HEAD
    while written := await line.until(b"\r\n", left):
        trailer(written)
        left -= len(written)


async def _read_some(line: Line, count: int, body: Body | StreamedBody) -> None:
    while count:
        piece = await line.piece(min(count, PIECE))
        count -= len(piece)
        await body.take(piece)
