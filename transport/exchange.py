"""One HTTP exchange, for all clients: size bounds, the incoming body, and errors."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Protocol

from chainfolio.errors import ResponseTooLarge, Unavailable
from chainfolio.memory import Lease

# Bytes of a response: of blocks, logs, traces, lists of accounts and everything other than JSON-RPC
MAX_BODY = 96 * 1024 * 1024
MAX_SMALL_BODY = 16 * 1024 * 1024  # bytes of the response to any other call
_LARGE = re.compile(
    rb'"method":"(?:eth_getLogs|eth_getBlock|eth_getTransactionReceipt|trace_|debug_trace|'
    rb'get(?:Block|Transaction|MultipleAccounts|ProgramAccounts|TokenAccountsByOwner)")'
)
CONNECT_S = 10.0
PIECE = 1 << 18
SMALL = 1 << 20
LITTLE = 1 << 13
_GZIP = 16 + zlib.MAX_WBITS
_LOCAL_ERRORS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))  # this machine lacks resources


class Unreachable(Unavailable):
    """No connection to the endpoint could be opened."""


class NoResponse(Unavailable):
    """The endpoint accepted the request and did not answer in time."""

    def __init__(self, source: str, timeout_s: float) -> None:
        remedy = "is the node busy, and is the address right?"
        super().__init__(source, f"no answer within {timeout_s:g} s", remedy=remedy)


class RateLimited(Unavailable):
    """The endpoint limits the rate of requests: status 429, or an error message that says so."""


def response_limit(request: bytes | None, max_body: int) -> int:
    """Return the maximum size of a response in bytes.

    It is `max_body` for GET and for methods with large results, else at most MAX_SMALL_BODY.

    Args:
        request: The body of the request; None for GET.
        max_body: Limit of the transport in bytes.
    """
    if request is None or b'"method":' not in request or _LARGE.search(request):
        return max_body
    return min(max_body, MAX_SMALL_BODY)


def too_large(source: str, max_bytes: int) -> ResponseTooLarge:
    """Return the error for a response that is larger than its limit."""
    return ResponseTooLarge(source, f"an answer of more than {max_bytes // 2**20} MiB", dense=True)


def unreachable(source: str, error: Exception) -> Unavailable:
    """Return the error for a failed connection, with its cause and without the address.

    It is a plain Unavailable if this machine cannot open connections, else Unreachable.
    """
    if isinstance(error, OSError) and error.errno in _LOCAL_ERRORS:
        return Unavailable(source, f"could not be asked: {cause(error)} here")
    reason = f"cannot be reached: {cause(error)}"
    return Unreachable(source, reason, remedy="is the node running, and is the address right?")


def cause(error: Exception) -> str:
    """Describe in a few words why a connection failed."""
    inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    match inner:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted ({inner.verify_message})"
        case ssl.SSLError():
            return "it does not speak TLS as expected"
        case socket.gaierror():
            return "no host of that name is found"
        case TimeoutError(errno=None):
            return "no connection came about in time"
        case OSError(errno=int(number)):
            return os.strerror(number).lower()
    return "the address is none" if isinstance(inner, ValueError) else type(inner).__name__


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """Status, decoded body, and `Retry-After` in seconds (None if absent).

    The body counts towards the byte budget of the process until `give_back`. If a sink received the body, `body` is
    empty and `streamed_bytes` its size; otherwise `streamed_bytes` is None.
    """

    status: int
    retry_after_s: float | None
    body: bytes
    lease: Lease | None = None
    streamed_bytes: int | None = None

    def give_back(self, _: object = None) -> None:
        """Return the bytes of the body to the budget. The argument of a callback is ignored."""
        if self.lease is not None:
            self.lease.give_back()


class Sink(Protocol):
    """Consumer of a body that is too large for memory. An error that it raises ends the exchange."""

    form: str  # media type to request
    reads: frozenset[bytes]  # response headers that `begin` needs, in lower case

    def begin(self, headers: Mapping[bytes, str], size: int | None) -> None:
        """Start a body: those headers of `reads` that are present, and its size in bytes, None if unknown."""

    def take(self, piece: bytes | memoryview) -> None:
        """Consume the next bytes, which are valid only during the call."""


def accept_headers(sink: Sink) -> dict[str, str]:
    """Return the request headers for a sink: its media type, uncompressed."""
    return {"accept": sink.form, "accept-encoding": "identity"}


class StreamedBody:
    """A body that a sink receives piece by piece. `size` counts the bytes received so far."""

    def __init__(self, sink: Sink, headers: Mapping[bytes, str], size: int | None, encoding: str | None) -> None:
        """Begin the sink; ValueError for an encoded body."""
        if (encoding or "identity").lower() != "identity":
            raise ValueError("an encoding that was not asked for")
        self.size = 0
        self._sink = sink
        sink.begin(headers, size)

    async def take(self, piece: bytes | memoryview) -> None:
        """Pass a piece to the sink."""
        self.size += len(piece)
        self._sink.take(piece)


class Body:
    """A body in memory, unpacked piece by piece.

    It is at most `max_bytes` long after unpacking. Bytes are counted in the lease before they are stored.
    """

    def __init__(self, source: str, max_bytes: int, lease: Lease, encoding: str | None) -> None:
        """Prepare an empty body.

        Args:
            source: The endpoint, for errors.
            max_bytes: The most unpacked bytes.
            lease: Its memory.
            encoding: `gzip`, `identity` or None; others raise ValueError.
        """
        kind = (encoding or "identity").lower()
        if kind not in ("identity", "gzip"):
            raise ValueError("an encoding that was not asked for")
        self._source, self._max_bytes, self._lease = source, max_bytes, lease
        self._unpacker = zlib.decompressobj(_GZIP) if kind == "gzip" else None
        self._content = BytesIO()
        self._capacity = SMALL
        self._announced = 0

    def announce_size(self, size: int | None) -> None:
        """Store the announced size; ResponseTooLarge if it exceeds the limit. Ignored for a packed body."""
        if self._unpacker is None and size is not None:
            if size > self._max_bytes:
                raise too_large(self._source, self._max_bytes)
            self._announced = size

    async def take(self, packed: bytes | memoryview) -> None:
        """Unpack and store a piece once the budget has room.

        Raises:
            ResponseTooLarge: The unpacked body exceeds its limit.
            ValueError: Bytes follow the packed body.
        """
        if self._unpacker is None:
            await self._keep(packed)
            return
        while part := await self._unpacked(packed):
            await self._keep(part)
            packed = self._unpacker.unconsumed_tail
        if self._unpacker.unused_data:  # a second body would be lost, other bytes would pile up
            raise ValueError("something follows the packed body")

    async def _keep(self, part: bytes | memoryview) -> None:
        """Store a piece once the budget has room; ResponseTooLarge beyond the maximum."""
        if self._content.tell() + len(part) > self._max_bytes:
            raise too_large(self._source, self._max_bytes)
        if (wait := self._lease.take(len(part))) is not None:
            await asyncio.wrap_future(wait)
        self._write(part)

    def _write(self, part: bytes | memoryview) -> None:
        """Append bytes. A body of more than SMALL bytes gets its full capacity at once.

        The system provides memory only as it is written, and a body that grows step by step would fragment the heap
        by half its size. A capacity of exactly the announced size reuses memory of an earlier body, which is faster
        than new pages.
        """
        size = self._content.tell() + len(part)
        if size > self._capacity:
            capacity = self._announced if size <= self._announced else self._max_bytes
            larger = BytesIO(bytes(capacity))
            larger.write(self._content.getbuffer()[: self._content.tell()])
            self._content, self._capacity = larger, capacity
        self._content.write(part)

    async def _unpacked(self, packed: bytes | memoryview) -> bytes:
        """Unpack at most PIECE bytes, in a thread unless the input is shorter than LITTLE."""
        assert self._unpacker is not None
        if len(packed) < LITTLE:
            return self._unpacker.decompress(packed, PIECE)
        return await asyncio.to_thread(self._unpacker.decompress, packed, PIECE)

    def content(self) -> bytes:
        """Return the complete body; ValueError if the packed body is cut off."""
        if self._unpacker is not None and not self._unpacker.eof:
            raise ValueError("the packed body breaks off")
        self._content.truncate()
        return self._content.getvalue()


def retry_after(value: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header, at most 300; None for a date or an invalid value."""
    if value and value.isascii() and value.strip().isdigit():
        return min(float(value), 300.0)  # float: seconds
    return None
