"""One TCP connection, read piece by piece through a buffer of fixed size."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Sequence
from typing import Final, TypeAlias, cast

BUFFER_SIZE: Final = 1 << 18
MAX_IDLE_S: Final = 15.0  # firewalls silently drop an idle connection within minutes
NEXT_ADDRESS_S: Final = 0.25  # after this time the next address is tried in parallel
AddressInfo: TypeAlias = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[object, ...]]


class Connection(asyncio.BufferedProtocol):
    """A connection with a buffer of received bytes. While the buffer is full, nothing is read."""

    def __init__(self) -> None:
        """Begin with an empty buffer; `connect` makes connections."""
        self._buffer = bytearray(BUFFER_SIZE)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._min_bytes = 1
        self._waiter: asyncio.Future[None] | None = None
        self._is_over = self._is_ended = self._is_paused = False
        self._idle_since_s = 0.0
        self.is_answered = False  # bytes arrived since the last `send`
        self._transport: asyncio.Transport

    # --- callbacks of the event loop ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport and watch its socket."""
        self._transport, self._loop = cast("asyncio.Transport", transport), asyncio.get_running_loop()
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the free part of the buffer."""
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Count received bytes, pause if the buffer is full, and wake the reader."""
        self._end += nbytes
        self.is_answered = True
        if self._end == BUFFER_SIZE:
            self._is_paused = True
            self._transport.pause_reading()
        if self._end - self._start >= self._min_bytes or self._is_paused:
            self._wake()

    def eof_received(self) -> None:
        """Mark the stream as ended in an orderly way."""
        self._is_over = self._is_ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Mark the connection as closed."""
        self._is_over = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def read_until(self, mark: bytes, max_bytes: int) -> bytes:
        """Read up to a mark and drop the mark.

        Raises:
            ValueError: The mark does not follow within `max_bytes`.
            ConnectionResetError: The connection ended before the mark.
        """
        while (position := self._buffer.find(mark, self._start, self._end)) < 0:
            if self._end - self._start >= max_bytes + len(mark):
                raise ValueError("a line without an end")
            await self._receive(1)
        if position - self._start > max_bytes:
            raise ValueError("a line without an end")
        content = bytes(self._view[self._start : position])
        self._start = position + len(mark)
        return content

    async def read_piece(self, max_bytes: int) -> memoryview:
        """Wait for `max_bytes` or a full buffer, and return them; they are valid until the next read.

        If the connection ends earlier, the bytes before its end are returned.

        Raises:
            ConnectionResetError: It ended without any more bytes.
        """
        if self._end - self._start < min(max_bytes, BUFFER_SIZE):
            await self._receive(max_bytes)
        return self._consume(max_bytes)

    async def read_to_end(self) -> memoryview:
        """Return the next bytes of a body that ends with the connection; empty after its end.

        Raises:
            ConnectionResetError: The connection broke.
        """
        if self._start == self._end:
            try:
                await self._receive(1)
            except ConnectionResetError:
                if not self._is_ended:
                    raise
        return self._consume(BUFFER_SIZE)

    def _consume(self, max_bytes: int) -> memoryview:
        content = self._view[self._start : min(self._end, self._start + max_bytes)]
        self._start += len(content)
        return content

    async def _receive(self, min_bytes: int) -> None:
        """Wait for `min_bytes` new bytes, a full buffer, or the end of the connection.

        Unread bytes move to the start of the buffer. Raises ConnectionResetError if nothing new arrived.
        """
        if self._start:
            unread = self._end - self._start
            self._buffer[:unread] = self._buffer[self._start : self._end]
            self._start, self._end = 0, unread
        self._min_bytes = min(min_bytes, BUFFER_SIZE)
        end_before = self._end
        if not self._is_over:
            if self._is_paused:
                self._is_paused = False
                self._transport.resume_reading()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter, self._min_bytes = None, 1
        if self._end == end_before:
            raise ConnectionResetError("the other side hung up")

    # --- writing and reuse -------------------------------------------------------------------------------------------

    def send(self, content: bytes) -> None:
        """Send bytes without waiting, and reset `is_answered`."""
        self.is_answered = False
        self._transport.write(content)

    def mark_idle(self) -> None:
        """Start the idle time: the response is complete."""
        self._idle_since_s = self._loop.time()

    @property
    def is_reusable(self) -> bool:
        """True if the connection can carry another request.

        False if it was closed, received unrequested bytes, was idle for MAX_IDLE_S, or belongs to another event loop.
        """
        if self._is_over or self._end > self._start or self._loop is not asyncio.get_running_loop():
            return False
        return self._loop.time() < self._idle_since_s + MAX_IDLE_S and not self._poll.poll(0)

    def close(self) -> None:
        """Close the connection."""
        if not self._loop.is_closed():
            self._transport.abort()


async def connect(host: str, port: int) -> Connection:
    """Connect to the first address of a host that accepts.

    Raises:
        OSError: No address accepts, or the name has none; the error of the last address.
        ValueError: The host cannot be a name.
    """
    loop = asyncio.get_running_loop()
    try:  # a numeric address needs no lookup
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    sock = await _connect_first(addresses)
    try:
        return (await loop.create_connection(Connection, sock=sock))[1]
    except BaseException:  # also if cancelled
        sock.close()
        raise


async def _connect_first(addresses: Sequence[AddressInfo]) -> socket.socket:
    """Connect to the first address that accepts; OSError of the last if none does.

    Each next address is tried after NEXT_ADDRESS_S (RFC 8305), so a silent one does not delay the others.
    """
    remaining, pending = list(addresses), set[asyncio.Task[socket.socket]]()
    error: BaseException | None = None
    try:
        while remaining or pending:
            if remaining:
                pending.add(asyncio.create_task(_connect(remaining.pop(0))))
            timeout_s = NEXT_ADDRESS_S if remaining else None
            finished, _ = await asyncio.wait(pending, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            for each in finished:
                pending.remove(each)
                if (error := each.exception()) is None:
                    return each.result()
        raise error or OSError("a name without an address")
    finally:  # without waiting: a second cancellation would leave connections open
        for each in pending:
            each.cancel()
            each.add_done_callback(_close_socket)


def _close_socket(task: asyncio.Task[socket.socket]) -> None:
    """Close the socket of a task that connected too late."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def _connect(info: AddressInfo) -> socket.socket:
    """Connect to one address; OSError if it does not accept."""
    family, kind, number, _, address = info
    sock = socket.socket(family, kind, number)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:  # also if cancelled
        sock.close()
        raise
    return sock
