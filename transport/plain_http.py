"""HTTP without TLS, as nodes near by speak it: small answers by the thousand, and large ones, without a thread.

Loading a client that can do everything takes a tenth of a second, and its work on a small answer takes longer than to
read that answer. This one speaks what a node speaks: a question at a time on a connection that is kept for the next.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping

from chainfolio.errors import Unavailable
from chainfolio.memory import ByteBudget, Lease
from transport.exchange import (
    CONNECT_S,
    PIECE,
    Body,
    HandedOn,
    Posted,
    Sink,
    asked_by,
    retry_after,
    room_for,
    unreachable,
)
from transport.http_head import END, MAX_HEAD, Address, Head, address_of, chunk_size, head_of, request
from transport.http_line import Line, connected

_SCHEME = len("http://")
_INTERIM = 8  # answers of 1xx before the one that counts


class PlainTransport:
    """At most so many exchanges at once, each on a connection that is kept for the next one."""

    def __init__(
        self, budget: ByteBudget, *, connections: int, max_body: int, headers: Mapping[str, str] | None = None
    ) -> None:
        self.budget, self._headers = budget, headers or {}
        self._max_body = max_body
        self._gate = asyncio.Semaphore(connections)
        self._addresses: dict[str, Address] = {}
        self._idle: dict[tuple[str, int], list[Line]] = {}
        self._is_closed = False

    async def exchange(
        self, source: str, url: str, body: bytes | None, timeout_s: float, sink: Sink | None = None
    ) -> Posted:
        """Post a body, or get what is asked by the address alone, for a sink where there is one; no retry, no
        redirect."""
        try:
            address, asked = self._request(url, body, sink)
        except ValueError as error:  # a port that is none
            raise unreachable(source, error) from None
        lease, is_answered = self.budget.lease(), False
        try:
            async with asyncio.timeout(timeout_s), self._gate:
                room = room_for(body, self._max_body)
                posted = await self._exchanged(source, address, asked, room, lease, sink)
                is_answered = True
                return posted
        except TimeoutError:
            raise Unavailable(source, f"no answer within {timeout_s:g} s") from None
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

    async def _exchanged(
        self, source: str, address: Address, asked: bytes, room: int, lease: Lease, sink: Sink | None
    ) -> Posted:
        line = self._kept(address) or await self._connected(source, address)
        is_kept = False
        try:
            line.send(asked)
            head = await _head(line, sink.reads if sink is not None else frozenset())
            if sink is not None and head.status == 200:
                handed = HandedOn(sink, head.more, head.length, head.encoding)
                await _read(line, head, handed)
                is_kept = head.is_kept and not self._is_closed
                return Posted(head.status, None, b"", lease, handed.took)
            body = Body(source, room, lease, head.encoding)
            body.announced(head.length)
            await _read(line, head, body)
            is_kept = head.is_kept and not self._is_closed
            return Posted(head.status, retry_after(head.retry_after), body.whole(), lease)
        finally:
            if is_kept:
                self._idle.setdefault((address.host, address.port), []).append(line)
            else:
                line.close()

    def _kept(self, address: Address) -> Line | None:
        """A connection that is still open, if there is one."""
        lines = self._idle.get((address.host, address.port))
        while lines:
            line = lines.pop()
            if line.is_quiet:
                return line
            line.close()
        return None

    async def _connected(self, source: str, address: Address) -> Line:
        try:
            async with asyncio.timeout(CONNECT_S):
                return await connected(address.host, address.port)
        except TimeoutError:
            raise
        except OSError as error:
            raise unreachable(source, error) from None

    async def close(self) -> None:
        """Let go of all connections; those in use are let go when their answer is there."""
        self._is_closed = True
        for lines in self._idle.values():
            while lines:
                lines.pop().close()
        await asyncio.sleep(0)  # the event loop closes them at its next turn


async def _head(line: Line, more: frozenset[bytes]) -> Head:
    for _ in range(_INTERIM):
        head = head_of(await line.until(END, MAX_HEAD), more)
        if head.status >= 200:
            return head
        if head.status == 101:
            break
    raise ValueError("no answer but interim ones")


async def _read(line: Line, head: Head, body: Body | HandedOn) -> None:
    """All of a body. TooMuch as soon as it is known to outgrow its bound."""
    if head.is_chunked:
        await _read_chunks(line, body)
    elif head.length is None:
        while len(piece := await line.last()):
            await body.take(piece)
    else:
        await _read_some(line, head.length, body)


async def _read_chunks(line: Line, body: Body | HandedOn) -> None:
    while size := chunk_size(await line.until(b"\r\n", MAX_HEAD)):
        await _read_some(line, size, body)
        await line.until(b"\r\n", 0)  # ValueError where the chunk is longer than announced
    left = MAX_HEAD
    while trailer := await line.until(b"\r\n", left):
        left -= len(trailer)


async def _read_some(line: Line, count: int, body: Body | HandedOn) -> None:
    while count:
        piece = await line.piece(min(count, PIECE))
        count -= len(piece)
        await body.take(piece)
