"""HTTP reads of price sources: a source names what it wants, as it names calls, and the engine sends it.

What comes back is the body, as bytes, or Unknown with a reason: a source that cannot be reached prices nothing, and
says so. No text here has more of an address than its host, since addresses may carry keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from chainfolio.plans import Unknown
from chainfolio.seams import Seams

if TYPE_CHECKING:
    import aiohttp

TIMEOUT_S: Final = 10.0
MAX_BODY: Final = 4 * 1024 * 1024
MAX_RPS: Final = 10  # of one host
AT_ONCE: Final = 8
PIECE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class HttpGet:
    """A read of an HTTP address: answered with its body (bytes), or `Unknown`. `headers` are for keys: they are sent,
    and shown nowhere."""

    url: str
    params: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def shown(self) -> tuple[str, str | None, str | None, tuple[str, ...]]:
        """How answers name the read: the method, the address, no function, the parameters."""
        return "GET", self.url, None, tuple(f"{name}={value}" for name, value in self.params)


@dataclass(slots=True)
class Http:
    """Sends HTTP reads over one session: bounded in time, size, rate and number at once; no redirect, no retry."""

    seams: Seams
    timeout_s: float = TIMEOUT_S
    max_body: int = MAX_BODY
    max_rps: float = MAX_RPS
    requests: int = 0
    _session: aiohttp.ClientSession | None = None
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    _next_s: dict[str, float] = field(default_factory=dict)

    async def answers(self, reads: Sequence[HttpGet]) -> list[bytes | Unknown]:
        """The bodies of all, in order."""
        return list(await asyncio.gather(*(self._answer(read) for read in reads)))

    async def close(self) -> None:
        """Let go of connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _answer(self, read: HttpGet) -> bytes | Unknown:
        import aiohttp

        try:
            parts = urlsplit(read.url)
            host = parts.hostname or ""
        except ValueError:
            return Unknown("the address is none")
        if parts.scheme not in ("http", "https") or not host:
            return Unknown("the address is no http or https address")
        async with self._room:
            await self._wait(host)
            self.requests += 1
            try:
                async with asyncio.timeout(self.timeout_s):
                    return await self._body(read, host)
            except TimeoutError:
                return Unknown(f"{host} gave no answer within {self.timeout_s:g} s")
            except (aiohttp.ClientError, OSError, ValueError) as error:
                return Unknown(f"{host} could not be read ({type(error).__name__})")

    async def _body(self, read: HttpGet, host: str) -> bytes | Unknown:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        async with self._session.get(
            read.url, params=list(read.params), headers=list(read.headers), allow_redirects=False
        ) as response:
            if response.status != 200:
                return Unknown(f"{host} answered with status {response.status}")
            body = bytearray()
            async for piece in response.content.iter_chunked(PIECE):
                body += piece
                if len(body) > self.max_body:
                    return Unknown(f"{host} answered more than {self.max_body:,} bytes")
            return bytes(body)

    async def _wait(self, host: str) -> None:
        """Until the host may be asked again."""
        now_s = self.seams.clock.monotonic_s()
        turn_s = max(now_s, self._next_s.get(host, now_s))
        self._next_s[host] = turn_s + 1 / self.max_rps
        if turn_s > now_s:
            await self.seams.clock.sleep(turn_s - now_s)
