"""How requests reach a beacon node and answers come back: bounded in time and size, no redirect, no retry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from chainfolio.errors import TooMuch, Unavailable
from chainfolio.memory import ByteBudget

if TYPE_CHECKING:
    import aiohttp

MAX_BODY: Final = 96 * 2**20
CONNECT_S: Final = 10.0
PIECE: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. The body counts in the budget of the process until `give_back`."""

    status: int
    body: bytes
    retry_after: str = ""
    give_back: Callable[[], None] = lambda: None


class Transport(Protocol):
    """One exchange. Raises Unavailable where nothing usable came back, TooMuch where the body outgrew its bound."""

    async def send(self, source: str, method: str, url: str, body: bytes | None, timeout_s: float) -> Reply:
        """Ask, and read the whole answer."""

    async def close(self) -> None:
        """Let go of all connections."""


class HttpTransport:
    """aiohttp: few connections, which are kept."""

    def __init__(self, budget: ByteBudget, *, connections: int, max_body: int = MAX_BODY) -> None:
        self._budget, self._connections = budget, connections
        self._max_body = min(max_body, budget.alone)
        self._session: aiohttp.ClientSession | None = None

    async def send(self, source: str, method: str, url: str, body: bytes | None, timeout_s: float) -> Reply:
        """Ask, and read the whole answer."""
        import aiohttp

        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self._connections)
            self._session = aiohttp.ClientSession(connector=connector, read_bufsize=PIECE, trust_env=False)
        headers = {"accept": "application/json", "accept-encoding": "gzip"}
        if body is not None:
            headers["content-type"] = "application/json"
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(CONNECT_S, timeout_s))
        lease = self._budget.lease()
        try:
            async with self._session.request(
                method, url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as answer:
                kept = bytearray()
                async for piece in answer.content.iter_any():
                    if len(kept) + len(piece) > self._max_body:
                        raise TooMuch(source, f"an answer of more than {self._max_body // 2**20} MiB")
                    if (wait := lease.take(len(piece))) is not None:
                        await asyncio.wrap_future(wait)
                    kept += piece
                return Reply(answer.status, bytes(kept), answer.headers.get("retry-after", ""), lease.give_back)
        except BaseException as error:  # whatever ends it: nobody else knows of the lease
            lease.give_back()
            if isinstance(error, TimeoutError):
                raise Unavailable(source, f"no answer within {timeout_s:g} s") from None
            if isinstance(error, aiohttp.ClientError | ConnectionError | ValueError):
                raise Unavailable(source, f"cannot be reached ({type(error).__name__})") from None
            raise

    async def close(self) -> None:
        """Let go of all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None
