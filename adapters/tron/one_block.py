"""Accounts that take several rounds of reads, all of one block: no node can be asked for an older state.

The first time, each round is of whatever block the chain is at. Where one took more rounds than one, all that all of
them asked is asked once more, in one round, and they are gone through again with these answers. What leads on to
something new is asked with the rest, until one round answers everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from adapters.tron.reads import AbiRead, Call, WalletRead
from chainfolio.errors import Unavailable
from chainfolio.plans import Plan

TRIES: Final = 6
OURS: Final = (AbiRead, Call, WalletRead)  # what may have to be of one block: nothing that vendors say
Reading = Callable[[bool], Plan[Any, Any, Any]]  # given whether it is the first time


@dataclass(slots=True)
class OneBlock:
    """The accounts of one snapshot, which begin together and take part in every round together."""

    chain: str
    reading: int = 0  # how many are read for the first time
    begin: int = 0  # the round in which all is asked once more
    is_long: bool = False  # whether any took more than one round
    lacking: bool = False  # whether the last such round lacked something

    def read(self, reading: Reading) -> Plan[Any, Any, Any]:
        """What a reading comes to."""
        result, rounds, asked = yield from self._first(reading)
        while self.reading or rounds < self.begin:
            yield []
            rounds += 1
        if not self.is_long:
            return result
        for _ in range(TRIES):
            reads = list(asked)
            answers = dict(zip(reads, (yield reads), strict=True))
            result, more = _again(reading(False), answers)
            asked |= dict.fromkeys(more)
            self.lacking |= bool(more)
            yield []  # until all have looked
            was_lacking = self.lacking
            yield []  # until all have seen that
            self.lacking = False
            if not was_lacking:
                return result
        raise Unavailable(self.chain, "what accounts have changes faster than it can be read")

    def _first(self, reading: Reading) -> Plan[Any, Any, tuple[Any, int, dict[Any, None]]]:
        """The first reading, in how many rounds, and what it rests on: what only names something is no part of that."""
        self.reading += 1
        plan, given, rounds, answers = reading(True), None, 0, dict[Any, Any]()
        try:
            while True:
                try:
                    reads = next(plan) if given is None else plan.send(given)
                except StopIteration as stop:
                    asked, is_long = _rests_on(reading(False), answers)
                    self.is_long |= is_long
                    return stop.value, rounds, asked
                given = yield reads
                pairs = zip(reads, given, strict=True)
                answers |= {read: answer for read, answer in pairs if isinstance(read, OURS)}
                rounds += 1
        finally:
            self.reading -= 1
            self.begin = rounds + 1


def _rests_on(plan: Plan[Any, Any, Any], answers: dict[Any, Any]) -> tuple[dict[Any, None], bool]:
    """What a plan asks, given these answers, and whether that takes more rounds than one."""
    asked, rounds, given = dict[Any, None](), 0, None
    while True:
        try:
            reads = next(plan) if given is None else plan.send(given)
        except StopIteration:
            return asked, rounds > 1
        asked |= dict.fromkeys(reads)
        rounds += bool(reads)
        if not answers.keys() >= set(reads):
            plan.close()
            return asked, True
        given = [answers[each] for each in reads]


def _again(plan: Plan[Any, Any, Any], answers: dict[Any, Any]) -> tuple[Any, list[Any]]:
    """What a plan comes to with answers that are there; else what it lacks."""
    given: Any = None
    while True:
        try:
            reads = next(plan) if given is None else plan.send(given)
        except StopIteration as stop:
            return stop.value, []
        if more := [each for each in reads if each not in answers]:
            plan.close()
            return None, more
        given = [answers[each] for each in reads]
