"""One endpoint of a chain that speaks JSON-RPC: understood strictly, its limits remembered."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import ClassVar, TypeVar

from chainfolio.chains import EndpointHealth
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, ResponseTooLarge, SourceError, Unavailable, UnsupportedMethod
from chainfolio.transport.exchange import HttpResponse, RateLimited
from chainfolio.transport.health import Evidence
from chainfolio.transport.http import Transport
from chainfolio.transport.http_endpoint import BodyRefused, HttpEndpoint
from chainfolio.transport.pacing import Pace
from chainfolio.transport.recent_answers import RecentAnswers
from chainfolio.transport.wire import Request, RpcError, decode, encode, whole

MAX_TOGETHER = 20  # questions in the batch that greets
MAX_BODY = 1_900_000  # bytes: many nodes and gateways refuse a body of 2 MB
USUAL_BATCH = 10  # that most rented endpoints take
LARGE_BODY = 100_000  # bytes: a smaller body is refused for how many questions it has

_ABOUT_THE_BATCH = re.compile(r"batch|response too large", re.I)
_BATCH_LIMIT = re.compile(
    r"\b(?:max(?:imum)?|limit(?:ed)?(?: to)?|up to|at most|more than|exceeds?(?: the)?)\b[^0-9]{0,40}\b([0-9]{1,4})\b"
    r"(?![,.][0-9])(?! *(?:bytes|[km]i?b)\b)",
    re.I,
)
_TAKES_NONE = re.compile(
    r"not (?:supported|available|allowed|enabled|permitted)|disabled|unsupported|only method calls", re.I
)

Answer = bytes | SourceError
T = TypeVar("T")


class BatchRefused(UnsupportedMethod):
    """The node does not take that many questions at once."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """What an endpoint is asked before it is believed, and who hears the answers: that raises where they are wrong."""

    reads: Sequence[Request]
    hear: Callable[[Endpoint, Sequence[Answer]], object]


class Endpoint(HttpEndpoint, ABC):
    """One URL that speaks JSON-RPC, of a kind of chain that says what its refusals mean and what its calls cost.

    `capabilities` holds its caps: max_span, max_batch, max_bytes, route, pin, rps, counts_calls; `on_capability` keeps
    them over a restart.

    While it is not `checked`, what it is asked travels with the `handshake`, and is believed once that was heard.
    `means_none`: whether who says that batches are not supported takes none, where others mean large ones.
    """

    means_none: ClassVar[bool] = False

    def __init__(
        self,
        url: str,
        transport: Transport,
        environment: Environment,
        *,
        timeout_s: float = 60,
        max_rps: int = 0,
        concurrency: int = 4,
        capabilities: Mapping[str, int] | None = None,
        on_capability: Callable[[str, int], None] = lambda name, value: None,
        evidence: Evidence | None = None,
        on_quarantine: Callable[[Evidence], None] = lambda evidence: None,
        recent: RecentAnswers | None = None,
    ) -> None:
        super().__init__(
            url,
            transport,
            environment,
            timeout_s=timeout_s,
            max_rps=max_rps,
            concurrency=concurrency,
            evidence=evidence,
            on_quarantine=on_quarantine,
        )
        self.capabilities: dict[str, int] = dict(capabilities or {})
        self.pace = Pace(environment.clock, max_rps=max_rps, learnt=self.capabilities, on_learn=self.learn)
        self.handshake: Handshake | None = None
        self.lacks_state_at = -1  # the highest block whose state it said to have no more
        self._on_learn = on_capability
        self._recent = recent

    @abstractmethod
    def meaning(self, method: str, refusal: RpcError, height: int) -> SourceError:
        """The typed error behind a refusal of a method that was about a height."""

    @abstractmethod
    def units(self, method: str) -> int:
        """What a call costs in compute units; a batch costs what its calls cost."""

    def health_report(self, best_height: int | None) -> EndpointHealth:
        """Its health as all kinds of chain show it, with how many calls it takes at once and in a second."""
        health, pace = super().health_report(best_height), self.pace
        max_batch = self.capabilities.get("max_batch")
        return replace(health, max_batch=max_batch, rate=pace.bound or None, counts_calls=pace.counts_calls)

    def learn(self, name: str, value: int) -> None:
        """Remember a fact about this endpoint, here and in the store."""
        if self.capabilities.get(name) != value:
            self.capabilities[name] = value
            self._on_learn(name, value)

    async def ask(self, requests: Sequence[Request], *, height: int = 0) -> list[Answer]:
        """An answer or a typed refusal for each request. Transient errors are retried and in the end raised.

        The first of all are sent with the handshake, in one batch.
        """
        if self._recent is not None:
            return await self._recent.through(requests, lambda missing: self._asked(missing, height))
        return await self._asked(requests, height)

    async def _asked(self, requests: Sequence[Request], height: int) -> list[Answer]:
        if not requests or self.checked or self.handshake is None:
            return await self.put(requests, height=height)
        if self._recent is not None:
            await self._handshake()
            return await self.put(requests, height=height)
        reads, together = self.handshake.reads, [*self.handshake.reads, *requests]
        most = min(MAX_TOGETHER, self.capabilities.get("max_batch", MAX_TOGETHER))
        if len(together) <= most and len(self._fitting(together)) == len(together):
            try:
                answers = await self._ask_part(together, height)
            except (BatchRefused, ResponseTooLarge) as refusal:  # by whichever of them: each on its own shows
                self.errors.note(refusal)
            else:
                self.handshake.hear(self, answers[: len(reads)])
                return answers[len(reads) :]
        await self._handshake()
        return await self.put(requests, height=height)

    async def _handshake(self) -> None:
        if not self.checked and self.handshake is not None:
            self.handshake.hear(self, await self.handshake_answers())

    async def handshake_answers(self) -> list[Answer]:
        """Return the answers to the handshake: those that another command stored moments ago, else new ones."""
        reads = self.handshake.reads if self.handshake is not None else ()
        if self._recent is None:
            return await self.put(reads)
        return await self._recent.through(reads, self.put, is_handshake=True)

    async def put(self, requests: Sequence[Request], *, height: int = 0) -> list[Answer]:
        """As `ask`, of whomever it may be: without a handshake."""
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
        """How many bytes it is sent in one body at most."""
        return min(self.capabilities.get("max_bytes", MAX_BODY), MAX_BODY)

    def _fitting(self, requests: Sequence[Request]) -> Sequence[Request]:
        """As many of the first as go into one body; one at least."""
        if len(requests) < 2 or len(encode(requests)) <= self.max_body:
            return requests
        sizes = accumulate(len(encode([request])) + 1 for request in requests)
        return requests[: max(1, sum(size <= self.max_body for size in sizes))]

    async def ask_one(self, request: Request, *, height: int = 0) -> bytes:
        """The result of a single request; its refusal is raised."""
        answer = (await self.ask([request], height=height))[0]
        if isinstance(answer, SourceError):
            raise answer
        return answer

    async def ask_large(self, request: Request, parse: Callable[[str, memoryview | bytes], T], *, height: int = 0) -> T:
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
        return await self._posted(encode([request]), read, self.units(request.method), [request.method])

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
                if refused and self.means_none and _TAKES_NONE.search(refusal.reason):
                    self.learn("max_batch", 1)
                if type(refusal) in (Unavailable, RateLimited):
                    raise refusal  # rate limits come as an answer too: the whole batch is asked again
                if refused or (len(given) > 1 and _is_about_the_batch(refusal)):
                    raise BatchRefused(self.name, refusal.reason)
                answers.append(refusal)
            return answers

        methods = [request.method for request in requests]
        self.calls.update(methods)
        return await self._posted(encode(requests), read, sum(map(self.units, methods)), methods)

    async def _posted(self, body: bytes, read: Callable[[bytes], T], cost: int, methods: Sequence[str]) -> T:
        async def send() -> HttpResponse:
            return await self._transport.post(self.name, self.url, body, self._timeout_s)

        try:
            return await self._retrying(send, read, cost, len(body), methods)
        except BodyRefused as refusal:
            refusal.sent_bytes = len(body)
            raise


def _smaller(size: int, refusal: SourceError) -> int:
    """Return the size of the next batch after a refused one: the limit that the words name, else the half.

    If the half is below the limit of most rented endpoints and `size` is above it, that limit.
    """
    named = _BATCH_LIMIT.search(refusal.reason)
    if named is not None and 0 < int(named[1]) < size:
        return int(named[1])
    return max(size // 2, USUAL_BATCH if size > USUAL_BATCH else 1)


def _is_about_the_batch(refusal: SourceError) -> bool:
    """Whether fewer questions at once may help; what a contract says when it reverts is no such hint."""
    kind = isinstance(refusal, UnsupportedMethod | ResponseTooLarge) or type(refusal) is BadAnswer
    return kind and bool(_ABOUT_THE_BATCH.search(refusal.reason))
