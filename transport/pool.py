"""The endpoints of a chain: selection, hedging, failover, quorum, quarantine.

With a quorum of one, the best endpoint answers; the next one is used if it takes unusually long, or fails. With a
larger quorum, so many endpoints must agree on each question; further ones are asked until a majority does. An endpoint
that contradicts the majority about final data, or a hash, is quarantined with the evidence. A question without a
majority is an error, never a value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from chainfolio.environment import Environment
from chainfolio.errors import (
    BadAnswer,
    Contradiction,
    HistoryUnavailable,
    NodeBehind,
    NoQuorum,
    SourceError,
    Unavailable,
    UnsupportedMethod,
    WrongChain,
)
from chainfolio.transport.health import Evidence
from chainfolio.transport.http_endpoint import HttpEndpoint
from chainfolio.transport.quorum import Tally, count_votes

T = TypeVar("T")
E = TypeVar("E", bound=HttpEndpoint)
Read = Callable[[E], Awaitable[T]]
BEHIND_TRIES = 4
BEHIND_WAIT_S = 0.5
JITTER = 0.1
MAX_EVIDENCE = 300  # characters of an answer in evidence
# The first kind that one of several errors has decides. Refusals are final for callers, so that any other error goes
# before them; a node of another chain says nothing about this one.
_DECISIVE = (NodeBehind, Unavailable, SourceError, BadAnswer, HistoryUnavailable, UnsupportedMethod, WrongChain)


def evidence_text(value: object) -> str:
    """Return the `repr` of a value, cut to MAX_EVIDENCE characters."""
    text = repr(value)
    return text if len(text) <= MAX_EVIDENCE else f"{text[:MAX_EVIDENCE]}… ({len(text)} characters)"


def decisive_error(errors: Sequence[SourceError]) -> SourceError:
    """Return the error that stands for those of several endpoints, whatever their order.

    Transient errors go first, then other ones and bad answers, then HistoryUnavailable and UnsupportedMethod: these two
    are returned only if all endpoints of the right chain refuse. Of equal errors it is the last one.
    """
    return min(reversed(errors), key=_rank)


def _rank(error: SourceError) -> int:
    """Return the index of the error's nearest class in _DECISIVE."""
    return next(_DECISIVE.index(kind) for kind in type(error).__mro__ if kind in _DECISIVE)


class Pool(Generic[E]):
    """The endpoints of one chain. If none can answer a read, the `decisive_error` of all is raised.

    Args:
        key: The chain.
        endpoints: At least one, in the order of the settings; Unavailable if there is none.
        environment: Clock and randomness.
        quorum: Number of endpoints that must agree.
        hedge: Read from a second endpoint if the first is unusually slow.
    """

    def __init__(
        self, key: str, endpoints: Sequence[E], environment: Environment, *, quorum: int = 1, hedge: bool = True
    ) -> None:
        if not endpoints:
            raise Unavailable(key, "no endpoint is configured", remedy=f"add one to chains.{key} in the settings")
        self.key, self.endpoints, self.environment = key, list(endpoints), environment
        self.quorum, self.hedge = quorum, hedge

    @property
    def requests(self) -> int:
        """Number of HTTP requests to all endpoints so far."""
        return sum(endpoint.requests for endpoint in self.endpoints)

    @property
    def best_height(self) -> int | None:
        """The newest height that an endpoint reported, ignoring quarantined ones; None before the first."""
        return max((e.health.height for e in self._usable() if e.health.height is not None), default=None)

    async def close(self) -> None:
        """Close the connections of all endpoints."""
        for endpoint in self.endpoints:
            await endpoint.close()

    @property
    def hedged(self) -> int:
        """Number of reads and requests that were sent a second time because the first was slow."""
        return sum(endpoint.hedged for endpoint in self.endpoints)

    # --- selection ---------------------------------------------------------------------------------------------------

    def _usable(self) -> list[E]:
        return [endpoint for endpoint in self.endpoints if endpoint.health.evidence is None]

    def ranked(self) -> list[E]:
        """Return the usable endpoints, the healthiest first, those that are down last.

        Raises:
            Unavailable: All endpoints are quarantined.
        """
        usable, now_s = self._usable(), self.environment.clock.monotonic_s()
        if not usable:
            raise Unavailable(
                self.key,
                "every endpoint is quarantined",
                remedy="see `chainfolio doctor`; add an endpoint, or --reinstate one",
            )
        if len(usable) == 1:
            return usable
        height = self.best_height or 0
        fastest_s = min((e.health.latency_s for e in usable if e.health.latency_s is not None), default=None)
        return sorted(usable, key=lambda e: (e.down_until_s > now_s, *e.health.rank(height, fastest_s)))

    def quarantine(self, endpoint: E, question: str, answer: str, truth: str) -> None:
        """Count a contradiction and stop using the endpoint, unless it is the last usable one.

        Each wrong answer of the last one is still refused on its own.
        """
        endpoint.errors.note(Contradiction(endpoint.name, question, answer, truth))
        if self._usable() != [endpoint]:
            now_us = self.environment.clock.now_us()
            endpoint.quarantine(Evidence(self.key, endpoint.name, question, answer, truth, now_us))

    # --- a quorum of one ----------------------------------------------------------------------------------------------

    async def with_any(self, read: Read[E, T], *, kind: str = "other") -> T:
        """Read from the best endpoint, from the next one if it fails or takes unusually long.

        If no node answers and one lacks a block, the read is tried BEHIND_TRIES times in all. Only Unavailable,
        HistoryUnavailable, WrongChain and BadAnswer lead to the next endpoint; other errors are raised.

        Raises:
            SourceError: No endpoint could answer; the `decisive_error` of all.
        """
        for attempt in range(BEHIND_TRIES):
            candidates, errors = self.ranked(), list[SourceError]()
            while candidates:
                endpoint = candidates.pop(0)
                try:
                    return await self._hedged(read, endpoint, candidates, kind=kind)
                except (Unavailable, HistoryUnavailable, WrongChain, BadAnswer) as error:
                    errors.append(error)
            decisive = decisive_error(errors)
            if not isinstance(decisive, NodeBehind) or attempt == BEHIND_TRIES - 1:
                break
            await self.environment.clock.sleep(BEHIND_WAIT_S * 2**attempt)
        raise decisive

    async def _hedged(self, read: Read[E, T], endpoint: E, candidates: list[E], *, kind: str) -> T:
        """Read from an endpoint; if it is unusually slow, also from the next candidate, which is removed.

        The result that arrives first is returned. If both fail, their `decisive_error` is raised.
        """
        patience_s = endpoint.health.patience_s(kind) if self.hedge and candidates else None
        if patience_s is None:
            return await self._read(read, endpoint, kind=kind)
        patience_s *= 1 + JITTER * self.environment.random.random()
        first = asyncio.create_task(self._read(read, endpoint, kind=kind))
        timer = asyncio.ensure_future(self.environment.clock.sleep(patience_s))
        tasks: list[asyncio.Future[T] | asyncio.Future[None]] = [first, timer]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if first.done():
                return first.result()
            endpoint.hedged += 1
            second = asyncio.create_task(self._read(read, candidates.pop(0), kind=kind))
            tasks.append(second)
            finished, _ = await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
            winner, loser = (first, second) if first in finished else (second, first)
            failure = winner.exception()
            if failure is None:
                return winner.result()
            try:
                return await loser
            except SourceError as error:
                raise (decisive_error([failure, error]) if isinstance(failure, SourceError) else error) from None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, read: Read[E, T], endpoint: E, *, kind: str) -> T:
        """Read from one endpoint: record the time, count errors, quarantine it for a proven wrong answer.

        A cancelled read is recorded, too, with its time so far. Errors are raised.
        """
        start_s = self.environment.clock.monotonic_s()
        try:
            result = await read(endpoint)
        except asyncio.CancelledError:  # another endpoint was faster: this one takes at least so long
            duration_s = self.environment.clock.monotonic_s() - start_s
            endpoint.health.record_exchange(duration_s)
            endpoint.health.record_read(kind, duration_s)
            raise
        except Contradiction as error:
            self.quarantine(endpoint, error.asked, error.given, error.truth)
            raise
        except (Unavailable, HistoryUnavailable, WrongChain, BadAnswer) as error:
            endpoint.errors.note(error)
            raise
        endpoint.health.record_read(kind, self.environment.clock.monotonic_s() - start_s)
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

        With a quorum below 2, one endpoint answers. An endpoint that contradicts the majority about a final answer is
        quarantined.

        Args:
            read: Returns the answers of one endpoint to all questions.
            key: Equal answers have equal keys; None abstains.
            describe: Words a question, for evidence and errors.
            is_final: Whether the answer to a question can no longer change.
            kind: The kind of read, for its latency.

        Raises:
            NoQuorum: The answers to a final question have no majority.
            Unavailable: The same for another question.
            SourceError: Too few endpoints answered; the `decisive_error` of the others.
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
                answer, truth = (evidence_text(key(answers[k][question])) for k in (voter, winner))
                majority = ", ".join(e.name for e in voters if e is not voters[voter])
                self.quarantine(voters[voter], describe(question), answer, f"{truth} by a majority of {majority}")
            else:
                voters[voter].errors.note(NodeBehind(voters[voter].name, f"{describe(question)}: is on another branch"))
        self._raise_if_disputed(tally, voters, describe, is_final)
        return tally.items

    def _raise_if_disputed(
        self,
        tally: Tally[T],
        voters: Sequence[E],
        describe: Callable[[int], str],
        is_final: Callable[[int], bool],
    ) -> None:
        """Raise NoQuorum for a question without a majority, or Unavailable if its answer is not final yet."""
        names = ", ".join(endpoint.name for endpoint in voters)
        for question in tally.disputed:
            reason = f"{names} contradict each other, and none has a majority: {describe(question)}"
            if is_final(question):
                raise NoQuorum(self.key, reason, remedy="add an endpoint that can decide; see `chainfolio doctor`")
            raise Unavailable(self.key, reason)

    async def _poll(
        self, read: Read[E, list[T]], key: Callable[[T], Hashable | None], kind: str
    ) -> tuple[list[E], list[list[T]], Tally[T]]:
        """Read from as many endpoints as must agree, then from one more at a time while they do not.

        Return the endpoints that answered, their answers, and the count of votes. Raises the `decisive_error`, or
        Unavailable, if fewer answered.
        """
        voters: list[E] = []
        answers: list[list[T]] = []
        errors: list[SourceError] = []
        candidates = self.ranked()
        tally: Tally[T] | None = None
        while candidates and (tally is None or tally.open):
            size = max(1, self.quorum - len(answers))
            selected, candidates = candidates[:size], candidates[size:]
            results = await asyncio.gather(*(self._result_or_error(read, endpoint, kind) for endpoint in selected))
            for endpoint, result in zip(selected, results, strict=True):
                if isinstance(result, SourceError):
                    errors.append(result)
                else:
                    voters.append(endpoint)
                    answers.append(result)
            if len(answers) >= self.quorum:
                tally = count_votes(answers, key, self.quorum)
        if tally is None:
            raise decisive_error(errors) if errors else self._too_few(len(answers))
        return voters, answers, tally

    async def _result_or_error(self, read: Read[E, T], endpoint: E, kind: str) -> T | SourceError:
        """Read from one endpoint, as `_read`; return the SourceError in place of raising it."""
        try:
            return await self._read(read, endpoint, kind=kind)
        except SourceError as error:
            return error

    def _too_few(self, voter_count: int) -> Unavailable:
        """Return the error for so many answers where a quorum is needed."""
        return Unavailable(
            self.key,
            f"{voter_count} of the {self.quorum} endpoints that have to agree could answer",
            remedy="see `chainfolio doctor`: add an endpoint, or --reinstate one that is quarantined",
        )
