"""One HTTP endpoint: rate limits, retries, health. Its texts show no secrets."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import parse_qsl, urlsplit

from chainfolio.chain_results import Cost, EndpointHealth
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, ResponseTooLarge, SourceError, Unavailable
from chainfolio.spans import span
from chainfolio.transport import metering
from chainfolio.transport.exchange import HttpResponse, NoResponse, RateLimited, Unreachable
from chainfolio.transport.health import Evidence, Health
from chainfolio.transport.http import Transport
from chainfolio.transport.pacing import Pace
from chainfolio.transport.recent_answers import RecentAnswers

MAX_TRIES = 6
FIRST_WAIT_S = 0.2
MAX_WAIT_S = 20.0
MAX_RETRY_AFTER_S = 60.0  # a request fails if its endpoint asks for a longer wait
MAX_SENT = 3  # times that one request is sent while none of them is answered
FEW_HEDGES = 5  # requests that are sent again, in addition to one in 20
LEAST_PATIENCE_S, UNUSUAL = 1.0, 3  # a request is sent again after so many times what nearly all took
EXCHANGE = "exchange "  # prefix of the kind of a single exchange; reads have other kinds
NOTICE_S = 10.0  # then a warning tells the user that an endpoint has never answered
LARGE = 256 * 1024  # a response of more bytes is decoded in a thread

MIN_SECRET = 8

log = logging.getLogger("chainfolio.node")
T = TypeVar("T")


@dataclass(slots=True)
class ErrorCounters:
    """Errors of an endpoint, counted by class name, for logs, metrics and the last line of a run."""

    counts: Counter[str] = field(default_factory=Counter)

    def note(self, error: SourceError) -> None:
        """Count an error; log it if it is the first, second, fourth, eighth … of its class."""
        kind = type(error).__name__
        self.counts[kind] += 1
        count = self.counts[kind]
        if count & (count - 1) == 0:
            log.warning("%s (%s, %d so far)", error.message, kind, count)


class BodyRefused(ResponseTooLarge):
    """The node refuses a request body of `sent_bytes` bytes (0: unknown)."""

    sent_bytes = 0


def name_of(url: str) -> str:
    """Return an endpoint's name for texts: host and port only, because path and query may contain a key."""
    parts = urlsplit(url)
    return f"{parts.hostname or '?'}{f':{parts.port}' if parts.port else ''}"


def identity(url: str) -> str:
    """Return the key under which facts of an endpoint are stored: a hash, to hide secrets."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]


def secrets_of(url: str) -> tuple[str, ...]:
    """Return the parts of a URL that may be keys: path, query and login, of MIN_SECRET or more characters."""
    parts = urlsplit(url)
    pieces = [*parts.path.split("/"), *(value for _, value in parse_qsl(parts.query)), parts.username, parts.password]
    return tuple(piece for piece in pieces if piece and len(piece) >= MIN_SECRET)


@dataclass(frozen=True, slots=True)
class EndpointRecord:
    """Findings of earlier runs about one endpoint, and the functions that store new ones.

    Attributes:
        capabilities: Its detected limits.
        on_capability: Called with the name and the value of a limit that is new or has changed.
        evidence: Why the endpoint is quarantined; None if it is not.
        on_quarantine: Called once with the evidence when the endpoint becomes quarantined.
        recent: Answers of the last minute, to share with other commands; None to share none.
    """

    capabilities: Mapping[str, int] = field(default_factory=dict)
    on_capability: Callable[[str, int], None] = lambda name, value: None
    evidence: Evidence | None = None
    on_quarantine: Callable[[Evidence], None] = lambda evidence: None
    recent: RecentAnswers | None = None


NO_RECORD: Final = EndpointRecord()


class HttpEndpoint:
    """One URL, for any protocol over HTTP.

    Args:
        url: May contain keys; `name` does not.
        transport: Sends the requests.
        environment: Clock and randomness.
        timeout_s: Limit of one exchange.
        max_rps: Maximum number of requests per second; 0 for none.
        concurrency: Maximum number of parallel requests.
        record: Findings of earlier runs, and what stores new ones.
    """

    def __init__(
        self,
        url: str,
        transport: Transport,
        environment: Environment,
        *,
        timeout_s: float = 60,
        max_rps: int = 0,
        concurrency: int = 4,
        record: EndpointRecord = NO_RECORD,
    ) -> None:
        """Prepare an endpoint with its counters; no request is sent. `name` is the address without secrets.

        Args:
            url: Its address, which may hold a key.
            transport: Sends the requests.
            environment: Clock and randomness.
            timeout_s: Limit of one exchange.
            max_rps: Requests in a second; 0 for as many as it takes.
            concurrency: Exchanges at once.
            record: Evidence against it, and where new evidence is stored.
        """
        self.url, self.name = url, name_of(url)
        self._secrets = secrets_of(url)
        self.errors = ErrorCounters()
        self.health = Health(evidence=record.evidence)
        self.requests = self.hedged = self.sent_bytes = self.received_bytes = 0
        self.calls: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()
        self.checked = False
        self.down_until_s = 0.0
        self._transport, self._environment, self._timeout_s = transport, environment, timeout_s
        self._gate = asyncio.Semaphore(concurrency)
        self.pace = Pace(environment.clock, max_rps=max_rps)
        self._on_quarantine = record.on_quarantine

    def response_error(self, response: HttpResponse) -> SourceError | None:
        """Return the error that a response means by its status or as no JSON; None for a usable one."""
        return status_error(self.name, response) or json_error(self.name, response)

    def health_report(self, best_height: int | None) -> EndpointHealth:
        """Return its state for status documents. `best_height` is the newest height of all endpoints."""
        return EndpointHealth(
            self.name,
            self.health.height,
            self.health.head_us,
            self.health.lag_blocks(best_height),
            self.health.latency_s,
            self.health.faults,
            self.health.evidence is not None,
            self.requests,
            self.hedged,
            self.errors.counts,
            Cost(self.sent_bytes, self.received_bytes, self.calls, self.reads),
        )

    async def close(self) -> None:
        """Close the connections of its transport."""
        await self._transport.close()

    def quarantine(self, evidence: Evidence) -> None:
        """Stop using the endpoint, also after a restart, until it is reinstated. The first evidence stays."""
        if self.health.evidence is None:
            self.health.evidence = evidence
            log.error("%s is quarantined: %s: gave %s; %s", self.name, evidence.asked, evidence.given, evidence.truth)
            self._on_quarantine(evidence)

    async def _retrying(
        self,
        send: Callable[[], Awaitable[HttpResponse]],
        read: Callable[[bytes], T],
        cost: int,
        sent_bytes: int,
        calls: Sequence[str] = ("",),
    ) -> T:
        """Send until `read` accepts the response; waits grow, carry jitter, and honour `Retry-After`.

        There are MAX_TRIES tries, or fewer before the first answer. After the last one the endpoint counts as down.

        Args:
            send: Makes one exchange.
            read: Decodes a body; its Unavailable means that the request is sent again.
            cost: Compute units of each try.
            sent_bytes: Bytes of each try.
            calls: The methods of the calls in the request.

        Raises:
            Unavailable: The last try failed, or the endpoint asks to wait for more than MAX_RETRY_AFTER_S.
            SourceError: Another error of `read` or of the status.
        """
        wait_s = FIRST_WAIT_S
        for attempt in range(MAX_TRIES):
            sent_s = self._environment.clock.monotonic_s()
            try:
                response, sent_s = await self._exchange(send, sent_bytes, cost, calls)
                answer = await decode_response(self._checked(response), read)
            except SourceError as error:
                self._redact(error)
                if not isinstance(error, Unavailable):
                    self.pace.accept(sent_s, len(calls))
                    raise
                self.errors.note(error)
                self.health.record_failure()
                is_long = (error.retry_after_s or 0) > MAX_RETRY_AFTER_S
                if isinstance(error, RateLimited):
                    self.pace.refuse(sent_s, None if is_long else error.retry_after_s)
                elif not is_long:
                    self.pace.hold(error.retry_after_s or 0)
                if is_long or attempt == self._last_attempt(error):
                    self.down_until_s = self._environment.clock.monotonic_s() + MAX_WAIT_S
                    self.health.clear_failures()
                    raise
                pause_s = error.retry_after_s if error.retry_after_s is not None else wait_s
                await self._environment.clock.sleep(pause_s + self._environment.random.random() * wait_s / 2)
                wait_s = min(wait_s * 2, MAX_WAIT_S)
            else:
                self.pace.accept(sent_s, len(calls))
                return answer
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _last_attempt(self, error: Unavailable) -> int:
        """Return the index of the last attempt: fewer at first contact, where settings may be wrong."""
        if self.checked:
            return MAX_TRIES - 1
        return 2 if isinstance(error, Unreachable) else 1 if isinstance(error, NoResponse) else MAX_TRIES - 1

    def _redact(self, error: SourceError) -> SourceError:
        """Hide the secrets in the texts of an error, and return it."""
        for secret in self._secrets:
            error.reason, error.message = (text.replace(secret, "…") for text in (error.reason, error.message))
            error.args = (error.message,)
        return error

    def _checked(self, response: HttpResponse) -> HttpResponse:
        """Return a usable response; else give back its bytes and raise its error."""
        error = self.response_error(response)
        if error is not None:
            response.give_back()
            raise error
        return response

    async def _exchange(
        self,
        send: Callable[[], Awaitable[HttpResponse]],
        sent_bytes: int,
        cost: int,
        calls: Sequence[str] = ("",),
        *,
        can_repeat: bool = True,
    ) -> tuple[HttpResponse, float]:
        """Make one exchange in the endpoint's turn; return the response and the time of sending.

        `can_repeat`: The request may be sent again while no response comes.
        """

        async def start() -> float:
            sent_s = await self.pace.turn(len(calls))
            metering.charge(cost)
            self.requests += 1
            self.sent_bytes += sent_bytes
            return sent_s

        async def resend() -> HttpResponse:
            await start()
            return await send()

        with span("node", endpoint=self.name, method=calls[0], calls=len(calls)):
            async with self._gate:
                sent_s = await start()
                exchange = self._first_response(send, resend, calls[0]) if can_repeat else send()
                response = await self._with_notice(exchange)
                if response.streamed_bytes is None:
                    self.received_bytes += len(response.body)
                    self.health.record_exchange(self._environment.clock.monotonic_s() - sent_s)
                else:  # the duration of a stream depends on its size, so it does not count as latency
                    self.received_bytes += response.streamed_bytes
        return response, sent_s

    async def _first_response(
        self, send: Callable[[], Awaitable[HttpResponse]], resend: Callable[[], Awaitable[HttpResponse]], kind: str
    ) -> HttpResponse:
        """Return the first response to a request, which is sent again if it takes unusually long.

        If no try succeeds, the error of the first one is raised. Time is that of the event loop, even in simulations.
        """
        loop = asyncio.get_running_loop()
        start_s, patience_s = loop.time(), self._patience_s(kind)
        tries = [asyncio.ensure_future(send())]
        winner: HttpResponse | None = None
        try:
            while winner is None:
                may_repeat = len(tries) < MAX_SENT and self.hedged < FEW_HEDGES + self.requests // 20
                timeout_s = patience_s * 2 ** (len(tries) - 1) if may_repeat else None
                pending = [each for each in tries if not each.done()]
                finished, _ = await asyncio.wait(pending, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
                if answered := [each for each in finished if each.exception() is None]:
                    winner = answered[0].result()
                elif len(finished) == len(pending):
                    winner = tries[0].result()
                elif not finished:
                    self.hedged += 1
                    tries.append(asyncio.ensure_future(resend()))
            self.health.record_read(f"{EXCHANGE}{kind}", loop.time() - start_s)
            return winner
        finally:
            for each in tries:
                each.cancel()
            for late in await asyncio.gather(*tries, return_exceptions=True):
                if isinstance(late, HttpResponse) and late is not winner:
                    late.give_back()

    def _patience_s(self, kind: str) -> float:
        """Return the time in seconds after which a request of a kind is sent again."""
        usual_s = self.health.patience_s(f"{EXCHANGE}{kind}")
        return self._timeout_s / 6 if usual_s is None else max(LEAST_PATIENCE_S, UNUSUAL * usual_s)

    async def _with_notice(self, exchange: Awaitable[HttpResponse]) -> HttpResponse:
        """Return the response; at first contact, log a warning if none came within NOTICE_S."""
        if self.checked:
            return await exchange
        text = "%s: no answer yet after %g s"
        notice = asyncio.get_running_loop().call_later(NOTICE_S, log.warning, text, self.name, NOTICE_S)
        try:
            return await exchange
        finally:
            notice.cancel()


async def decode_response(response: HttpResponse, read: Callable[[bytes], T]) -> T:
    """Return the result of `read` for a body, in a thread if the body is large; then give back its bytes.

    Errors of `read` are raised.
    """
    if len(response.body) <= LARGE:
        try:
            return read(response.body)
        finally:
            response.give_back()
    reading = asyncio.ensure_future(asyncio.to_thread(read, response.body))
    reading.add_done_callback(response.give_back)
    try:
        return await asyncio.shield(reading)
    except SourceError as error:
        error.__context__ = None  # frames of the error and of its cause would keep the body alive
        raise error.with_traceback(None) from None
    finally:
        del response, reading  # the task holds the error, and the error this frame


def status_error(source: str, response: HttpResponse) -> SourceError | None:
    """Return the error that a status means for any protocol; None for other statuses."""
    if response.status == 429:
        return RateLimited(source, "too many requests (429)", retry_after_s=response.retry_after_s)
    if response.status == 413:
        return BodyRefused(source, "the node refuses a body of this size (413)", dense=True)
    if response.status >= 500:
        return Unavailable(source, f"HTTP {response.status}", retry_after_s=response.retry_after_s)
    if response.status in (401, 403):
        return BadAnswer(
            source, f"access refused (HTTP {response.status})", remedy="check the key in the endpoint's address"
        )
    if 300 <= response.status < 400:
        return BadAnswer(source, f"redirects elsewhere (HTTP {response.status})", remedy="use the final address")
    return None


def json_error(source: str, response: HttpResponse) -> Unavailable | None:
    """Return the error for a body that is not a complete JSON object or array by its ends; else None."""
    body = response.body
    start, end = body[:64].lstrip(), body[-64:].rstrip()
    if start[:1] not in (b"{", b"["):
        kind = "a web page" if start[:1] == b"<" else "no JSON"
        return Unavailable(source, f"answered with {kind} (HTTP {response.status}, {len(body)} bytes)")
    if end[-1:] not in (b"}", b"]"):
        return Unavailable(source, f"the answer breaks off after {len(body)} bytes")
    return None
