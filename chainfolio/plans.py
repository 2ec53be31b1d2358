"""Query plans: generators that yield the reads of one round and are sent their results.

Datasets and decoders are plans. A plan does no I/O, cannot choose a block, and is tested with a dictionary.
`run_batched` runs any number of them together, so that a hundred decoders of two rounds are two batches at one block. A
revert is a result (`Reverted`), not an exception. A plan that raises becomes a `failed` report, and the other plans of
its round go on.
"""

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
ChainPlan = Plan[Any, Any, Output]  # with the reads and results of one kind of chain

MAX_ROUNDS = 16
MAX_READS = 100_000


@dataclass(frozen=True, slots=True)
class Reverted:
    """The contract reverted. `data` is its revert data, cut to a few hundred bytes."""

    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The read gave no value; never to be taken for zero.

    `cause`: `read` if the read itself failed, which says nothing about the contract; `absent` if the contract does
    not exist or may not; `contract` if its result is invalid; `gone` if the state of an earlier block is not
    available. Every node gives the same result for `absent` and `contract`.
    """

    reason: str
    cause: Literal["read", "absent", "contract", "gone"] = "read"


@dataclass(slots=True)
class Report(Generic[Output]):
    """The end of one plan: `ok`, or `failed` with a reason; its numbers of rounds and reads.

    `recorded` are its reads with their results, if `batched` was asked to record them.
    """

    name: str
    status: str = "ok"
    reason: str = ""
    rounds: int = 0
    read_count: int = 0
    recorded: list[tuple[Any, Any]] = field(default_factory=list, repr=False)
    result: Output | None = None
    error: BaseException | None = field(default=None, repr=False)


class _Distinct(list[ReadT]):
    """A round of distinct, hashable reads. It is passed on without another check."""


def batched(
    plans: Mapping[str, Plan[ReadT, ResultT, Output]],
    *,
    max_rounds: int = MAX_ROUNDS,
    max_reads: int = MAX_READS,
    record: bool = False,
) -> Plan[ReadT, ResultT, dict[str, Report[Output]]]:
    """Run plans as one plan: a round has the distinct reads of all of them. Return a report of each.

    `max_rounds` and `max_reads` bound each plan, not their sum; `record` fills the `recorded` of reports.
    """
    reports: dict[str, Report[Output]] = {name: Report(name) for name in plans}
    waiting: dict[str, tuple[Plan[ReadT, ResultT, Output], Sequence[ReadT]]] = {}
    for name, plan in plans.items():
        _step(reports[name], plan, None, waiting, max_rounds, max_reads)
    while waiting:
        unique, indexes = _merge([reads for _, reads in waiting.values()])
        results = yield unique
        assert len(results) == len(unique), "one result per read, in order"
        running, waiting = waiting, {}
        for (name, (plan, reads)), positions in zip(running.items(), indexes, strict=True):
            round_results = list(results) if positions is None else [results[index] for index in positions]
            if record:
                reports[name].recorded += zip(reads, round_results, strict=True)
            _step(reports[name], plan, round_results, waiting, max_rounds, max_reads)
    return reports


def all_of(plans: Mapping[str, Plan[ReadT, ResultT, Any]]) -> Plan[ReadT, ResultT, dict[str, Any]]:
    """Run plans together and return their results by name; the first error of a plan is raised."""
    reports = yield from batched(plans)
    for report in reports.values():
        if report.error is not None:
            raise report.error
    return {name: report.result for name, report in reports.items()}


def _merge(rounds: Sequence[Sequence[ReadT]]) -> tuple[Sequence[ReadT], list[list[int] | None]]:
    """Return the distinct reads of all rounds, and the indexes of each round's reads among them.

    None as indexes: the reads are those of the round, in order.
    """
    if len(rounds) == 1 and isinstance(rounds[0], _Distinct):
        return rounds[0], [None]
    unique: dict[ReadT, int] = {}
    indexes: list[list[int] | None] = [[unique.setdefault(read, len(unique)) for read in reads] for reads in rounds]
    return _Distinct(unique), indexes


async def run_batched(
    plans: Mapping[str, Plan[ReadT, ResultT, Output]],
    answer: Callable[[list[ReadT]], Awaitable[Sequence[ResultT]]],
    *,
    max_rounds: int = MAX_ROUNDS,
    max_reads: int = MAX_READS,
) -> dict[str, Report[Output]]:
    """Run all plans to their end, one batch per round, and return a report of each.

    An error of `answer` itself (the node is gone) is raised: no plan received a result.
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
        yielded = next(plan) if results is None else plan.send(results)
    except StopIteration as stop:
        report.result = stop.value
        return
    except Exception as error:  # a decoder is third-party code: whatever it raises is its own issue, not the round's
        report.status, report.reason, report.error = "failed", _reason(error), error
        return
    report.rounds += 1
    try:
        reads = yielded if isinstance(yielded, _Distinct) else _checked(yielded, max_reads)
    except Exception as error:  # third-party code may yield anything
        _fail(report, plan, f"yielded what cannot be read: {_reason(error)}", error)
        return
    report.read_count += len(reads)
    if report.rounds > max_rounds or report.read_count > max_reads:
        _fail(report, plan, f"too many reads: round {report.rounds}, {report.read_count} reads")
        return
    waiting[report.name] = (plan, reads)


def _checked(yielded: Sequence[ReadT], max_reads: int) -> Sequence[ReadT]:
    """Return the yielded reads, up to one more than `max_reads`.

    Raises TypeError if one cannot be hashed, or if they cannot be iterated.
    """
    reads = list(islice(yielded, max_reads + 1))
    return _Distinct(reads) if len(set(reads)) == len(reads) else reads


def _fail(
    report: Report[Output], plan: Plan[ReadT, ResultT, Output], reason: str, error: BaseException | None = None
) -> None:
    report.status, report.reason, report.error = "failed", reason, error
    with suppress(Exception):  # one that will not be closed has failed already
        plan.close()


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, ChainfolioError) else f"{type(error).__name__}: {error}"


def run_offline(
    plan: Plan[ReadT, ResultT, Output], results: Mapping[ReadT, ResultT] | Callable[[ReadT], ResultT]
) -> Output:
    """Run one plan with results from a dictionary or a function, as tests of decoders do."""
    result_of: Callable[[ReadT], ResultT] = results if callable(results) else results.__getitem__
    try:
        reads = next(plan)
        while True:
            reads = plan.send([result_of(read) for read in reads])
    except StopIteration as stop:
        result: Output = stop.value
        return result
