"""How bytes reach an endpoint and come back: the only HTTP of the EVM adapter, passed in so that tests can fake it."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import zlib
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Protocol

from chainfolio.errors import TooMuch, Unavailable
from chainfolio.memory import ByteBudget, Lease

if TYPE_CHECKING:
    import aiohttp

    from adapters.evm.plain_http import PlainTransport

# The most bytes of an answer: of blocks, logs and traces, which fill it where a node puts no bound, and of all else.
MAX_BODY = 96 * 1024 * 1024
MAX_SMALL_BODY = 16 * 1024 * 1024
_LARGE = re.compile(rb'"method":"(?:eth_getLogs|eth_getBlock|eth_getTransactionReceipt|trace_|debug_trace)')
CONNECT_S = 10.0
PIECE = 1 << 18
SMALL = 1 << 20
_GZIP = 16 + zlib.MAX_WBITS


class Unreachable(Unavailable):
    """There is nobody at that address."""


def room_for(question: bytes | None, most: int) -> int:
    """How many bytes the answer to some requests may have."""
    return most if question is None or _LARGE.search(question) else min(most, MAX_SMALL_BODY)


def too_large(source: str, room: int) -> TooMuch:
    """The error of an answer that outgrew its bound."""
    return TooMuch(source, f"an answer of more than {room // 2**20} MiB", dense=True)


def unreachable(source: str, error: Exception) -> Unreachable:
    """The error of an address where nobody is, with the cause; nothing of the address is in it."""
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
        case OSError(errno=int(number)):
            return os.strerror(number).lower()
    return "the address is none" if isinstance(inner, ValueError) else type(inner).__name__


@dataclass(frozen=True, slots=True)
class Posted:
    """What came back: status, `Retry-After` in seconds where one was given, the decoded body.

    The body is counted in the budget of the process until `give_back`.
    """

    status: int
    retry_after_s: float | None
    body: bytes
    lease: Lease | None = None

    def give_back(self, _: object = None) -> None:
        """The body is decoded, or nobody wants it."""
        if self.lease is not None:
            self.lease.give_back()


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

    def announced(self, size: int | None) -> None:
        """Refuse a body that says that it is too large."""
        if self._unpacker is None and size is not None and size > self._room:
            raise too_large(self._source, self._room)

    def take(self, packed: bytes) -> Iterator[Future[None]]:
        """Keep what arrived. Each future has to be waited for before the next step: until then there is no room."""
        for part in self._unpacked(packed):
            if self._content.tell() + len(part) > self._room:
                raise too_large(self._source, self._room)
            if (wait := self._lease.take(len(part))) is not None:
                yield wait
            self._write(part)

    def _write(self, part: bytes) -> None:
        """Keep bytes. What is not small gets all its room at once: the system gives memory only as it is written, and
        a body that grows by and by would leave holes of half its size behind."""
        if self._content.tell() + len(part) > self._capacity:
            larger = BytesIO(bytes(self._room))
            larger.write(self._content.getbuffer()[: self._content.tell()])
            self._content, self._capacity = larger, self._room
        self._content.write(part)

    def _unpacked(self, packed: bytes) -> Iterator[bytes]:
        if self._unpacker is None:
            yield packed
            return
        while part := self._unpacker.decompress(packed, PIECE):
            yield part
            packed = self._unpacker.unconsumed_tail

    def whole(self) -> bytes:
        """All of it, once nothing more comes."""
        if self._unpacker is not None and not self._unpacker.eof:
            raise ValueError("the packed body breaks off")
        self._content.truncate()
        return self._content.getvalue()


class Transport(Protocol):
    """Posts a JSON body. Raises Unavailable where nothing usable came back, TooMuch where the body outgrew its cap."""

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> Posted:
        """One exchange; no retry, no redirect."""

    async def close(self) -> None:
        """Let go of all connections."""


class HttpTransport:
    """aiohttp, or the standard library where there is no TLS; redirects refused, the body bounded while it is read."""

    def __init__(self, budget: ByteBudget | None = None, *, connections: int = 16, max_body: int = MAX_BODY) -> None:
        self.budget = budget or ByteBudget()
        self._connections = connections
        self._max_body = min(max_body, self.budget.alone)
        self._session: aiohttp.ClientSession | None = None
        self._plain: PlainTransport | None = None

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> Posted:
        """One exchange; no retry, no redirect."""
        if not url.lower().startswith("http://"):
            return await self._exchange(source, "POST", url, body, timeout_s)
        if self._plain is None:
            from adapters.evm.plain_http import PlainTransport

            self._plain = PlainTransport(self.budget, connections=self._connections, max_body=self._max_body)
        return await self._plain.post(source, url, body, timeout_s)

    async def get(self, source: str, url: str, timeout_s: float) -> Posted:
        """As `post`, of what is asked by its address alone."""
        return await self._exchange(source, "GET", url, None, timeout_s)

    async def _exchange(self, source: str, method: str, url: str, body: bytes | None, timeout_s: float) -> Posted:
        lease = self.budget.lease()
        try:
            return await self._read(source, method, url, body, timeout_s, lease)
        except BaseException:  # whatever ends it: nobody else knows of the lease
            lease.give_back()
            raise

    async def _read(
        self, source: str, method: str, url: str, question: bytes | None, timeout_s: float, lease: Lease
    ) -> Posted:
        import aiohttp  # here, for it takes a fifth of a second

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections),
                read_bufsize=PIECE, auto_decompress=False, trust_env=False,
            )  # fmt: skip
        headers = {"content-type": "application/json", "accept-encoding": "gzip"}
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(CONNECT_S, timeout_s))
        try:
            async with self._session.request(
                method, url, data=question, headers=headers, timeout=timeout, allow_redirects=False
            ) as answer:
                body = Body(source, room_for(question, self._max_body), lease, answer.headers.get("content-encoding"))
                body.announced(answer.content_length)
                async for piece in answer.content.iter_any():
                    for wait in body.take(piece):
                        await asyncio.wrap_future(wait)
                return Posted(answer.status, retry_after(answer.headers.get("retry-after")), body.whole(), lease)
        except TimeoutError:
            raise Unavailable(source, f"no answer within {timeout_s:g} s") from None
        except aiohttp.ClientConnectorError as error:
            raise unreachable(source, error) from None
        except (aiohttp.ClientError, ConnectionError, ValueError, zlib.error) as error:
            raise Unavailable(source, f"the connection broke ({type(error).__name__})") from None

    async def close(self) -> None:
        """Let go of all connections."""
        if self._plain is not None:
            await self._plain.close()
            self._plain = None
        if self._session is not None:
            await self._session.close()
            self._session = None


def retry_after(value: str | None) -> float | None:
    """The seconds that a `Retry-After` names; None for a date, or for what is none."""
    if value and value.isascii() and value.strip().isdigit():
        return min(float(value), 300.0)  # float: seconds
    return None
