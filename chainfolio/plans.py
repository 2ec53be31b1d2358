"""Query plans: a dataset or decoder is a generator that yields the reads of one round and is sent their results.

It does no I/O, cannot choose a block, and is tested with a dictionary. `run_batched` runs any number of them together,
so that a hundred decoders of two rounds are two batches at one block. A revert is a result (`Reverted`), not an
exception; a plan that raises becomes a `failed` report, and the other plans of its round go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, Literal, TypeVar

from chainfolio.errors import ChainfolioError

ReadT = TypeVar("ReadT")
ResultT = TypeVar("ResultT")
Output = TypeVar("Output")

Plan = Generator[Sequence[ReadT], Sequence[ResultT], Output]

MAX_ROUNDS = 16
MAX_READS = 100_000


@dataclass(frozen=True, slots=True)
class Reverted:
    """The contract refused. `data` is what it said, cut to a few hundred bytes."""

    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The read gave no value; never to be taken for zero.

    `cause`: the `read` itself failed, which says nothing about the contract; the contract is `absent`, or does not say
    whether it is there; or the `contract` answers what cannot be meant. Of these two every node says the same. `gone`:
    the state of a block before is not there to be read.
    """

    reason: str
    cause: Literal["read", "absent", "contract", "gone"] = "read"


@dataclass(slots=True)
class Report(Generic[Output]):
    """How one plan ended: `ok`, or `failed` with a reason; the number of rounds and reads it took;
    `recorded` are its reads with their results, where they were recorded: where its result comes from."""

    name: str
    status: str = "ok"
    reason: str = ""
    rounds: int = 0
    read_count: int = 0
    recorded: list[tuple[Any, Any]] = field(default_factory=list, repr=False)
    result: Output | None = None
    error: BaseException | None = field(default=None, repr=False)


class _Distinct(list[Any]):
    """Reads that were looked at: each can be hashed, and none is there twice. Passed on as they are."""


def batched(
    plans: Mapping[str, Plan[ReadT, ResultT, Output]],
    *,
    max_rounds: int = MAX_ROUNDS,
    max_reads: int = MAX_READS,
    record: bool = False,
) -> Plan[ReadT, ResultT, dict[str, Report[Output]]]:
    """All plans as one: a round reads what all of them read, duplicates removed, and ends with a report of each.

    `max_rounds` and `max_reads` bound each of them, not their sum; `record` fills the `recorded` of their reports.
    """
    reports: dict[str, Report[Output]] = {name: Report(name) for name in plans}
    waiting: dict[str, tuple[Plan[ReadT, ResultT, Output], Sequence[ReadT]]] = {}
    for name, plan in plans.items():
        _step(reports[name], plan, None, waiting, max_rounds, max_reads)
    while waiting:
        unique, places = _together([reads for _, reads in waiting.values()])
        results = yield unique
        assert len(results) == len(unique), "one result per read, in order"
        running, waiting = waiting, {}
        for (name, (plan, reads)), own in zip(running.items(), places, strict=True):
            given = list(results) if own is None else [results[place] for place in own]
            if record:
                reports[name].recorded += zip(reads, given, strict=True)
            _step(reports[name], plan, given, waiting, max_rounds, max_reads)
    return reports


def all_of(plans: Mapping[str, Plan[ReadT, ResultT, Any]]) -> Plan[ReadT, ResultT, dict[str, Any]]:
    """The results of all plans, run together; the error of one of them is an error."""
    reports: Mapping[str, Report[Any]] = yield from batched(plans)
    for report in reports.values():
        if report.error is not None:
            raise report.error
    return {name: report.result for name, report in reports.items()}


def _together(several: Sequence[Sequence[ReadT]]) -> tuple[Sequence[ReadT], list[list[int] | None]]:
    """The reads of several, each once; and for each of them where its own are (None: all are its own, in order)."""
    if len(several) == 1 and isinstance(several[0], _Distinct):
        return several[0], [None]
    unique: dict[ReadT, int] = {}
    places: list[list[int] | None] = [[unique.setdefault(read, len(unique)) for read in reads] for reads in several]
    return _Distinct(unique), places


async def run_batched(
    plans: Mapping[str, Plan[ReadT, ResultT, Output]],
    answer: Callable[[list[ReadT]], Awaitable[Sequence[ResultT]]],
    *,
    max_rounds: int = MAX_ROUNDS,
    max_reads: int = MAX_READS,
) -> dict[str, Report[Output]]:
    """Run all plans to their end, together, one batch a round.

    An error of `answer` itself (the node is gone) is raised: nobody got an answer, so there is nothing to report on.
    """
    running = batched(plans, max_rounds=max_rounds, max_reads=max_reads)
    results: Sequence[ResultT] | None = None
    while True:
        try:
            reads = next(running) if results is None else running.send(results)
        except StopIteration as stop:
            reports: dict[str, Report[Output]] = stop.value
            return reports
        results = await answer(list(reads)) if reads else []


def _step(
    report: Report[Output],
    plan: Plan[ReadT, ResultT, Output],
    results: Sequence[ResultT] | None,
    waiting: dict[str, tuple[Plan[ReadT, ResultT, Output], Sequence[ReadT]]],
    max_rounds: int,
    max_reads: int,
) -> None:
    """Send one round's results to one plan and note what it reads next, returns or dies of."""
    try:
        given = next(plan) if results is None else plan.send(results)
    except StopIteration as stop:
        report.result = stop.value
        return
    except Exception as error:  # a decoder is third-party code: whatever it raises is its own issue, not the round's
        report.status, report.reason, report.error = "failed", _reason(error), error
        return
    report.rounds += 1
    try:
        reads = given if isinstance(given, _Distinct) else _checked(given, max_reads)
    except Exception as error:  # nor does what it yields have to be reads
        _fail(report, plan, f"yielded what cannot be read: {_reason(error)}", error)
        return
    report.read_count += len(reads)
    if report.rounds > max_rounds or report.read_count > max_reads:
        _fail(report, plan, f"too many reads: round {report.rounds}, {report.read_count} reads")
        return
    waiting[report.name] = (plan, reads)


def _checked(given: Sequence[ReadT], max_reads: int) -> Sequence[ReadT]:
    """What was yielded, up to one read more than is allowed; TypeError where something cannot be read."""
    reads = list(islice(given, max_reads + 1))
    return _Distinct(reads) if len(set(reads)) == len(reads) else reads


def _fail(
    report: Report[Output], plan: Plan[ReadT, ResultT, Output], reason: str, error: BaseException | None = None
) -> None:
    report.status, report.reason, report.error = "failed", reason, error
    with suppress(Exception):  # one that will not be closed has failed already
        plan.close()


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, ChainfolioError) else f"{type(error).__name__}: {error}"


def run_known(
    plan: Plan[ReadT, ResultT, Output], known: Mapping[ReadT, ResultT] | Callable[[ReadT], ResultT]
) -> Output:
    """Run one plan against a dictionary or a function: how decoders are tested."""
    look: Callable[[Any], ResultT] = known if callable(known) else known.__getitem__
    try:
        reads = next(plan)
        while True:
            reads = plan.send([look(read) for read in reads])
    except StopIteration as stop:
        result: Output = stop.value
        return result
