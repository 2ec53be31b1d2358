"""One URL, asked politely over HTTP: limits, retries, its health. No text of it shows a secret."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import parse_qsl, urlsplit

from chainfolio.chains import Cost, EndpointHealth
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, ResponseTooLarge, SourceError, Unavailable
from chainfolio.transport import metering
from chainfolio.transport.exchange import HttpResponse, NoResponse, RateLimited, Unreachable
from chainfolio.transport.health import Evidence, Health
from chainfolio.transport.http import Transport
from chainfolio.transport.pacing import Pace

RETRIES = 6
FIRST_WAIT_S = 0.2
MAX_WAIT_S = 20.0
MAX_RETRY_AFTER_S = 60.0  # who asks for more than that is not waited for
MAX_SENT = 3  # times that one request is sent while none of them is answered
FEW_HEDGES = 5  # requests that are sent again, in addition to one in 20
LEAST_PATIENCE_S, UNUSUAL = 1.0, 3  # a request is sent again after so many times what nearly all took
EXCHANGE = "exchange "  # begins the kind of a single exchange, beside those of whole reads
NOTICE_S = 10.0  # a user who waits for an address that has never answered is told so meanwhile
LARGE = 256 * 1024  # an answer of more bytes is decoded beside the event loop

MIN_SECRET = 8

log = logging.getLogger("chainfolio.node")
T = TypeVar("T")


@dataclass(slots=True)
class ErrorCounters:
    """What went wrong at an endpoint, counted by kind: what logs, metrics and the closing line of a run name."""

    counts: Counter[str] = field(default_factory=Counter)

    def note(self, error: SourceError) -> None:
        """Count one error under the kind of its error, and log it: the first, the second, the fourth, the eighth…"""
        kind = type(error).__name__
        self.counts[kind] += 1
        count = self.counts[kind]
        if count & (count - 1) == 0:
            log.warning("%s (%s, %d so far)", error.message, kind, count)


class BodyRefused(ResponseTooLarge):
    """The node does not take a body of so many bytes (0: unknown)."""

    sent_bytes = 0


def name_of(url: str) -> str:
    """An endpoint's name for people and logs: host and port alone, for a path or query may be a key."""
    parts = urlsplit(url)
    return f"{parts.hostname or '?'}{f':{parts.port}' if parts.port else ''}"


def identity(url: str) -> str:
    """What learnt facts are stored under: a hash, so that no secret reaches a store."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]


def secrets_of(url: str) -> tuple[str, ...]:
    """What in an address may be a key, so that no text shows it even where a node repeats it."""
    parts = urlsplit(url)
    pieces = [*parts.path.split("/"), *(value for _, value in parse_qsl(parts.query)), parts.username, parts.password]
    return tuple(piece for piece in pieces if piece and len(piece) >= MIN_SECRET)


class HttpEndpoint:
    """One URL, whatever is asked of it."""

    def __init__(
        self,
        url: str,
        transport: Transport,
        environment: Environment,
        *,
        timeout_s: float = 60,
        max_rps: int = 0,
        concurrency: int = 4,
        evidence: Evidence | None = None,
        on_quarantine: Callable[[Evidence], None] = lambda evidence: None,
    ) -> None:
        self.url, self.name = url, name_of(url)
        self._secrets = secrets_of(url)
        self.errors = ErrorCounters()
        self.health = Health(evidence=evidence)
        self.requests = self.hedged = self.sent_bytes = self.received_bytes = 0
        self.calls: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()
        self.checked = False
        self.down_until_s = 0.0
        self._transport, self._environment, self._timeout_s = transport, environment, timeout_s
        self._gate = asyncio.Semaphore(concurrency)
        self.pace = Pace(environment.clock, max_rps=max_rps)
        self._on_cordon = on_quarantine

    def response_error(self, posted: HttpResponse) -> SourceError | None:
        """The error that an exchange without an answer is."""
        return refusal_of(self.name, posted) or not_json(self.name, posted)

    def health_report(self, best_height: int | None) -> EndpointHealth:
        """Its health as all kinds of chain show it."""
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
        """Let go of its connections."""
        await self._transport.close()

    def quarantine(self, evidence: Evidence) -> None:
        """Ask it nothing any more, here and after a restart, until somebody readmits it."""
        if self.health.evidence is None:
            self.health.evidence = evidence
            log.error("%s is quarantined: %s: gave %s; %s", self.name, evidence.asked, evidence.given, evidence.truth)
            self._on_cordon(evidence)

    async def _retrying(
        self,
        send: Callable[[], Awaitable[HttpResponse]],
        read: Callable[[bytes], T],
        cost: int,
        sent_bytes: int,
        calls: Sequence[str] = ("",),
    ) -> T:
        """Send until `read` accepts the answer; waits grow, carry jitter, and honour `Retry-After`.

        Args:
            send: makes one exchange.
            read: decodes a body; its Unavailable means that the request is sent again.
            cost: compute units of each try.
            sent_bytes: bytes of each try.
            calls: the methods of the calls in the request.

        Raises:
            Unavailable: the last try failed, or the endpoint asks to wait for more than MAX_RETRY_AFTER_S.
            SourceError: what `read` or the status means otherwise.
        """
        wait_s = FIRST_WAIT_S
        for attempt in range(RETRIES):
            sent_s = self._environment.clock.monotonic_s()
            try:
                posted, sent_s = await self._exchanged(send, sent_bytes, cost, calls)
                answer = await decoded(self._checked(posted), read)
            except SourceError as error:
                self._hushed(error)
                if not isinstance(error, Unavailable):
                    self.pace.accept(sent_s, len(calls))
                    raise
                self.errors.note(error)
                self.health.failed()
                is_long = (error.retry_after_s or 0) > MAX_RETRY_AFTER_S
                if isinstance(error, RateLimited):
                    self.pace.refuse(sent_s, None if is_long else error.retry_after_s)
                elif not is_long:
                    self.pace.hold(error.retry_after_s or 0)
                if is_long or attempt == self._last_try(error):
                    self.down_until_s = self._environment.clock.monotonic_s() + MAX_WAIT_S
                    self.health.pardon()
                    raise
                pause_s = error.retry_after_s if error.retry_after_s is not None else wait_s
                await self._environment.clock.sleep(pause_s + self._environment.random.random() * wait_s / 2)
                wait_s = min(wait_s * 2, MAX_WAIT_S)
            else:
                self.pace.accept(sent_s, len(calls))
                return answer
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _last_try(self, error: Unavailable) -> int:
        """Nobody there at first contact is a mistake in the settings more often than an outage: say so soon."""
        if self.checked:
            return RETRIES - 1
        return 2 if isinstance(error, Unreachable) else 1 if isinstance(error, NoResponse) else RETRIES - 1

    def _hushed(self, error: SourceError) -> SourceError:
        for secret in self._secrets:
            error.reason, error.message = (text.replace(secret, "…") for text in (error.reason, error.message))
            error.args = (error.message,)
        return error

    def _checked(self, posted: HttpResponse) -> HttpResponse:
        """What came back; raises the error that a status or a body without an answer is."""
        refusal = self.response_error(posted)
        if refusal is not None:
            posted.give_back()
            raise refusal
        return posted

    async def _exchanged(
        self,
        send: Callable[[], Awaitable[HttpResponse]],
        sent_bytes: int,
        cost: int,
        calls: Sequence[str] = ("",),
        *,
        can_repeat: bool = True,
    ) -> tuple[HttpResponse, float]:
        """One exchange in the endpoint's turn: what came back, and when the request was sent.

        `can_repeat`: the request may be sent again while no answer comes.
        """

        async def begin() -> float:
            sent_s = await self.pace.turn(len(calls))
            metering.charge(cost)
            self.requests += 1
            self.sent_bytes += sent_bytes
            return sent_s

        async def again() -> HttpResponse:
            await begin()
            return await send()

        async with self._gate:
            sent_s = await begin()
            exchange = self._first_answer(send, again, calls[0]) if can_repeat else send()
            posted = await self._noticed(exchange)
            self.received_bytes += len(posted.body) if posted.took is None else posted.took
            if posted.took is None:  # how long so many bytes take says nothing of how soon it answers
                self.health.exchanged(self._environment.clock.monotonic_s() - sent_s)
        return posted, sent_s

    async def _first_answer(
        self, send: Callable[[], Awaitable[HttpResponse]], again: Callable[[], Awaitable[HttpResponse]], kind: str
    ) -> HttpResponse:
        """The first answer to a request, which is sent `again` if it takes longer than this endpoint usually does.

        Raises the error of the first try if none is answered. Time is the event loop's: nobody simulates a socket.
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
                done, _ = await asyncio.wait(pending, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
                if answered := [each for each in done if each.exception() is None]:
                    winner = answered[0].result()
                elif len(done) == len(pending):
                    winner = tries[0].result()
                elif not done:
                    self.hedged += 1
                    tries.append(asyncio.ensure_future(again()))
            self.health.read(f"{EXCHANGE}{kind}", loop.time() - start_s)
            return winner
        finally:
            for each in tries:
                each.cancel()
            for late in await asyncio.gather(*tries, return_exceptions=True):
                if isinstance(late, HttpResponse) and late is not winner:
                    late.give_back()

    def _patience_s(self, kind: str) -> float:
        """How long a request of a kind may take before it is sent again."""
        usual_s = self.health.patience_s(f"{EXCHANGE}{kind}")
        return self._timeout_s / 6 if usual_s is None else max(LEAST_PATIENCE_S, UNUSUAL * usual_s)

    async def _noticed(self, sent: Awaitable[HttpResponse]) -> HttpResponse:
        """What came back. At first contact it is told after a while that nothing did yet."""
        if self.checked:
            return await sent
        words = "%s: no answer yet after %g s"
        notice = asyncio.get_running_loop().call_later(NOTICE_S, log.warning, words, self.name, NOTICE_S)
        try:
            return await sent
        finally:
            notice.cancel()


async def decoded(posted: HttpResponse, read: Callable[[bytes], T]) -> T:
    """What `read` makes of a body; its bytes are given back when that is done, which nobody's leaving ends sooner."""
    if len(posted.body) <= LARGE:
        try:
            return read(posted.body)
        finally:
            posted.give_back()
    reading = asyncio.ensure_future(asyncio.to_thread(read, posted.body))
    reading.add_done_callback(posted.give_back)
    try:
        return await asyncio.shield(reading)
    except SourceError as error:
        error.__context__ = None  # its frames and those of its cause hold the body, for as long as anybody holds it
        raise error.with_traceback(None) from None
    finally:
        del posted, reading  # the task holds the error, and the error this frame


def refusal_of(source: str, posted: HttpResponse) -> SourceError | None:
    """The error that a status without an answer is, whatever is asked."""
    if posted.status == 429:
        return RateLimited(source, "too many requests (429)", retry_after_s=posted.retry_after_s)
    if posted.status == 413:
        return BodyRefused(source, "the node refuses a body of this size (413)", dense=True)
    if posted.status >= 500:
        return Unavailable(source, f"HTTP {posted.status}", retry_after_s=posted.retry_after_s)
    if posted.status in (401, 403):
        return BadAnswer(
            source, f"access refused (HTTP {posted.status})", remedy="check the key in the endpoint's address"
        )
    if 300 <= posted.status < 400:
        return BadAnswer(source, f"redirects elsewhere (HTTP {posted.status})", remedy="use the final address")
    return None


def not_json(source: str, posted: HttpResponse) -> Unavailable | None:
    """The error of a body that is no JSON, or not all of it."""
    body = posted.body
    start, end = body[:64].lstrip(), body[-64:].rstrip()
    if start[:1] not in (b"{", b"["):
        kind = "a web page" if start[:1] == b"<" else "no JSON"
        return Unavailable(source, f"answered with {kind} (HTTP {posted.status}, {len(body)} bytes)")
    if end[-1:] not in (b"}", b"]"):
        return Unavailable(source, f"the answer breaks off after {len(body)} bytes")
    return None
