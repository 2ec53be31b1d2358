"""HTTP reads of price sources: a source names what it wants, as it names calls, and the engine sends it.

What comes back is the body, as bytes, or Unknown with a reason: a source that cannot be reached prices nothing, and
says so. No text here has more of an address than its host, since addresses may carry keys. Reads of many blocks that
one request can answer are sent as one (`BatchedRead`), and what was answered once is not asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, Protocol
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
MAX_WAIT_S: Final = 30.0  # for the turn at a host: who would wait longer is refused
MAX_KEPT: Final = 100_000  # answers of batches
TOO_MANY: Final = 429
HOLD_S: Final = 60.0  # a host that limits us and does not say for how long
MAX_HOLD_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class HttpGet:
    """A read of an HTTP address: answered with its body (bytes), or `Unknown`. `headers` are for keys: they are sent,
    and shown nowhere."""

    url: str
    params: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    per_s: float = MAX_RPS  # requests of this host in a second at most

    @property
    def shown(self) -> tuple[str, str | None, str | None, tuple[str, ...]]:
        """How answers name the read: the method, the address, no function, the parameters."""
        return "GET", self.url, None, tuple(f"{name}={value}" for name, value in self.params)


class Batch(Protocol):
    """What a host answers many of in one request. It can be hashed: equal batches share their requests."""

    def gets(self, keys: Sequence[Any], now_s: int) -> Iterable[tuple[HttpGet | Unknown, Sequence[Any]]]:
        """The requests that answer all keys, as few as there can be, each with the keys that it answers; `Unknown` for
        those that nothing could answer."""

    def told(self, body: bytes, keys: Sequence[Any]) -> Mapping[Any, Any]:
        """What a body says of its keys; a key that the host does not know is absent. ValueError for no answer."""

    def shown(self, key: Any) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """How answers name the read of one key."""


@dataclass(frozen=True, slots=True)
class BatchedRead:
    """A read that is sent together with others of its batch: answered with what the batch was told of its key, None
    where the host does not know it, or `Unknown`. Its answer never changes: the key says of which moment it is."""

    batch: Batch
    key: Hashable

    @property
    def shown(self) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """How answers name the read."""
        return self.batch.shown(self.key)


OVER_HTTP: Final = (HttpGet, BatchedRead)


@dataclass(slots=True)
class Http:
    """Sends HTTP reads over one session: bounded in time, size, rate and number at once; no redirect, no retry. A host
    that limits us is left alone for as long as it says."""

    seams: Seams
    timeout_s: float = TIMEOUT_S
    max_body: int = MAX_BODY
    max_rps: float = MAX_RPS
    requests: int = 0
    _session: aiohttp.ClientSession | None = None
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    _next_s: dict[str, float] = field(default_factory=dict)
    _held: dict[str, tuple[float, str]] = field(default_factory=dict)  # by host: until when, and why
    _kept: dict[BatchedRead, Any] = field(default_factory=dict)
    _running: dict[BatchedRead, asyncio.Task[dict[BatchedRead, Any]]] = field(default_factory=dict)

    async def answers(self, reads: Sequence[HttpGet | BatchedRead]) -> list[Any]:
        """The answers of all, in order."""
        gets = list(dict.fromkeys(read for read in reads if isinstance(read, HttpGet)))
        batched = dict.fromkeys(read for read in reads if isinstance(read, BatchedRead))
        bodies, told = await asyncio.gather(
            asyncio.gather(*(self._answer(read) for read in gets)), self._batched(list(batched))
        )
        found: dict[HttpGet | BatchedRead, Any] = {**told, **dict(zip(gets, bodies, strict=True))}
        return [found[read] for read in reads]

    async def close(self) -> None:
        """Let go of connections, and of what nobody waits for any more."""
        running = set(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _batched(self, reads: Sequence[BatchedRead]) -> dict[BatchedRead, Any]:
        """What is kept, what somebody is asking for already, and the rest in as few requests as there can be."""
        found = {read: self._kept[read] for read in reads if read in self._kept}
        self._begin([read for read in reads if read not in found and read not in self._running])
        for task in dict.fromkeys(self._running[read] for read in reads if read not in found):
            found |= await asyncio.shield(task)  # others wait for it, too
        return found

    def _begin(self, reads: Iterable[BatchedRead]) -> None:
        by_batch: dict[Batch, list[Any]] = {}
        for read in reads:
            by_batch.setdefault(read.batch, []).append(read.key)
        for batch, keys in by_batch.items():
            for get, some in batch.gets(keys, self.seams.clock.now_us() // 1_000_000):
                own = {key: BatchedRead(batch, key) for key in some}
                task = asyncio.create_task(self._told(batch, get, own))
                self._running |= dict.fromkeys(own.values(), task)
                task.add_done_callback(lambda _, own=own: self._done(own.values()))  # type: ignore[misc]

    def _done(self, reads: Iterable[BatchedRead]) -> None:
        for read in reads:
            self._running.pop(read, None)

    async def _told(self, batch: Batch, get: HttpGet | Unknown, own: Mapping[Any, BatchedRead]) -> dict[Any, Any]:
        body = get if isinstance(get, Unknown) else await self._answer(get)
        if isinstance(body, Unknown):
            return dict.fromkeys(own.values(), body)
        try:
            told = batch.told(body, list(own))
        except Exception as error:  # a batch may be third-party code: its fault is not the round's
            assert isinstance(get, HttpGet)
            no_answer = Unknown(f"{urlsplit(get.url).hostname} gave what is no answer: {error!s:.200}", "contract")
            return dict.fromkeys(own.values(), no_answer)
        found = {read: told.get(key) for key, read in own.items()}
        self._kept |= found
        while len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        return found

    async def _answer(self, read: HttpGet) -> bytes | Unknown:
        import aiohttp

        try:
            parts = urlsplit(read.url)
            host = parts.hostname or ""
        except ValueError:
            return Unknown("the address is none")
        if parts.scheme not in ("http", "https") or not host:
            return Unknown("the address is no http or https address")
        if why := self._is_held(host) or await self._wait(host, read.per_s) or self._is_held(host):
            return Unknown(why)
        async with self._room:
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
                return Unknown(self._refused(host, response.status, response.headers.get("Retry-After")))
            body = bytearray()
            async for piece in response.content.iter_chunked(PIECE):
                body += piece
                if len(body) > self.max_body:
                    return Unknown(f"{host} answered more than {self.max_body:,} bytes")
            return bytes(body)

    def _refused(self, host: str, status: int, retry_after: str | None) -> str:
        """Why a status is no answer and what helps; the host is left alone where it asks for that."""
        said = f"{host} answered with status {status}"
        if status in (401, 403):
            return f"{said}: the key is missing, wrong, or has no right to this"
        if status < 500 and status != TOO_MANY:
            return said
        hold_s = self._seconds(retry_after) if retry_after else HOLD_S if status == TOO_MANY else 0.0
        if not hold_s:
            return f"{said}: it is asked again with the next answer"
        self._held[host] = self.seams.clock.monotonic_s() + hold_s, said
        return f"{said}: it is asked again after {hold_s:g} s; a key, or a host of your own, has limits of its own"

    def _seconds(self, retry_after: str) -> float:
        """How long a host wants to be left alone: seconds, or a date."""
        if retry_after.isascii() and retry_after.isdigit():
            return min(int(retry_after[:9]), MAX_HOLD_S)
        try:
            until_s = parsedate_to_datetime(retry_after).timestamp()
        except (ValueError, OverflowError):
            return HOLD_S
        return min(max(until_s - self.seams.clock.now_us() / 1_000_000, 0.0), MAX_HOLD_S)

    def _is_held(self, host: str) -> str:
        """Why the host must be left alone; empty where it need not."""
        until_s, said = self._held.get(host, (0.0, ""))
        left_s = until_s - self.seams.clock.monotonic_s()
        return f"{said}: it is asked again after {left_s:.0f} s" if said and left_s > 0 else ""

    async def _wait(self, host: str, per_s: float) -> str:
        """Until the host may be asked again; or why that takes too long."""
        now_s = self.seams.clock.monotonic_s()
        turn_s = max(now_s, self._next_s.get(host, now_s))
        if turn_s - now_s > MAX_WAIT_S:
            return f"{host} is asked {per_s:g} times a second, and too many wait for it"
        self._next_s[host] = turn_s + 1 / min(self.max_rps, per_s)
        if turn_s > now_s:
            await self.seams.clock.sleep(turn_s - now_s)
        return ""
