"""HTTP reads of price sources, which a source yields like reads of the chain and the engine sends.

The result of a read is the body as bytes, or Unknown with a reason. Messages name only the host of an address, because
addresses may contain keys. Reads of many blocks that one request can answer are sent as one (`BatchedRead`), and their
results are cached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol, cast
from urllib.parse import urlsplit

from chainfolio.environment import Environment
from chainfolio.plans import Unknown
from chainfolio.reads import Read, ReadLabel, Value

if TYPE_CHECKING:
    import aiohttp

TIMEOUT_S: Final = 10.0
MAX_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_RPS: Final = 10  # requests per second to one host
MAX_CONCURRENT: Final = 8  # requests to all hosts together
CHUNK_BYTES: Final = 1 << 16
MAX_WAIT_S: Final = 30.0  # in the queue of a host: a read that would wait longer fails
MAX_CACHED_RESULTS: Final = 100_000  # of batched reads
DEFAULT_PAUSE_S: Final = 60.0  # for a host that limits us and does not name a time
MAX_PAUSE_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class HttpGet(Read[bytes | Unknown]):
    """A GET request. Its result is the body as bytes, or `Unknown`.

    Attributes:
        headers: For keys: they are sent, and shown nowhere.
        max_rps: Largest number of requests per second to this host.
    """

    url: str
    params: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    max_rps: float = MAX_RPS

    @property
    def label(self) -> ReadLabel:
        """The method, the address, no function, and the parameters."""
        return "GET", self.url, None, tuple(f"{name}={value}" for name, value in self.params)


class Batch(Protocol):
    """A kind of read that is batched into few requests.

    Batches are hashable: equal batches share requests.
    """

    def requests(self, keys: Sequence[Any], now_s: int) -> Iterable[tuple[HttpGet | Unknown, Sequence[Any]]]:
        """Return the fewest requests that answer all keys, each with its keys; `Unknown` if none can."""

    def parse(self, body: bytes, keys: Sequence[Any]) -> Mapping[Any, object]:
        """Parse a body into results by key, without the keys that the host does not know.

        Raises:
            ValueError: The body is malformed.
        """

    def label(self, key: Any) -> ReadLabel:
        """Return the name of the read of one key, as answers show it."""


@dataclass(frozen=True, slots=True)
class BatchedRead(Read[Any]):
    """A read that is sent together with others of its batch.

    Its result is what the batch parsed for its key, None if the host does not know the key, or `Unknown`. It must never
    change: the key contains the time that it is about.
    """

    batch: Batch
    key: Hashable

    @property
    def label(self) -> ReadLabel:
        """The name of the read, as answers show it."""
        return self.batch.label(self.key)


HTTP_READS: Final = (HttpGet, BatchedRead)


@dataclass(slots=True)
class Http:
    """Sends HTTP reads over one session, without redirects and retries; caches batched results.

    Time, size, rate and concurrency are limited. No request is sent to a host that limits us until its pause is over.
    """

    environment: Environment
    timeout_s: float = TIMEOUT_S
    max_body_bytes: int = MAX_BODY_BYTES
    max_rps: float = MAX_RPS
    requests: int = 0
    _session: aiohttp.ClientSession | None = None
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT))
    _next_s: dict[str, float] = field(default_factory=dict)  # by host: time of its next request
    _pauses: dict[str, tuple[float, str]] = field(default_factory=dict)  # by host: end and reason
    _cache: dict[BatchedRead, object] = field(default_factory=dict)
    _running: dict[BatchedRead, asyncio.Task[dict[BatchedRead, object]]] = field(default_factory=dict)

    async def read(self, reads: Sequence[Read[Value]]) -> list[Value]:
        """Send `HttpGet` and `BatchedRead` reads, duplicates once, and return their results in order.

        A read that fails gives Unknown; no error is raised. Results of batched reads are cached.
        """
        gets = list(dict.fromkeys(read for read in reads if isinstance(read, HttpGet)))
        batched = dict.fromkeys(read for read in reads if isinstance(read, BatchedRead))
        bodies, parsed = await asyncio.gather(
            asyncio.gather(*(self._send(read) for read in gets)), self._read_batched(list(batched))
        )
        results = dict[Read[object], object]([*zip(gets, bodies, strict=True), *parsed.items()])
        return [cast(Value, results[read]) for read in reads]

    async def close(self) -> None:
        """Cancel the running requests and close the session."""
        running = set(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _read_batched(self, reads: Sequence[BatchedRead]) -> dict[BatchedRead, object]:
        """Return results from the cache, from running requests, and from as few new requests as possible."""
        results = {read: self._cache[read] for read in reads if read in self._cache}
        self._start_requests([read for read in reads if read not in results and read not in self._running])
        for task in dict.fromkeys(self._running[read] for read in reads if read not in results):
            results |= await asyncio.shield(task)  # other callers wait for it, too
        return results

    def _start_requests(self, reads: Iterable[BatchedRead]) -> None:
        """Start the requests for reads in the background, as few as the batches allow, and register them."""
        by_batch: dict[Batch, list[Hashable]] = {}
        for read in reads:
            by_batch.setdefault(read.batch, []).append(read.key)
        for batch, keys in by_batch.items():
            for request, request_keys in batch.requests(keys, self.environment.clock.now_us() // 1_000_000):
                by_key = {key: BatchedRead(batch, key) for key in request_keys}
                task = asyncio.create_task(self._send_batch(batch, request, by_key))
                self._running |= dict.fromkeys(by_key.values(), task)
                task.add_done_callback(lambda _, by_key=by_key: self._finish(by_key.values()))  # type: ignore[misc]

    def _finish(self, reads: Iterable[BatchedRead]) -> None:
        for read in reads:
            self._running.pop(read, None)

    async def _send_batch(
        self, batch: Batch, request: HttpGet | Unknown, reads: Mapping[Hashable, BatchedRead]
    ) -> dict[BatchedRead, object]:
        """Send one request of a batch and cache the results of its reads, which are given by key.

        Failures give Unknown for all reads, and are not cached. A key that the answer lacks has None.
        """
        body = request if isinstance(request, Unknown) else await self._send(request)
        if isinstance(body, Unknown):
            return dict.fromkeys(reads.values(), body)
        try:
            parsed = batch.parse(body, list(reads))
        except Exception as error:  # a batch may be third-party code: its error must not stop the round
            assert isinstance(request, HttpGet)
            fault = Unknown(f"{urlsplit(request.url).hostname} gave what is no answer: {error!s:.200}", "contract")
            return dict.fromkeys(reads.values(), fault)
        results = {read: parsed.get(key) for key, read in reads.items()}
        self._cache |= results
        while len(self._cache) > MAX_CACHED_RESULTS:
            del self._cache[next(iter(self._cache))]
        return results

    async def _send(self, read: HttpGet) -> bytes | Unknown:
        """Send one request, paced by host, and return its body; Unknown for any failure or a paused host."""
        import aiohttp

        try:
            parts = urlsplit(read.url)
            host = parts.hostname or ""
        except ValueError:
            return Unknown("the address is none")
        if parts.scheme not in ("http", "https") or not host:
            return Unknown("the address is no http or https address")
        if fault := self._pause_fault(host) or await self._wait_for_turn(host, read.max_rps) or self._pause_fault(host):
            return Unknown(fault)
        async with self._slots:
            self.requests += 1
            try:
                async with asyncio.timeout(self.timeout_s):
                    return await self._fetch_body(read, host)
            except TimeoutError:
                return Unknown(f"{host} gave no answer within {self.timeout_s:g} s")
            except (aiohttp.ClientError, OSError, ValueError) as error:
                return Unknown(f"{host} could not be read ({type(error).__name__})")

    async def _fetch_body(self, read: HttpGet, host: str) -> bytes | Unknown:
        """Return the body; Unknown for another status than 200 (also redirects) or a body that is too large."""
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        async with self._session.get(
            read.url, params=list(read.params), headers=list(read.headers), allow_redirects=False
        ) as response:
            if response.status != HTTPStatus.OK:
                return Unknown(self._handle_status(host, response.status, response.headers.get("Retry-After")))
            body = bytearray()
            async for chunk in response.content.iter_chunked(CHUNK_BYTES):
                body += chunk
                if len(body) > self.max_body_bytes:
                    return Unknown(f"{host} answered more than {self.max_body_bytes:,} bytes")
            return bytes(body)

    def _handle_status(self, host: str, status: int, retry_after: str | None) -> str:
        """Return the reason and the fix for an HTTP error status; pause the host if it asks for that.

        A host that limits requests without a time is paused for DEFAULT_PAUSE_S.
        """
        fault = f"{host} answered with status {status}"
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return f"{fault}: the key is missing, wrong, or has no right to this"
        is_limited = status == HTTPStatus.TOO_MANY_REQUESTS
        if status < HTTPStatus.INTERNAL_SERVER_ERROR and not is_limited:
            return fault
        pause_s = self._parse_retry_after(retry_after) if retry_after else DEFAULT_PAUSE_S if is_limited else 0.0
        if not pause_s:
            return f"{fault}: it is asked again with the next answer"
        self._pauses[host] = self.environment.clock.monotonic_s() + pause_s, fault
        return f"{fault}: it is asked again after {pause_s:g} s; a key, or a host of your own, has limits of its own"

    def _parse_retry_after(self, retry_after: str) -> float:
        """Return the seconds until the end of the pause, from a number of seconds or a date."""
        if retry_after.isascii() and retry_after.isdigit():
            return min(int(retry_after[:9]), MAX_PAUSE_S)
        try:
            end_s = parsedate_to_datetime(retry_after).timestamp()
        except (ValueError, OverflowError):
            return DEFAULT_PAUSE_S
        return min(max(end_s - self.environment.clock.now_us() / 1_000_000, 0.0), MAX_PAUSE_S)

    def _pause_fault(self, host: str) -> str:
        """Return the reason why the host is paused; empty if it is not."""
        end_s, fault = self._pauses.get(host, (0.0, ""))
        remaining_s = end_s - self.environment.clock.monotonic_s()
        return f"{fault}: it is asked again after {remaining_s:.0f} s" if fault and remaining_s > 0 else ""

    async def _wait_for_turn(self, host: str, max_rps: float) -> str:
        """Wait until the host may be sent a request.

        Return the reason at once if that would take more than MAX_WAIT_S, else an empty string.
        """
        now_s = self.environment.clock.monotonic_s()
        turn_s = max(now_s, self._next_s.get(host, now_s))
        if turn_s - now_s > MAX_WAIT_S:
            return f"{host} is asked {max_rps:g} times a second, and too many wait for it"
        self._next_s[host] = turn_s + 1 / min(self.max_rps, max_rps)
        if turn_s > now_s:
            await self.environment.clock.sleep(turn_s - now_s)
        return ""
