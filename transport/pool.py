"""Which of a chain's endpoints is asked, when another one is asked too, and whom to believe when they contradict.

With a quorum of one, the best endpoint answers; another one is asked once it takes unusually long, or cannot. With a
greater one, so many have to say the same, question by question; further ones are asked until a majority does. Whoever
says otherwise about what cannot change any more, or is contradicted by a hash, is quarantined with the evidence. What
has no majority is an error, never a value."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

from chainfolio.environment import Environment
from chainfolio.errors import (
    BadAnswer,
    Contradiction,
    HistoryUnavailable,
    NodeBehind,
    NoQuorum,
    SourceError,
    Unavailable,
    WrongChain,
)
from chainfolio.transport.health import Evidence
from chainfolio.transport.http_endpoint import HttpEndpoint
from chainfolio.transport.quorum import Tally, count

T = TypeVar("T")
E = TypeVar("E", bound=HttpEndpoint)
Read = Callable[[E], Awaitable[T]]
BEHIND_TRIES = 4
BEHIND_WAIT_S = 0.5
JITTER = 0.1
SHOWN = 300


def shown(value: object) -> str:
    """A value as evidence: its text, cut."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"


class Pool(Generic[E]):
    """All endpoints of one chain. Every read names the error of the last endpoint tried when none could answer."""

    def __init__(
        self, key: str, endpoints: Sequence[E], environment: Environment, *, quorum: int = 1, hedge: bool = True
    ) -> None:
        if not endpoints:
            raise Unavailable(key, "no endpoint is configured", remedy=f"add one to chains.{key} in the settings")
        self.key, self.endpoints, self.environment = key, list(endpoints), environment
        self.quorum, self.hedge = quorum, hedge

    @property
    def requests(self) -> int:
        """HTTP requests sent so far, to all endpoints."""
        return sum(endpoint.requests for endpoint in self.endpoints)

    @property
    def best_height(self) -> int | None:
        """The newest height that any endpoint claimed, quarantined ones excepted."""
        return max((e.health.height for e in self._free() if e.health.height is not None), default=None)

    async def close(self) -> None:
        """Let go of connections."""
        for endpoint in self.endpoints:
            await endpoint.close()

    @property
    def hedged(self) -> int:
        """How many reads were asked of a second endpoint."""
        return sum(endpoint.hedged for endpoint in self.endpoints)

    def errors_by_endpoint(self) -> dict[str, dict[str, int]]:
        """What went wrong so far, by endpoint and kind of error."""
        return {e.name: dict(e.errors.counts) for e in self.endpoints if e.errors.counts}

    # --- who is asked ------------------------------------------------------------------------------------------------

    def _free(self) -> list[E]:
        return [endpoint for endpoint in self.endpoints if endpoint.health.evidence is None]

    def ranked(self) -> list[E]:
        """Who may be asked, the healthiest first; those that are down last. Unavailable where all are quarantined."""
        free, now_s = self._free(), self.environment.clock.monotonic_s()
        if not free:
            raise Unavailable(
                self.key,
                "every endpoint is quarantined",
                remedy="see `chainfolio doctor`; add an endpoint, or --reinstate one",
            )
        if len(free) == 1:
            return free
        height = self.best_height or 0
        fastest_s = min((e.health.latency_s for e in free if e.health.latency_s is not None), default=None)
        return sorted(free, key=lambda e: (e.down_until_s > now_s, *e.health.rank(height, fastest_s)))

    def quarantine(self, endpoint: E, asked: str, given: str, truth: str) -> None:
        """Ask an endpoint nothing any more. The last one stays: each of its wrong answers is refused on its own."""
        endpoint.errors.note(Contradiction(endpoint.name, asked, given, truth))
        if self._free() != [endpoint]:
            now_us = self.environment.clock.now_us()
            endpoint.quarantine(Evidence(self.key, endpoint.name, asked, given, truth, now_us))

    # --- a quorum of one ----------------------------------------------------------------------------------------------

    async def with_any(self, read: Read[E, T], *, kind: str = "other") -> T:
        """`read` at the best endpoint that can answer it; the others after it could not, or took unusually long."""
        last: SourceError | None = None
        for attempt in range(BEHIND_TRIES):
            left = self.ranked()
            alone = len(left) == 1
            while left:
                endpoint = left.pop(0)
                try:
                    return await self._hedged(read, endpoint, left, kind=kind)
                except (Unavailable, HistoryUnavailable, WrongChain, BadAnswer) as error:
                    last = error
                    if alone and not isinstance(error, NodeBehind):
                        raise
            if not isinstance(last, NodeBehind) or attempt == BEHIND_TRIES - 1:
                break
            await self.environment.clock.sleep(BEHIND_WAIT_S * 2**attempt)
        assert last is not None
        raise last

    async def _hedged(self, read: Read[E, T], endpoint: E, left: list[E], *, kind: str) -> T:
        """`read` at an endpoint; at the next one, too, where the first takes longer than it nearly always does."""
        patience_s = endpoint.health.patience_s(kind) if self.hedge and left else None
        if patience_s is None:
            return await self._read(read, endpoint, kind=kind)
        patience_s *= 1 + JITTER * self.environment.random.random()
        first = asyncio.create_task(self._read(read, endpoint, kind=kind))
        timer = asyncio.ensure_future(self.environment.clock.sleep(patience_s))
        tasks: list[asyncio.Future[Any]] = [first, timer]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if first.done():
                return first.result()
            endpoint.hedged += 1
            second = asyncio.create_task(self._read(read, left.pop(0), kind=kind))
            tasks.append(second)
            done, _ = await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
            winner, other = (first, second) if first in done else (second, first)
            return winner.result() if winner.exception() is None else await other
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, read: Read[E, T], endpoint: E, *, kind: str) -> T:
        """One read at one endpoint, timed; its errors are counted, and a lie that a hash proves quarantines it."""
        start_s = self.environment.clock.monotonic_s()
        try:
            result = await read(endpoint)
        except asyncio.CancelledError:  # another one was faster: so slow it was, at least
            took_s = self.environment.clock.monotonic_s() - start_s
            endpoint.health.exchanged(took_s)
            endpoint.health.read(kind, took_s)
            raise
        except Contradiction as error:
            self.quarantine(endpoint, error.asked, error.given, error.truth)
            raise
        except (Unavailable, HistoryUnavailable, WrongChain, BadAnswer) as error:
            endpoint.errors.note(error)
            raise
        endpoint.health.read(kind, self.environment.clock.monotonic_s() - start_s)
        return result

    # --- a greater quorum ---------------------------------------------------------------------------------------------

    async def agreed(
        self,
        read: Read[E, list[T]],
        *,
        key: Callable[[T], Hashable | None],
        describe: Callable[[int], str],
        is_final: Callable[[int], bool] = lambda question: True,
        kind: str = "other",
    ) -> list[T]:
        """Return one answer per question, each given by a quorum of endpoints.

        Args:
            read: Returns the answers of one endpoint to all questions.
            key: Equal answers have equal keys; None abstains.
            describe: Words a question, for evidence and errors.
            is_final: Whether the answer to a question can no longer change.
            kind: The kind of read, for its latency.

        Raises:
            NoQuorum: The answers to a final question have no majority.
            Unavailable: The same for another question, or too few endpoints answered.
        """
        if self.quorum < 2:
            return await self.with_any(read, kind=kind)
        for attempt in range(BEHIND_TRIES):
            try:
                voters, answers, tally = await self._poll(read, key, kind)
                break
            except NodeBehind:
                if attempt == BEHIND_TRIES - 1:
                    raise
            await self.environment.clock.sleep(BEHIND_WAIT_S * 2**attempt)
        for voter, question, winner in tally.against:
            if is_final(question):
                given, truth = (shown(key(answers[k][question])) for k in (voter, winner))
                others = ", ".join(e.name for e in voters if e is not voters[voter])
                self.quarantine(voters[voter], describe(question), given, f"{truth} by a majority of {others}")
            else:
                voters[voter].errors.note(NodeBehind(voters[voter].name, f"{describe(question)}: is on another branch"))
        self._no_dispute(tally, voters, describe, is_final)
        return tally.items

    def _no_dispute(
        self,
        tally: Tally[T],
        voters: Sequence[E],
        describe: Callable[[int], str],
        is_final: Callable[[int], bool],
    ) -> None:
        names = ", ".join(endpoint.name for endpoint in voters)
        for question in tally.disputed:
            reason = f"{names} contradict each other, and none has a majority: {describe(question)}"
            if is_final(question):
                raise NoQuorum(self.key, reason, remedy="add an endpoint that can decide; see `chainfolio doctor`")
            raise Unavailable(self.key, reason)

    async def _poll(
        self, read: Read[E, list[T]], key: Callable[[T], Hashable | None], kind: str
    ) -> tuple[list[E], list[list[T]], Tally[T]]:
        """As many endpoints as have to agree, then one more at a time while they do not."""
        voters: list[E] = []
        answers: list[list[T]] = []
        waiting, last = self.ranked(), None
        tally: Tally[T] | None = None
        while waiting and (tally is None or tally.open):
            wanted = max(1, self.quorum - len(answers))
            plan, waiting = waiting[:wanted], waiting[wanted:]
            results = await asyncio.gather(*(self._tried(read, endpoint, kind) for endpoint in plan))
            for endpoint, result in zip(plan, results, strict=True):
                if isinstance(result, SourceError):
                    last = result
                else:
                    voters.append(endpoint)
                    answers.append(result)
            if len(answers) >= self.quorum:
                tally = count(answers, key, self.quorum)
        if tally is None:
            raise last or self._too_few(len(answers))
        return voters, answers, tally

    async def _tried(self, read: Read[E, T], endpoint: E, kind: str) -> T | SourceError:
        try:
            return await self._read(read, endpoint, kind=kind)
        except SourceError as error:
            return error

    def _too_few(self, found: int) -> Unavailable:
        return Unavailable(
            self.key,
            f"{found} of the {self.quorum} endpoints that have to agree could answer",
            remedy="see `chainfolio doctor`: add an endpoint, or --reinstate one that is quarantined",
        )
