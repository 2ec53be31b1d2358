"""One JSON-RPC endpoint of a chain: strict parsing, batches, and stored limits."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import ClassVar, TypeVar

from chainfolio.chain_results import EndpointHealth
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, ResponseTooLarge, SourceError, Unavailable, UnsupportedMethod
from chainfolio.transport.exchange import HttpResponse, RateLimited
from chainfolio.transport.http import Transport
from chainfolio.transport.http_endpoint import NO_RECORD, BodyRefused, EndpointRecord, HttpEndpoint
from chainfolio.transport.pacing import Pace
from chainfolio.transport.wire import Request, RpcError, decode, encode, plain_result

MAX_HANDSHAKE_BATCH = 20  # requests in a batch that contains the handshake
MAX_BODY = 1_900_000  # bytes: many nodes and gateways refuse a body of 2 MB
USUAL_BATCH = 10  # that most rented endpoints accept
LARGE_BODY = 100_000  # bytes: a smaller body is refused for the number of its requests

_BATCH_TOO_LARGE = re.compile(r"batch|response too large", re.I)
_BATCH_LIMIT = re.compile(
    r"\b(?:max(?:imum)?|limit(?:ed)?(?: to)?|up to|at most|more than|exceeds?(?: the)?)\b[^0-9]{0,40}\b([0-9]{1,4})\b"
    r"(?![,.][0-9])(?! *(?:bytes|[km]i?b)\b)",
    re.I,
)
_NO_BATCHES = re.compile(
    r"not (?:supported|available|allowed|enabled|permitted)|disabled|unsupported|only method calls", re.I
)

Answer = bytes | SourceError
T = TypeVar("T")


class BatchRefused(UnsupportedMethod):
    """The node refuses a batch of that many requests."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """Requests that an endpoint must answer before it is trusted. `check` raises if the answers are wrong."""

    reads: Sequence[Request]
    check: Callable[[Endpoint, Sequence[Answer]], object]


class Endpoint(HttpEndpoint, ABC):
    """Base class of the JSON-RPC endpoints of one kind of chain.

    `capabilities` are its detected limits: max_span, max_batch, max_bytes, route, pin, rps, counts_calls;
    the record's `on_capability` stores them. Until the endpoint is `checked`, its first requests are sent with the
    `handshake`, and answers are used only if the handshake succeeds.

    Attributes:
        refuses_all_batches: "Not supported" means that any batch is refused, and not only a large one.
    """

    refuses_all_batches: ClassVar[bool] = False

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
        """Prepare an endpoint; no request is sent.

        Args:
            url: Its address, which may hold a key.
            transport: Sends the requests.
            environment: Clock and randomness.
            timeout_s: Limit of one exchange.
            max_rps: Requests in a second; 0 for as many as it takes.
            concurrency: Exchanges at once.
            record: What an earlier process learned of it, and where new facts are stored.
        """
        super().__init__(
            url,
            transport,
            environment,
            timeout_s=timeout_s,
            max_rps=max_rps,
            concurrency=concurrency,
            record=record,
        )
        self.capabilities: dict[str, int] = dict(record.capabilities)
        self.pace = Pace(environment.clock, max_rps=max_rps, learnt=self.capabilities, on_learn=self.learn)
        self.handshake: Handshake | None = None
        self.lacks_state_at = -1  # the highest block whose state it no longer has, by its own refusals
        self._on_learn = record.on_capability
        self._recent = record.recent

    @abstractmethod
    def meaning(self, method: str, refusal: RpcError, height: int) -> SourceError:
        """Return the typed error for an error object. `height` is the block that the request was about."""

    @abstractmethod
    def units(self, method: str) -> int:
        """Return the cost of one call in compute units. A batch costs the sum of its calls."""

    def health_report(self, best_height: int | None) -> EndpointHealth:
        """Return its state for status documents, including its batch size and rate limit."""
        health, pace = super().health_report(best_height), self.pace
        max_batch = self.capabilities.get("max_batch")
        return replace(health, max_batch=max_batch, rate=pace.bound or None, counts_calls=pace.counts_calls)

    def learn(self, name: str, value: int) -> None:
        """Set a capability, and store it if it changed."""
        if self.capabilities.get(name) != value:
            self.capabilities[name] = value
            self._on_learn(name, value)

    async def ask(self, requests: Sequence[Request], *, height: int = 0) -> list[Answer]:
        """Return a result or a typed refusal for each request, in order; stored answers are used again.

        The first requests include the handshake.

        Args:
            requests: They are sent in batches that the endpoint accepts.
            height: The block that they are about, for errors.

        Raises:
            SourceError: The endpoint failed after retries, or the handshake failed.
        """
        if self._recent is not None:
            return await self._recent.through(requests, lambda missing: self._ask_new(missing, height))
        return await self._ask_new(requests, height)

    async def _ask_new(self, requests: Sequence[Request], height: int) -> list[Answer]:
        """Return the answers to requests that are not cached.

        The handshake is sent before the first ones, in the same batch if it fits and the endpoint takes it.
        """
        if not requests or self.checked or self.handshake is None:
            return await self.ask_unchecked(requests, height=height)
        if self._recent is not None:
            await self._handshake()
            return await self.ask_unchecked(requests, height=height)
        reads, batch = self.handshake.reads, [*self.handshake.reads, *requests]
        max_batch = min(MAX_HANDSHAKE_BATCH, self.capabilities.get("max_batch", MAX_HANDSHAKE_BATCH))
        if len(batch) <= max_batch and len(self._fitting(batch)) == len(batch):
            try:
                answers = await self._ask_part(batch, height)
            except (BatchRefused, ResponseTooLarge) as refusal:  # of the handshake or of the requests: send them apart
                self.errors.note(refusal)
            else:
                self.handshake.check(self, answers[: len(reads)])
                return answers[len(reads) :]
        await self._handshake()
        return await self.ask_unchecked(requests, height=height)

    async def _handshake(self) -> None:
        if not self.checked and self.handshake is not None:
            self.handshake.check(self, await self.handshake_answers())

    async def handshake_answers(self) -> list[Answer]:
        """Return the answers to the handshake, empty without one.

        Answers that another command stored moments ago are used again.
        """
        reads = self.handshake.reads if self.handshake is not None else ()
        if self._recent is None:
            return await self.ask_unchecked(reads)
        return await self._recent.through(reads, self.ask_unchecked, is_handshake=True)

    async def ask_unchecked(self, requests: Sequence[Request], *, height: int = 0) -> list[Answer]:
        """Return a result or a typed refusal for each request, in order, without a handshake.

        `height` is the block that the requests are about, for errors. Stored answers are not used. A refused batch is
        sent again in smaller parts, and the smaller size is stored as a capability. If a single request is refused for
        its size, that error is its answer.

        Raises:
            SourceError: The endpoint failed after retries, or its answer is malformed.
        """
        answers: list[Answer] = []
        start = 0
        while start < len(requests):
            part = self._fitting(requests[start : start + self.capabilities.get("max_batch", 1000)])
            try:
                answers += await self._ask_part(part, height)
            except (BatchRefused, ResponseTooLarge) as refusal:
                sent_bytes = refusal.sent_bytes if isinstance(refusal, BodyRefused) else 0
                if sent_bytes > LARGE_BODY:
                    self.learn("max_bytes", sent_bytes // 2)
                elif len(part) > 1:
                    self.learn(
                        "max_batch", min(_smaller(len(part), refusal), self.capabilities.get("max_batch", len(part)))
                    )
                if len(part) > 1:
                    self.errors.note(refusal)
                    continue
                answers.append(refusal)
            start += len(part)
        return answers

    @property
    def max_body(self) -> int:
        """Maximum size of a request body in bytes."""
        return min(self.capabilities.get("max_bytes", MAX_BODY), MAX_BODY)

    def _fitting(self, requests: Sequence[Request]) -> Sequence[Request]:
        """Return as many of the first requests as fit into one body, at least one."""
        if len(requests) < 2 or len(encode(requests)) <= self.max_body:
            return requests
        sizes = accumulate(len(encode([request])) + 1 for request in requests)
        return requests[: max(1, sum(size <= self.max_body for size in sizes))]

    async def ask_one(self, request: Request, *, height: int = 0) -> bytes:
        """Return the result of one request as JSON; raise its refusal."""
        answer = (await self.ask([request], height=height))[0]
        if isinstance(answer, SourceError):
            raise answer
        return answer

    async def ask_large(self, request: Request, parse: Callable[[str, memoryview | bytes], T], *, height: int = 0) -> T:
        """Return the parsed result of one request. A result in a plain envelope is not copied.

        The answer is neither taken from stored answers nor stored. The handshake is sent first, if it is due.

        Raises:
            SourceError: The node refused the request, or failed after retries.
        """

        def read(body: bytes) -> T:
            content = plain_result(body)
            if content is not None:
                return parse(self.name, content)
            answer = decode(self.name, body, 1)[0]
            if isinstance(answer, RpcError):
                raise self.meaning(request.method, answer, height)
            return parse(self.name, answer)

        await self._handshake()
        self.calls[request.method] += 1
        return await self._post(encode([request]), read, self.units(request.method), [request.method])

    async def _ask_part(self, requests: Sequence[Request], height: int) -> list[Answer]:
        """Return the answers to one batch; refusals of single requests are among them.

        Raises Unavailable or RateLimited if an answer reports it, BatchRefused if fewer requests may succeed.
        """

        def read_batch(body: bytes) -> list[Answer]:
            """Return the answers; raise BatchRefused if fewer requests may succeed."""
            answers: list[Answer] = []
            replies = decode(self.name, body, len(requests))
            is_refused = len(replies) > 1 and isinstance(replies[0], RpcError) and replies[0] is replies[-1]
            for request, reply in zip(requests, replies, strict=True):
                if not isinstance(reply, RpcError):
                    answers.append(reply)
                    continue
                refusal = self._redact(self.meaning("a batch" if is_refused else request.method, reply, height))
                if is_refused and self.refuses_all_batches and _NO_BATCHES.search(refusal.reason):
                    self.learn("max_batch", 1)
                if type(refusal) in (Unavailable, RateLimited):
                    raise refusal  # some nodes report a rate limit in an answer: the whole batch is sent again
                if is_refused or (len(replies) > 1 and _concerns_batch(refusal)):
                    raise BatchRefused(self.name, refusal.reason)
                answers.append(refusal)
            return answers

        methods = [request.method for request in requests]
        self.calls.update(methods)
        return await self._post(encode(requests), read_batch, sum(map(self.units, methods)), methods)

    async def _post(self, body: bytes, read: Callable[[bytes], T], cost: int, methods: Sequence[str]) -> T:
        """Send a request with retries and return its parsed answer; a BodyRefused gets the number of bytes."""

        async def send() -> HttpResponse:
            return await self._transport.post(self.name, self.url, body, self._timeout_s)

        try:
            return await self._retrying(send, read, cost, len(body), methods)
        except BodyRefused as refusal:
            refusal.sent_bytes = len(body)
            raise


def _smaller(size: int, refusal: SourceError) -> int:
    """Return the size of the next batch after a refused one.

    It is the limit that the refusal names, else the half. If the half is below the limit of most rented endpoints and
    `size` is above it, it is that limit.
    """
    limit = _BATCH_LIMIT.search(refusal.reason)
    if limit is not None and 0 < int(limit[1]) < size:
        return int(limit[1])
    return max(size // 2, USUAL_BATCH if size > USUAL_BATCH else 1)


def _concerns_batch(refusal: SourceError) -> bool:
    """Return True if a smaller batch may succeed. The message of a reverting contract does not count."""
    kind = isinstance(refusal, UnsupportedMethod | ResponseTooLarge) or type(refusal) is BadAnswer
    return kind and bool(_BATCH_TOO_LARGE.search(refusal.reason))
