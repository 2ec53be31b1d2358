"""Reads determine the types of their results: `assert_type` fails in the type check, the rest when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_type

import pytest

from chainfolio.errors import BadAnswer, Unavailable
from chainfolio.plans import Plan, PlanGroup, Unknown, all_of, read, read_all, read_distinct, read_groups, run_offline
from chainfolio.reads import AtParent, Read, ReadLabel


@dataclass(frozen=True, slots=True)
class Height(Read[int | Unknown]):
    account: str

    @property
    def label(self) -> ReadLabel:
        return "height", self.account, None, ()


@dataclass(frozen=True, slots=True)
class Name(Read[str]):
    account: str

    @property
    def label(self) -> ReadLabel:
        return "name", self.account, None, ()


@dataclass(frozen=True, slots=True)
class Flag(Read[bool]):
    @property
    def label(self) -> ReadLabel:
        return "flag", None, None, ()


RESULTS: dict[Read[object], object] = {
    Height("a"): 1,
    Height("b"): Unknown("gone"),
    Name("a"): "Ada",
    Name("b"): "Bob",
    Flag(): True,
    AtParent(Name("a")): "Eve",
}


def run(plan: Plan[object]) -> tuple[object, list[Sequence[Read[object]]]]:
    """The result of a plan, and its rounds."""
    rounds: list[Sequence[Read[object]]] = []
    try:
        reads = next(plan)
        while True:
            rounds.append(reads)
            reads = plan.send([RESULTS[each] for each in reads])
    except StopIteration as stop:
        return stop.value, rounds


def test_each_read_determines_the_type_of_its_result() -> None:
    def plan() -> Plan[tuple[object, ...]]:
        height = yield from read(Height("a"))
        assert_type(height, int | Unknown)
        name, flag = yield from read(Name("a"), Flag())
        assert_type(name, str)
        assert_type(flag, bool)
        parent = yield from read(AtParent(Name("a")))
        assert_type(parent, str)
        names = yield from read_all([Name("a"), Name("b")])
        assert_type(names, Sequence[str])
        heights, [again], flags = yield from read_groups([Height("b")], [Name("a")], [Flag()])
        assert_type(heights, Sequence[int | Unknown])
        assert_type(again, str)
        assert_type(flags, Sequence[bool])
        return height, name, flag, parent, *names, *heights, again, *flags

    result, rounds = run(plan())
    assert result == (1, "Ada", True, "Eve", "Ada", "Bob", Unknown("gone"), "Ada", True)
    assert [len(reads) for reads in rounds] == [1, 2, 1, 2, 3]


def test_groups_without_reads_are_empty() -> None:
    result, rounds = run(read_groups([], [Name("b"), Name("a")], []))
    assert result == ([], ["Bob", "Ada"], [])
    assert list(map(list, rounds)) == [[Name("b"), Name("a")]]


@pytest.mark.parametrize("plan", [read_all, read_distinct])
def test_no_reads_take_no_round(plan: object) -> None:
    assert callable(plan)
    assert run(plan([]))[1] == []


def test_distinct_reads_are_sent_once() -> None:
    result, rounds = run(read_distinct(Name(each) for each in "abab"))
    assert result == {Name("a"): "Ada", Name("b"): "Bob"}
    assert list(map(list, rounds)) == [[Name("a"), Name("b")]]


def test_plans_of_a_group_share_rounds_and_keep_their_types() -> None:
    def plan() -> Plan[tuple[str, int | Unknown]]:
        group = PlanGroup()
        name, height = group.add(read(Name("a"))), group.add(read(Height("a")))
        group.add(read(Name("a")))
        yield from group.run()
        assert_type(name.value, str)
        assert_type(height.value, int | Unknown)
        return name.value, height.value

    result, rounds = run(plan())
    assert result == ("Ada", 1)
    assert list(map(list, rounds)) == [[Name("a"), Height("a")]]


def failing() -> Plan[str]:
    yield from read(Flag())
    raise Unavailable("node", "down")


def test_first_error_of_a_group_is_raised() -> None:
    group = PlanGroup()
    name = group.add(read(Name("a")))
    group.add(failing())
    with pytest.raises(Unavailable):
        run(group.run())
    assert name.value == "Ada"


def test_plan_that_reads_too_much_is_an_error_and_no_result() -> None:
    def endless() -> Plan[str]:
        while True:
            yield from read(Flag())

    with pytest.raises(BadAnswer, match=r"here: too many reads: round 4, 4 reads"):
        run(all_of({"endless": endless(), "name": read(Name("a"))}, source="here", max_rounds=3))
    group = PlanGroup("group", max_rounds=3)
    group.add(endless())
    with pytest.raises(BadAnswer, match=r"group: too many reads"):
        run(group.run())


def test_equal_plans_run_offline_with_a_dictionary() -> None:
    assert run_offline(read(Name("a"), Height("a")), RESULTS) == ("Ada", 1)
