"""One connection, read piece by piece: what arrives stays in a room of fixed size until somebody takes it."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Sequence
from typing import Final, TypeAlias, cast

ROOM: Final = 1 << 18
KEPT_S: Final = 15.0  # firewalls forget a silent connection within minutes, and tell nobody
NEXT_S: Final = 0.25  # what an address has before the next one is tried beside it
Found: TypeAlias = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[object, ...]]


class Line(asyncio.BufferedProtocol):
    """What the other side sent and nobody has taken yet. While the room is full, nothing is read."""

    def __init__(self) -> None:
        self._room = bytearray(ROOM)
        self._view = memoryview(self._room)
        self._start = self._end = 0
        self._least = 1
        self._waiter: asyncio.Future[None] | None = None
        self._is_over = self._is_ended = self._is_paused = False
        self._kept_s = 0.0
        self.is_heard = False  # whether anything came since something was sent
        self._transport: asyncio.Transport

    # --- what the event loop calls -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        self._transport, self._loop = cast("asyncio.Transport", transport), asyncio.get_running_loop()
        self._unasked = select.poll()
        self._unasked.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: behind what is there."""
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes more are there."""
        self._end += nbytes
        self.is_heard = True
        if self._end == ROOM:
            self._is_paused = True
            self._transport.pause_reading()
        if self._end - self._start >= self._least or self._is_paused:
            self._wake()

    def eof_received(self) -> None:
        """The other side sends nothing any more: it ended what it said."""
        self._is_over = self._is_ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing comes any more."""
        self._is_over = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- what is read ------------------------------------------------------------------------------------------------

    async def until(self, mark: bytes, most: int) -> bytes:
        """What comes before a mark, which is taken, too; ValueError where so many bytes have none."""
        while (at := self._room.find(mark, self._start, self._end)) < 0:
            if self._end - self._start >= most + len(mark):
                raise ValueError("a line without an end")
            await self._more(1)
        if at - self._start > most:
            raise ValueError("a line without an end")
        found = bytes(self._view[self._start : at])
        self._start = at + len(mark)
        return found

    async def piece(self, most: int) -> memoryview:
        """What comes next, so many bytes at most; it is there until the next is asked for."""
        if self._end - self._start < min(most, ROOM):
            await self._more(most)
        return self._taken(most)

    async def last(self) -> memoryview:
        """As `piece`, of what ends with the connection: nothing once it has."""
        if self._start == self._end:
            try:
                await self._more(1)
            except ConnectionResetError:
                if not self._is_ended:
                    raise
        return self._taken(ROOM)

    def _taken(self, most: int) -> memoryview:
        found = self._view[self._start : min(self._end, self._start + most)]
        self._start += len(found)
        return found

    async def _more(self, most: int) -> None:
        """Wait for what fills the room, or so many bytes; ConnectionResetError where they do not come."""
        if self._start:
            kept = self._end - self._start
            self._room[:kept] = self._room[self._start : self._end]
            self._start, self._end = 0, kept
        self._least = min(most, ROOM)
        before = self._end
        if not self._is_over:
            if self._is_paused:
                self._is_paused = False
                self._transport.resume_reading()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter, self._least = None, 1
        if self._end == before:
            raise ConnectionResetError("the other side hung up")

    # --- the rest ----------------------------------------------------------------------------------------------------

    def send(self, content: bytes) -> None:
        """Send."""
        self.is_heard = False
        self._transport.write(content)

    def keep(self) -> None:
        """Nothing more is expected until the next question."""
        self._kept_s = self._loop.time()

    @property
    def is_quiet(self) -> bool:
        """Whether the other side has neither hung up nor sent what nobody asked for, as far as the system knows. Of an
        event loop that has ended no line is, nor one that was kept for long: what is between may have forgotten it."""
        if self._is_over or self._end > self._start or self._loop is not asyncio.get_running_loop():
            return False
        return self._loop.time() < self._kept_s + KEPT_S and not self._unasked.poll(0)

    def close(self) -> None:
        """Hang up."""
        if not self._loop.is_closed():
            self._transport.abort()


async def connected(host: str, port: int) -> Line:
    """A connection to the first address of a host that takes one; OSError of the last where none does, ValueError of
    what can be no name."""
    loop = asyncio.get_running_loop()
    try:  # a number is no name: nobody has to be asked for it
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    made = await _first(found)
    try:
        return (await loop.create_connection(Line, sock=made))[1]
    except BaseException:  # whoever is called off: nothing stays open
        made.close()
        raise


async def _first(found: Sequence[Found]) -> socket.socket:
    """The first address that takes a connection; OSError of the last where none does. Each has a moment of its own
    (RFC 8305): one that is silent, as where a network has no way out, does not hold up the others."""
    left, waiting = list(found), set[asyncio.Task[socket.socket]]()
    error: BaseException | None = None
    try:
        while left or waiting:
            if left:
                waiting.add(asyncio.create_task(_opened(left.pop(0))))
            done, _ = await asyncio.wait(waiting, timeout=NEXT_S if left else None, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                waiting.remove(each)
                if (error := each.exception()) is None:
                    return each.result()
        raise error or OSError("a name without an address")
    finally:  # nothing is waited for here: whoever is called off twice would leave connections open
        for each in waiting:
            each.cancel()
            each.add_done_callback(_let_go)


def _let_go(late: asyncio.Task[socket.socket]) -> None:
    """Hang up where a connection came about that nobody wants any more."""
    if not late.cancelled() and late.exception() is None:
        late.result().close()


async def _opened(where: Found) -> socket.socket:
    """A connection to one address."""
    family, kind, number, _, address = where
    made = socket.socket(family, kind, number)
    try:
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, address)
    except BaseException:  # whoever is called off: nothing stays open
        made.close()
        raise
    return made
