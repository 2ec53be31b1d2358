"""Query plans: generators that yield the reads of one round and are sent their results.

Datasets and decoders are plans. A plan does no I/O, cannot choose a block, and is tested with a dictionary. Each read
has the type of its result, which `read` and `read_all` return:

    def decode_position(vault: str, account: str) -> Plan[Amount | None]:
        asset, shares = yield from read(AssetOf(vault), BalanceOf(vault, account))

`run_batched` runs any number of them together, so that a hundred decoders of two rounds are two batches at one block. A
revert is a result (`Reverted`), not an exception. A plan that raises becomes a `failed` report, and the other plans of
its round go on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast, overload

from chainfolio.errors import BadAnswer, ChainfolioError
from chainfolio.reads import Read

ReadT = TypeVar("ReadT")
ResultT = TypeVar("ResultT")
Output = TypeVar("Output")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")

# A generator that yields the questions of each round, all of one type, and is sent their answers, all of another.
Rounds: TypeAlias = Generator[Sequence[ReadT], Sequence[ResultT], Output]
Plan: TypeAlias = Rounds[Read[object], object, Output]  # yields reads; `read` and `read_all` type their results

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
    not exist or may not; `contract` if its result is invalid; `argument` if a number of the read is beyond what any
    function takes, so that it was not sent; `gone` if the state of an earlier block is not available. Every node gives
    the same result for `absent` and `contract`.
    """

    reason: str
    cause: Literal["read", "absent", "contract", "argument", "gone"] = "read"


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
    recorded: list[tuple[object, object]] = field(default_factory=list, repr=False)
    result: Output | None = None
    error: BaseException | None = field(default=None, repr=False)


class _Distinct(list[ReadT]):
    """A round of distinct, hashable reads. It is passed on without another check."""


def batched(
    plans: Mapping[str, Rounds[ReadT, ResultT, Output]],
    *,
    max_rounds: int = MAX_ROUNDS,
    max_reads: int = MAX_READS,
    record: bool = False,
) -> Rounds[ReadT, ResultT, dict[str, Report[Output]]]:
    """Run plans as one plan: a round has the distinct reads of all of them. Return a report of each.

    A plan that fails or reads too much does not stop the others; its report has the error.

    Args:
        plans: By name.
        max_rounds: Bounds each plan, not their sum; `max_reads` does too.
        record: Fill the `recorded` of reports with all reads and results.
    """
    reports: dict[str, Report[Output]] = {name: Report(name) for name in plans}
    waiting: dict[str, tuple[Rounds[ReadT, ResultT, Output], Sequence[ReadT]]] = {}
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


@overload
def read(a: Read[A], /) -> Plan[A]: ...
@overload
def read(a: Read[A], b: Read[B], /) -> Plan[tuple[A, B]]: ...
@overload
def read(a: Read[A], b: Read[B], c: Read[C], /) -> Plan[tuple[A, B, C]]: ...
def read(*reads: Read[object]) -> Plan[object]:
    """Read a fixed number of values in one round and return them, a single one without a tuple."""
    results = yield reads
    return results[0] if len(reads) == 1 else tuple(results)


def read_all(reads: Sequence[Read[A]]) -> Plan[Sequence[A]]:
    """Read any number of values of one type in one round and return them in order; no round without reads."""
    results = (yield reads) if reads else ()
    return cast(Sequence[A], results)


def read_distinct(reads: Iterable[Read[A]]) -> Plan[dict[Read[A], A]]:
    """Read each distinct read once, in one round, and return the results by read; no round without reads."""
    distinct = list(dict.fromkeys(reads))
    return dict(zip(distinct, (yield from read_all(distinct)), strict=True))


@overload
def read_groups(a: Sequence[Read[A]], b: Sequence[Read[B]], /) -> Plan[tuple[Sequence[A], Sequence[B]]]: ...
@overload
def read_groups(
    a: Sequence[Read[A]], b: Sequence[Read[B]], c: Sequence[Read[C]], /
) -> Plan[tuple[Sequence[A], Sequence[B], Sequence[C]]]: ...
@overload
def read_groups(
    a: Sequence[Read[A]], b: Sequence[Read[B]], c: Sequence[Read[C]], d: Sequence[Read[D]], /
) -> Plan[tuple[Sequence[A], Sequence[B], Sequence[C], Sequence[D]]]: ...
def read_groups(*groups: Sequence[Read[object]]) -> Plan[tuple[Sequence[object], ...]]:
    """Read several groups of values in one round and return the values of each group in order."""
    results = yield [each for group in groups for each in group]
    ends = list(accumulate(map(len, groups)))
    return tuple(results[end - len(group) : end] for group, end in zip(groups, ends, strict=True))


def all_of(
    plans: Mapping[str, Rounds[ReadT, ResultT, Output]],
    *,
    source: str = "plan",
    max_rounds: int = MAX_ROUNDS,
    max_reads: int = MAX_READS,
) -> Rounds[ReadT, ResultT, dict[str, Output]]:
    """Run plans together and return their results by name.

    `max_rounds` and `max_reads` bound each plan, not their sum.

    Raises:
        Exception: the first error of a plan.
        BadAnswer: a plan read too much, or yielded something else; it names `source`.
    """
    reports = yield from batched(plans, max_rounds=max_rounds, max_reads=max_reads)
    for report in reports.values():
        if report.status != "ok":
            raise report.error or BadAnswer(source, report.reason)
    return {name: cast(Output, report.result) for name, report in reports.items()}


@dataclass(slots=True)
class PlanResult(Generic[Output]):
    """The result of a plan of a `PlanGroup`."""

    _values: list[Output] = field(default_factory=list)

    @property
    def value(self) -> Output:
        """The result, once the group has run."""
        return self._values[0]


@dataclass(slots=True)
class PlanGroup:
    """Plans with results of different types that run together; `all_of` runs plans with results of one type.

    Attributes:
        source: Named by errors.
        max_rounds: The most rounds of each plan.
        max_reads: The most reads of each plan.
    """

    source: str = "plan"
    max_rounds: int = MAX_ROUNDS
    max_reads: int = MAX_READS
    _plans: dict[str, Plan[None]] = field(default_factory=dict)

    def add(self, plan: Plan[Output]) -> PlanResult[Output]:
        """Add a plan; the returned object has its result after `run`."""
        result = PlanResult[Output]()
        self._plans[str(len(self._plans))] = _store(plan, result._values)
        return result

    def run(self) -> Plan[None]:
        """Run all plans once.

        Raises:
            Exception: the first error of a plan, or BadAnswer, as in `all_of`.
        """
        yield from all_of(self._plans, source=self.source, max_rounds=self.max_rounds, max_reads=self.max_reads)


def _store(plan: Plan[Output], values: list[Output]) -> Plan[None]:
    values.append((yield from plan))


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
    plans: Mapping[str, Rounds[ReadT, ResultT, Output]],
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
    plan: Rounds[ReadT, ResultT, Output],
    results: Sequence[ResultT] | None,
    waiting: dict[str, tuple[Rounds[ReadT, ResultT, Output], Sequence[ReadT]]],
    max_rounds: int,
    max_reads: int,
) -> None:
    """Advance one plan by a round: add its next reads to `waiting`, or its result or error to its report.

    A plan with more than `max_rounds` rounds or `max_reads` reads fails.
    """
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
        reads = yielded if isinstance(yielded, _Distinct) else _take_reads(yielded, max_reads)
    except Exception as error:  # third-party code may yield anything
        _fail(report, plan, f"yielded what cannot be read: {_reason(error)}", error)
        return
    report.read_count += len(reads)
    if report.rounds > max_rounds or report.read_count > max_reads:
        _fail(report, plan, f"too many reads: round {report.rounds}, {report.read_count} reads")
        return
    waiting[report.name] = (plan, reads)


def _take_reads(yielded: Sequence[ReadT], max_reads: int) -> Sequence[ReadT]:
    """Return the yielded reads, up to one more than `max_reads`; as `_Distinct` if all differ.

    Raises TypeError if one cannot be hashed, or if they cannot be iterated.
    """
    reads = list(islice(yielded, max_reads + 1))
    return _Distinct(reads) if len(set(reads)) == len(reads) else reads


def _fail(
    report: Report[Output], plan: Rounds[ReadT, ResultT, Output], reason: str, error: BaseException | None = None
) -> None:
    report.status, report.reason, report.error = "failed", reason, error
    with suppress(Exception):  # one that will not be closed has failed already
        plan.close()


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, ChainfolioError) else f"{type(error).__name__}: {error}"


def run_offline(
    plan: Rounds[ReadT, ResultT, Output], results: Mapping[Any, ResultT] | Callable[[Any], ResultT]
) -> Output:
    """Run one plan with results from a dictionary or a function, as tests of decoders do.

    Returns its result; its errors, and a KeyError for a missing result, are raised.
    """
    result_of = results if callable(results) else results.__getitem__
    try:
        reads = next(plan)
        while True:
            reads = plan.send([result_of(read) for read in reads])
    except StopIteration as stop:
        result: Output = stop.value
        return result
