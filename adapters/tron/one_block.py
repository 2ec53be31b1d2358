"""Plans of accounts that take several rounds, with all results at one block.

Nodes serve the newest block only, so in the first pass each round may be at another block. If a plan took more than
one round, all its reads are repeated in one round, and the plan runs again on these results. Reads that only the new
results require are added, until one round has the result of every read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeAlias, cast

from chainfolio.adapters.tron.reads import AbiRead, Call, WalletRead
from chainfolio.errors import Unavailable
from chainfolio.plans import Output, Plan
from chainfolio.reads import Read

MAX_PASSES: Final = 6
STATE_READS: Final = (AbiRead, Call, WalletRead)  # must be at one block, unlike metadata and answers of vendors
PlanFactory: TypeAlias = Callable[[bool], Plan[Output]]  # the argument is True in the first pass
Reads: TypeAlias = dict[Read[object], None]  # ordered, without duplicates
Results: TypeAlias = Mapping[Read[object], object]


class FirstPass(NamedTuple, Generic[Output]):
    """The result of a first pass, the rounds that it took, and the state reads that the result depends on."""

    result: Output
    round_count: int
    reads: Reads


@dataclass(slots=True)
class OneBlock:
    """Runs the plans of one snapshot's accounts, which start together and share every round.

    Attributes:
        chain: Key of the chain, for errors.
        first_pass_count: Plans in their first pass.
        second_pass_round: The round in which all reads are repeated.
        is_multi_round: Whether any plan took more than one round.
        has_new_reads: Whether the last repetition required reads that it did not have.
    """

    chain: str
    first_pass_count: int = 0
    second_pass_round: int = 0
    is_multi_round: bool = False
    has_new_reads: bool = False

    def read(self, plan: PlanFactory[Output]) -> Plan[Output]:
        """Return the result of a plan, with all state reads at one block.

        After the first pass, plans of more than one round are run again on reads of one block, until none needs a new
        read.

        Args:
            plan: Makes the plan anew for each pass; its argument is True for the first. Reads that are needed in the
                first pass only do not affect its result.

        Raises:
            Unavailable: The accounts change faster than they can be read.
        """
        result, rounds, required = yield from self._first_pass(plan)
        while self.first_pass_count or rounds < self.second_pass_round:
            yield []
            rounds += 1
        if not self.is_multi_round:
            return result
        for _ in range(MAX_PASSES):
            reads = list(required)
            results = dict(zip(reads, (yield reads), strict=True))
            repeated, missing = _run(plan(False), results)
            required |= dict.fromkeys(missing)
            self.has_new_reads |= bool(missing)
            yield []  # until every plan has run
            repeat = self.has_new_reads
            yield []  # until every plan has seen that
            self.has_new_reads = False
            if not repeat:
                return cast(Output, repeated)
        raise Unavailable(self.chain, "what accounts have changes faster than it can be read")

    def _first_pass(self, factory: PlanFactory[Output]) -> Plan[FirstPass[Output]]:
        """Run the plan and return its result, its rounds, and the reads that a second pass must repeat."""
        self.first_pass_count += 1
        plan, answers, rounds, state = factory(True), None, 0, dict[Read[object], object]()
        try:
            while True:
                try:
                    reads = next(plan) if answers is None else plan.send(answers)
                except StopIteration as stop:
                    required, is_multi_round = _required_reads(factory(False), state)
                    self.is_multi_round |= is_multi_round
                    return FirstPass(stop.value, rounds, required)
                answers = yield reads
                pairs = zip(reads, answers, strict=True)
                state |= {read: result for read, result in pairs if isinstance(read, STATE_READS)}
                rounds += 1
        finally:
            self.first_pass_count -= 1
            self.second_pass_round = rounds + 1


def _required_reads(plan: Plan[object], results: Results) -> tuple[Reads, bool]:
    """Return the reads of a plan, as far as there are results, and whether it takes more than one round."""
    required, rounds, answers = Reads(), 0, None
    while True:
        try:
            reads = next(plan) if answers is None else plan.send(answers)
        except StopIteration:
            return required, rounds > 1
        required |= dict.fromkeys(reads)
        rounds += bool(reads)
        if not results.keys() >= set(reads):
            plan.close()
            return required, True
        answers = [results[each] for each in reads]


def _run(plan: Plan[Output], results: Results) -> tuple[Output | None, list[Read[object]]]:
    """Run a plan on results. Return its result, or None and the reads of the first round that lacks some."""
    answers: list[object] | None = None
    while True:
        try:
            reads = next(plan) if answers is None else plan.send(answers)
        except StopIteration as stop:
            return stop.value, []
        if missing := [each for each in reads if each not in results]:
            plan.close()
            return None, missing
        answers = [results[each] for each in reads]
