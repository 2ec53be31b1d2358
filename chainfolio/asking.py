"""Ask, don't fetch: a dataset or decoder is a generator that yields the asks of one round and is sent their answers.

It does no I/O, cannot choose a block, and is tested with a dictionary. `drive` runs any number of them in lockstep, so
a hundred decoders of two rounds are two batches at one block. A revert is an answer (`Reverted`), not an exception; an
asking that raises becomes a `failed` report and does not sink its round.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, Literal, TypeVar

from chainfolio.errors import ChainfolioError

Ask = TypeVar("Ask")
Answer = TypeVar("Answer")
Result = TypeVar("Result")

Asking = Generator[Sequence[Ask], Sequence[Answer], Result]

MAX_ROUNDS = 16
MAX_ASKS = 100_000


@dataclass(frozen=True, slots=True)
class Reverted:
    """The contract refused. `data` is what it said, cut to a few hundred bytes."""

    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The read gave no value; never to be taken for zero.

    `cause`: the `read` itself failed, which says nothing about the contract; the contract is `absent`, or does not say
    whether it is there; or the `contract` answers what cannot be meant. Of the last two every node says the same.
    """

    reason: str
    cause: Literal["read", "absent", "contract"] = "read"


@dataclass(slots=True)
class Report(Generic[Result]):
    """How one asking ended: `ok`, or `failed` with a reason; the number of rounds and asks it took;
    `reads` are its asks with their answers, where they were recorded: where its result comes from."""

    name: str
    status: str = "ok"
    reason: str = ""
    rounds: int = 0
    asks: int = 0
    reads: list[tuple[Any, Any]] = field(default_factory=list, repr=False)
    result: Result | None = None
    error: BaseException | None = field(default=None, repr=False)


class _Distinct(list[Any]):
    """Asks that were looked at: each can be hashed, and none is there twice. Passed on as they are."""


def lockstep(
    askings: Mapping[str, Asking[Ask, Answer, Result]],
    *,
    max_rounds: int = MAX_ROUNDS,
    max_asks: int = MAX_ASKS,
    record: bool = False,
) -> Asking[Ask, Answer, dict[str, Report[Result]]]:
    """All askings as one: a round asks what all of them ask, duplicates removed, and ends with a report of each.

    `max_rounds` and `max_asks` bound each of them, not their sum; `record` fills the `reads` of their reports.
    """
    reports: dict[str, Report[Result]] = {name: Report(name) for name in askings}
    waiting: dict[str, tuple[Asking[Ask, Answer, Result], Sequence[Ask]]] = {}
    for name, asking in askings.items():
        _step(reports[name], asking, None, waiting, max_rounds, max_asks)
    while waiting:
        unique, places = _together([asks for _, asks in waiting.values()])
        answers = yield unique
        assert len(answers) == len(unique), "one answer per ask, in order"
        running, waiting = waiting, {}
        for (name, (asking, asks)), own in zip(running.items(), places, strict=True):
            given = list(answers) if own is None else [answers[place] for place in own]
            if record:
                reports[name].reads += zip(asks, given, strict=True)
            _step(reports[name], asking, given, waiting, max_rounds, max_asks)
    return reports


def _together(several: Sequence[Sequence[Ask]]) -> tuple[Sequence[Ask], list[list[int] | None]]:
    """The asks of several, each once; and for each of them where its own are (None: all are its own, in order)."""
    if len(several) == 1 and isinstance(several[0], _Distinct):
        return several[0], [None]
    unique: dict[Ask, int] = {}
    places: list[list[int] | None] = [[unique.setdefault(ask, len(unique)) for ask in asks] for asks in several]
    return _Distinct(unique), places


async def drive(
    askings: Mapping[str, Asking[Ask, Answer, Result]],
    answer: Callable[[list[Ask]], Awaitable[Sequence[Answer]]],
    *,
    max_rounds: int = MAX_ROUNDS,
    max_asks: int = MAX_ASKS,
) -> dict[str, Report[Result]]:
    """Run all askings to their end, in lockstep, one batch a round.

    An error of `answer` itself (the node is gone) is raised: nobody got an answer, so there is nothing to report on.
    """
    running = lockstep(askings, max_rounds=max_rounds, max_asks=max_asks)
    answers: Sequence[Answer] | None = None
    while True:
        try:
            asks = next(running) if answers is None else running.send(answers)
        except StopIteration as stop:
            reports: dict[str, Report[Result]] = stop.value
            return reports
        answers = await answer(list(asks)) if asks else []


def _step(
    report: Report[Result],
    asking: Asking[Ask, Answer, Result],
    answers: Sequence[Answer] | None,
    waiting: dict[str, tuple[Asking[Ask, Answer, Result], Sequence[Ask]]],
    max_rounds: int,
    max_asks: int,
) -> None:
    """Send one round's answers to one asking and note what it asks next, returns or dies of."""
    try:
        given = next(asking) if answers is None else asking.send(answers)
    except StopIteration as stop:
        report.result = stop.value
        return
    except Exception as error:  # a decoder is a stranger's code: whatever it raises is its own issue, not the round's
        report.status, report.reason, report.error = "failed", _reason(error), error
        return
    report.rounds += 1
    try:
        asks = given if isinstance(given, _Distinct) else _checked(given, max_asks)
    except Exception as error:  # nor does what it yields have to be asks
        _fail(report, asking, f"asked for what cannot be asked: {_reason(error)}", error)
        return
    report.asks += len(asks)
    if report.rounds > max_rounds or report.asks > max_asks:
        _fail(report, asking, f"asked too much: round {report.rounds}, {report.asks} asks")
        return
    waiting[report.name] = (asking, asks)


def _checked(given: Sequence[Ask], max_asks: int) -> Sequence[Ask]:
    """What was asked, up to one ask more than is allowed; TypeError where something cannot be asked."""
    asks = list(islice(given, max_asks + 1))
    return _Distinct(asks) if len(set(asks)) == len(asks) else asks


def _fail(
    report: Report[Result], asking: Asking[Ask, Answer, Result], reason: str, error: BaseException | None = None
) -> None:
    report.status, report.reason, report.error = "failed", reason, error
    with suppress(Exception):  # one that will not be closed has failed already
        asking.close()


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, ChainfolioError) else f"{type(error).__name__}: {error}"


def answered(asking: Asking[Ask, Answer, Result], known: Mapping[Ask, Answer] | Callable[[Ask], Answer]) -> Result:
    """Run one asking against a dictionary or a function: how decoders are tested."""
    look: Callable[[Any], Answer] = known if callable(known) else known.__getitem__
    try:
        asks = next(asking)
        while True:
            asks = asking.send([look(ask) for ask in asks])
    except StopIteration as stop:
        result: Result = stop.value
        return result
