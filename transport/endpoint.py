"""One endpoint of a chain: asked politely (limits, retries), understood strictly, its limits remembered."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import parse_qsl, urlsplit

from chainfolio.chains import Cost, EndpointHealth
from chainfolio.errors import BadAnswer, SourceError, TooMuch, Unavailable, Unsupported
from chainfolio.seams import Seams
from transport import metering
from transport.exchange import Posted, Unreachable
from transport.health import Evidence, Health
from transport.http import Transport
from transport.wire import Request, RpcError, decode, encode, whole

RETRIES = 6
FIRST_WAIT_S = 0.2
MAX_WAIT_S = 20.0
LARGE = 256 * 1024  # an answer of more bytes is decoded beside the event loop
MAX_TOGETHER = 20  # questions in the batch that greets

MIN_SECRET = 8
_ABOUT_THE_BATCH = re.compile(r"batch|response too large", re.I)

log = logging.getLogger("chainfolio.node")
Answer = bytes | SourceError
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


class BatchRefused(Unsupported):
    """The node does not take that many questions at once."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """What an endpoint is asked before it is believed, and who hears the answers: that raises where they are wrong."""

    reads: Sequence[Request]
    hear: Callable[[Endpoint, Sequence[Answer]], object]


class Endpoint(ABC):
    """One URL, of a kind of chain that says what its refusals mean and what its calls cost.

    `capabilities` holds its caps: max_span, max_batch, route, pin; `on_capability` keeps them over a restart.

    While it is not `checked`, what it is asked travels with the `handshake`, and is believed once that was heard.
    """

    def __init__(
        self,
        url: str,
        transport: Transport,
        seams: Seams,
        *,
        timeout_s: float = 60,
        max_rps: int = 0,
        concurrency: int = 4,
        capabilities: Mapping[str, int] | None = None,
        on_capability: Callable[[str, int], None] = lambda name, value: None,
        evidence: Evidence | None = None,
        on_quarantine: Callable[[Evidence], None] = lambda evidence: None,
    ) -> None:
        self.url, self.name = url, name_of(url)
        self._secrets = secrets_of(url)
        self.capabilities: dict[str, int] = dict(capabilities or {})
        self.errors = ErrorCounters()
        self.health = Health(evidence=evidence)
        self.requests = self.hedged = self.sent_bytes = self.received_bytes = 0
        self.calls: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()
        self.checked = False
        self.handshake: Handshake | None = None
        self.down_until_s = 0.0
        self.lacks_state_at = -1  # the highest block whose state it said to have no more
        self._transport, self._seams, self._timeout_s = transport, seams, timeout_s
        self._gate = asyncio.Semaphore(concurrency)
        self._gap_s = 1.0 / max_rps if max_rps else 0.0
        self._next_s = 0.0
        self._on_learn, self._on_cordon = on_capability, on_quarantine

    @abstractmethod
    def meaning(self, method: str, refusal: RpcError, height: int) -> SourceError:
        """The typed error behind a refusal of a method that was about a height."""

    @abstractmethod
    def units(self, method: str) -> int:
        """What a call costs in compute units; a batch costs what its calls cost."""

    def shown_health(self, best_height: int | None) -> EndpointHealth:
        """Its health as all kinds of chain show it."""
        return EndpointHealth(
            self.name, self.health.height, self.health.head_us, self.health.lag_blocks(best_height),
            self.health.latency_s, self.health.faults, self.health.evidence is not None, self.requests, self.hedged,
            self.errors.counts, Cost(self.sent_bytes, self.received_bytes, self.calls, self.reads),
        )  # fmt: skip

    async def close(self) -> None:
        """Let go of its connections."""
        await self._transport.close()

    def learn(self, name: str, value: int) -> None:
        """Remember a fact about this endpoint, here and in the store."""
        if self.capabilities.get(name) != value:
            self.capabilities[name] = value
            self._on_learn(name, value)

    def quarantine(self, evidence: Evidence) -> None:
        """Ask it nothing any more, here and after a restart, until somebody readmits it."""
        if self.health.evidence is None:
            self.health.evidence = evidence
            log.error("%s is quarantined: %s: gave %s; %s", self.name, evidence.asked, evidence.given, evidence.truth)
            self._on_cordon(evidence)

    async def ask(self, requests: Sequence[Request], *, height: int = 0) -> list[Answer]:
        """An answer or a typed refusal for each request. Transient errors are retried and in the end raised.

        The first of all are sent with the handshake, in one batch.
        """
        if not requests or self.checked or self.handshake is None:
            return await self.put(requests, height=height)
        reads, together = self.handshake.reads, [*self.handshake.reads, *requests]
        if len(together) <= min(MAX_TOGETHER, self.capabilities.get("max_batch", MAX_TOGETHER)):
            try:
                answers = await self._ask_part(together, height)
            except (BatchRefused, TooMuch) as refusal:  # by whichever of them: each on its own shows
                self.errors.note(refusal)
            else:
                self.handshake.hear(self, answers[: len(reads)])
                return answers[len(reads) :]
        await self._handshake()
        return await self.put(requests, height=height)

    async def _handshake(self) -> None:
        if not self.checked and self.handshake is not None:
            self.handshake.hear(self, await self.put(self.handshake.reads))

    async def put(self, requests: Sequence[Request], *, height: int = 0) -> list[Answer]:
        """As `ask`, of whomever it may be: without a handshake."""
        answers: list[Answer] = []
        start = 0
        while start < len(requests):
            part = requests[start : start + self.capabilities.get("max_batch", 1000)]
            try:
                answers += await self._ask_part(part, height)
            except (BatchRefused, TooMuch) as refusal:
                if len(part) > 1:
                    self.errors.note(refusal)
                    self.learn("max_batch", len(part) // 2)
                    continue
                answers.append(refusal)
            start += len(part)
        return answers

    async def one(self, request: Request, *, height: int = 0) -> bytes:
        """The result of a single request; its refusal is raised."""
        answer = (await self.ask([request], height=height))[0]
        if isinstance(answer, SourceError):
            raise answer
        return answer

    async def big(self, request: Request, parse: Callable[[str, memoryview | bytes], T], *, height: int = 0) -> T:
        """What `parse` makes of the result of one request, which is not copied where its envelope is a plain one."""

        def read(body: bytes) -> T:
            content = whole(body)
            if content is not None:
                return parse(self.name, content)
            answer = decode(self.name, body, 1)[0]
            if isinstance(answer, RpcError):
                raise self.meaning(request.method, answer, height)
            return parse(self.name, answer)

        await self._handshake()
        self.calls[request.method] += 1
        return await self._retrying(encode([request]), read, self.units(request.method))

    async def _ask_part(self, requests: Sequence[Request], height: int) -> list[Answer]:
        def read(body: bytes) -> list[Answer]:
            answers: list[Answer] = []
            given = decode(self.name, body, len(requests))
            refused = len(given) > 1 and isinstance(given[0], RpcError) and given[0] is given[-1]
            for request, answer in zip(requests, given, strict=True):
                if not isinstance(answer, RpcError):
                    answers.append(answer)
                    continue
                refusal = self._hushed(self.meaning("a batch" if refused else request.method, answer, height))
                if type(refusal) is Unavailable:
                    raise refusal  # rate limits come as an answer too: the whole batch is asked again
                if refused or (len(given) > 1 and _is_about_the_batch(refusal)):
                    raise BatchRefused(self.name, refusal.reason)
                answers.append(refusal)
            return answers

        self.calls.update(request.method for request in requests)
        return await self._retrying(encode(requests), read, sum(self.units(request.method) for request in requests))

    async def _retrying(self, body: bytes, read: Callable[[bytes], T], cost: int) -> T:
        """Post until `read` likes what came back; waits grow, carry jitter, and honour `Retry-After`. Each try costs so
        many compute units."""
        wait_s = FIRST_WAIT_S
        for attempt in range(RETRIES):
            metering.charge(cost)
            try:
                return await _decoded(await self._post(body), read)
            except SourceError as error:
                self._hushed(error)
                if not isinstance(error, Unavailable):
                    raise
                self.errors.note(error)
                self.health.failed()
                self._next_s = max(self._next_s, self._seams.clock.monotonic_s() + (error.retry_after_s or 0))
                if attempt == self._last_try(error):
                    self.down_until_s = self._seams.clock.monotonic_s() + MAX_WAIT_S
                    self.health.pardon()
                    raise
                pause_s = error.retry_after_s if error.retry_after_s is not None else wait_s
                await self._seams.clock.sleep(pause_s + self._seams.random.random() * wait_s / 2)
                wait_s = min(wait_s * 2, MAX_WAIT_S)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _last_try(self, error: Unavailable) -> int:
        """Nobody there at first contact is a mistake in the settings more often than an outage: say so soon."""
        return RETRIES - 1 if self.checked or not isinstance(error, Unreachable) else 2

    def _hushed(self, error: SourceError) -> SourceError:
        for secret in self._secrets:
            error.reason, error.message = (text.replace(secret, "…") for text in (error.reason, error.message))
            error.args = (error.message,)
        return error

    async def _post(self, body: bytes) -> Posted:
        async with self._gate:
            await self._pace()
            self.requests += 1
            self.sent_bytes += len(body)
            start_s = self._seams.clock.monotonic_s()
            posted = await self._transport.post(self.name, self.url, body, self._timeout_s)
            self.received_bytes += len(posted.body)
            refusal = _refused(self.name, posted)
            if refusal is not None:
                posted.give_back()
                raise refusal
            self.health.exchanged(self._seams.clock.monotonic_s() - start_s)
        return posted

    async def _pace(self) -> None:
        """Keep to the configured rate and to what `Retry-After` asked of everybody."""
        now_s = self._seams.clock.monotonic_s()
        start_s = max(now_s, self._next_s)
        self._next_s = start_s + self._gap_s
        if start_s > now_s:
            await self._seams.clock.sleep(start_s - now_s)


def _is_about_the_batch(refusal: SourceError) -> bool:
    """Whether fewer questions at once may help; what a contract says when it reverts is no such hint."""
    kind = isinstance(refusal, Unsupported | TooMuch) or type(refusal) is BadAnswer
    return kind and bool(_ABOUT_THE_BATCH.search(refusal.reason))


async def _decoded(posted: Posted, read: Callable[[bytes], T]) -> T:
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


def _refused(source: str, posted: Posted) -> SourceError | None:
    """The error that an exchange without an answer is."""
    body = posted.body
    start, end = body[:64].lstrip(), body[-64:].rstrip()
    if posted.status == 429:
        return Unavailable(source, "too many requests (429)", retry_after_s=posted.retry_after_s)
    if posted.status == 413:
        return TooMuch(source, "the node refuses a body of this size (413)", dense=True)
    if posted.status >= 500:
        return Unavailable(source, f"HTTP {posted.status}", retry_after_s=posted.retry_after_s)
    if posted.status in (401, 403):
        return BadAnswer(
            source, f"access refused (HTTP {posted.status})", remedy="check the key in the endpoint's address"
        )
    if 300 <= posted.status < 400:
        return BadAnswer(source, f"redirects elsewhere (HTTP {posted.status})", remedy="use the final address")
    if start[:1] not in (b"{", b"["):
        kind = "a web page" if start[:1] == b"<" else "no JSON"
        return Unavailable(source, f"answered with {kind} (HTTP {posted.status}, {len(body)} bytes)")
    if end[-1:] not in (b"}", b"]"):
        return Unavailable(source, f"the answer breaks off after {len(body)} bytes")
    return None
