"""One exchange over HTTP, whoever makes it: its bounds, its body while it arrives, and what is said when it fails."""

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

# The most bytes of an answer: of blocks, logs, traces and lists of accounts, which fill it where a node puts no bound,
# and of whatever is no call of JSON-RPC; and of all other calls.
MAX_BODY = 96 * 1024 * 1024
MAX_SMALL_BODY = 16 * 1024 * 1024
_LARGE = re.compile(
    rb'"method":"(?:eth_getLogs|eth_getBlock|eth_getTransactionReceipt|trace_|debug_trace|'
    rb'get(?:Block|Transaction|MultipleAccounts|ProgramAccounts|TokenAccountsByOwner)")'
)
CONNECT_S = 10.0
PIECE = 1 << 18
SMALL = 1 << 20
LITTLE = 1 << 13
_GZIP = 16 + zlib.MAX_WBITS
_OURS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))  # lacks of this side


class Unreachable(Unavailable):
    """There is nobody at that address."""


class NoResponse(Unavailable):
    """Somebody took the question, and said nothing in the time that it had."""

    def __init__(self, source: str, timeout_s: float) -> None:
        remedy = "is the node busy, and is the address right?"
        super().__init__(source, f"no answer within {timeout_s:g} s", remedy=remedy)


class RateLimited(Unavailable):
    """The endpoint refuses more requests for a while: status 429, or words to that effect in an answer."""


def room_for(question: bytes | None, most: int) -> int:
    """How many bytes the answer to some requests may have."""
    if question is None or b'"method":' not in question or _LARGE.search(question):
        return most
    return min(most, MAX_SMALL_BODY)


def too_large(source: str, room: int) -> ResponseTooLarge:
    """The error of an answer that outgrew its bound."""
    return ResponseTooLarge(source, f"an answer of more than {room // 2**20} MiB", dense=True)


def unreachable(source: str, error: Exception) -> Unavailable:
    """The error of an address where nobody is, or of a machine that can open no connection, with the cause; nothing of
    the address is in it."""
    if isinstance(error, OSError) and error.errno in _OURS:
        return Unavailable(source, f"could not be asked: {cause(error)} here")
    reason = f"cannot be reached: {cause(error)}"
    return Unreachable(source, reason, remedy="is the node running, and is the address right?")


def cause(error: Exception) -> str:
    """Why no connection came about, in a few words."""
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
    """What came back: status, `Retry-After` in seconds where one was given, the decoded body.

    The body is counted in the budget of the process until `give_back`. Of one that a sink took there are only the
    bytes that it `took`.
    """

    status: int
    retry_after_s: float | None
    body: bytes
    lease: Lease | None = None
    took: int | None = None

    def give_back(self, _: object = None) -> None:
        """The body is decoded, or nobody wants it."""
        if self.lease is not None:
            self.lease.give_back()


class Sink(Protocol):
    """Takes the body of an answer while it arrives, where nobody could hold all of it. What it raises ends the
    exchange."""

    form: str  # of which the body is to be
    reads: frozenset[bytes]  # headers of the answer that it has to know, in lower case

    def begin(self, told: Mapping[bytes, str], size: int | None) -> None:
        """An answer begins: those headers, as far as they are there, and its bytes, where they are known."""

    def take(self, piece: bytes | memoryview) -> None:
        """Its next bytes, which are there until this returns."""


def asked_by(sink: Sink) -> dict[str, str]:
    """The headers that ask for what a sink takes: as it is, for it has no room to unpack."""
    return {"accept": sink.form, "accept-encoding": "identity"}


class StreamedBody:
    """A body of which a sink takes each piece."""

    def __init__(self, sink: Sink, told: Mapping[bytes, str], size: int | None, encoding: str | None) -> None:
        if (encoding or "identity").lower() != "identity":
            raise ValueError("an encoding that was not asked for")
        self.took = 0
        self._sink = sink
        sink.begin(told, size)

    async def take(self, piece: bytes | memoryview) -> None:
        """Hand on what arrived."""
        self.took += len(piece)
        self._sink.take(piece)


class Body:
    """A body while it arrives: unpacked piece by piece, bounded by `room`, and counted in a lease before it is kept."""

    def __init__(self, source: str, room: int, lease: Lease, encoding: str | None) -> None:
        kind = (encoding or "identity").lower()
        if kind not in ("identity", "gzip"):
            raise ValueError("an encoding that was not asked for")
        self._source, self._room, self._lease = source, room, lease
        self._unpacker = zlib.decompressobj(_GZIP) if kind == "gzip" else None
        self._content = BytesIO()
        self._capacity = SMALL
        self._announced = 0

    def announced(self, size: int | None) -> None:
        """Refuse a body that says that it is too large."""
        if self._unpacker is None and size is not None:
            if size > self._room:
                raise too_large(self._source, self._room)
            self._announced = size

    async def take(self, packed: bytes | memoryview) -> None:
        """Keep what arrived, once there is room for it."""
        if self._unpacker is None:
            await self._keep(packed)
            return
        while part := await self._unpacked(packed):
            await self._keep(part)
            packed = self._unpacker.unconsumed_tail
        if self._unpacker.unused_data:  # a second body would be lost, and what is none would pile up
            raise ValueError("something follows the packed body")

    async def _keep(self, part: bytes | memoryview) -> None:
        if self._content.tell() + len(part) > self._room:
            raise too_large(self._source, self._room)
        if (wait := self._lease.take(len(part))) is not None:
            await asyncio.wrap_future(wait)
        self._write(part)

    def _write(self, part: bytes | memoryview) -> None:
        """Keep bytes. What is not small gets all its room at once: the system gives memory only as it is written, and
        a body that grows by and by would leave holes of half its size behind. Where its size was announced the room is
        not larger, and is that of a body before: the system takes longer to give a page than to fill it."""
        size = self._content.tell() + len(part)
        if size > self._capacity:
            capacity = self._announced if size <= self._announced else self._room
            larger = BytesIO(bytes(capacity))
            larger.write(self._content.getbuffer()[: self._content.tell()])
            self._content, self._capacity = larger, capacity
        self._content.write(part)

    async def _unpacked(self, packed: bytes | memoryview) -> bytes:
        """The next part of what is packed: what is not little, beside the event loop."""
        assert self._unpacker is not None
        if len(packed) < LITTLE:
            return self._unpacker.decompress(packed, PIECE)
        return await asyncio.to_thread(self._unpacker.decompress, packed, PIECE)

    def whole(self) -> bytes:
        """All of it, once nothing more comes."""
        if self._unpacker is not None and not self._unpacker.eof:
            raise ValueError("the packed body breaks off")
        self._content.truncate()
        return self._content.getvalue()


def retry_after(value: str | None) -> float | None:
    """The seconds that a `Retry-After` names; None for a date, or for what is none."""
    if value and value.isascii() and value.strip().isdigit():
        return min(float(value), 300.0)  # float: seconds
    return None
