"""How bytes reach an endpoint and come back: the only HTTP of the EVM adapter, passed in so that tests can fake it."""

from __future__ import annotations

import os
import re
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from chainfolio.errors import TooMuch, Unavailable

if TYPE_CHECKING:
    import aiohttp

    from adapters.evm.plain_http import PlainTransport

# The most bytes of an answer: of blocks, logs and traces, which fill it where a node puts no bound, and of all else.
MAX_BODY = 96 * 1024 * 1024
MAX_SMALL_BODY = 16 * 1024 * 1024
_LARGE = re.compile(rb'"method":"(?:eth_getLogs|eth_getBlock|eth_getTransactionReceipt|trace_|debug_trace)')
CONNECT_S = 10.0


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
    """What came back: status, `Retry-After` in seconds where one was given, the decoded body."""

    status: int
    retry_after_s: float | None
    body: bytes


class Transport(Protocol):
    """Posts a JSON body. Raises Unavailable where nothing usable came back, TooMuch where the body outgrew its cap."""

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> Posted:
        """One exchange; no retry, no redirect."""

    async def close(self) -> None:
        """Let go of all connections."""


class HttpTransport:
    """aiohttp, or the standard library where there is no TLS; redirects refused, the body capped while it is read."""

    def __init__(self, *, connections: int = 16, max_body: int = MAX_BODY) -> None:
        self._connections = connections
        self._max_body = max_body
        self._session: aiohttp.ClientSession | None = None
        self._plain: PlainTransport | None = None

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> Posted:
        """One exchange; no retry, no redirect."""
        if not url.lower().startswith("http://"):
            return await self._exchange(source, "POST", url, body, timeout_s)
        if self._plain is None:
            from adapters.evm.plain_http import PlainTransport

            self._plain = PlainTransport(connections=self._connections, max_body=self._max_body)
        return await self._plain.post(source, url, body, timeout_s)

    async def get(self, source: str, url: str, timeout_s: float) -> Posted:
        """As `post`, of what is asked by its address alone."""
        return await self._exchange(source, "GET", url, None, timeout_s)

    async def _exchange(self, source: str, method: str, url: str, body: bytes | None, timeout_s: float) -> Posted:
        import aiohttp  # here, for it takes a fifth of a second

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections), read_bufsize=1 << 20, trust_env=False
            )
        headers = {"content-type": "application/json", "accept-encoding": "gzip, deflate"}
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(CONNECT_S, timeout_s))
        try:
            async with self._session.request(
                method, url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as answer:
                content = await self._read(source, answer, room_for(body, self._max_body))
                return Posted(answer.status, retry_after(answer.headers.get("retry-after")), content)
        except TimeoutError:
            raise Unavailable(source, f"no answer within {timeout_s:g} s") from None
        except aiohttp.ClientConnectorError as error:
            raise unreachable(source, error) from None
        except (aiohttp.ClientError, ConnectionError, ValueError) as error:
            raise Unavailable(source, f"the connection broke ({type(error).__name__})") from None

    async def _read(self, source: str, answer: aiohttp.ClientResponse, room: int) -> bytes:
        parts, size = [], 0
        async for part in answer.content.iter_any():
            parts.append(part)
            size += len(part)
            if size > room:
                answer.close()
                raise too_large(source, room)
        return b"".join(parts)

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
