"""Askings run together get what each would get alone, in as few batches as the longest needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.errors import BadRequest, Unavailable
from chainfolio.plans import MAX_ROUNDS, Reverted, Rounds, Unknown, run_batched, run_offline

Decoder = Rounds[Any, Any, Any]
Asks = list[list[int]]


@dataclass
class Chain:
    """Answers each ask by a function of it alone, and remembers the batches."""

    meaning: Callable[[Any], Any] = lambda ask: ask * ask + 1
    batches: list[list[Any]] = field(default_factory=list)

    async def answer(self, reads: list[Any]) -> Sequence[Any]:
        self.batches.append(reads)
        return [self.meaning(ask) for ask in reads]


def reading(rounds: Asks) -> Decoder:
    """Asks what it was told to, and what the answers before lead it to."""
    answers: list[int] = []
    for reads in rounds:
        follow = [answer % 7 for answer in answers[-1:]]
        answers += yield [*reads, *follow]
    return answers


def raising(error: BaseException, after: int = 0) -> Decoder:
    for _ in range(after):
        yield [1]
    raise error


def run(plans: dict[str, Decoder], chain: Chain | None = None, **bounds: int) -> dict[str, Any]:
    return asyncio.run(run_batched(plans, (chain or Chain()).answer, **bounds))


plans = st.lists(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=5), max_size=8)


@given(plans)
def test_together_each_gets_what_it_gets_alone(given_plans: list[Asks]) -> None:
    chain = Chain()
    reports = run({str(at): reading(rounds) for at, rounds in enumerate(given_plans)}, chain)
    for at, rounds in enumerate(given_plans):
        report = reports[str(at)]
        assert report.status == "ok"
        assert report.result == run_offline(reading(rounds), chain.meaning)
        assert report.rounds == len(rounds)
        assert report.read_count == len(report.result)


@given(plans)
def test_there_are_as_many_batches_as_the_longest_has_rounds_and_nothing_is_asked_twice_in_one(
    given_plans: list[Asks],
) -> None:
    chain = Chain()
    run({str(at): reading(rounds) for at, rounds in enumerate(given_plans)}, chain)
    # A round without reads is no batch.
    assert len(chain.batches) <= max(map(len, given_plans), default=0)
    assert all(batch and len(set(batch)) == len(batch) for batch in chain.batches)


@given(plans)
def test_they_are_reported_by_name_in_the_order_given(given_plans: list[Asks]) -> None:
    names = [f"decoder {at}" for at in range(len(given_plans))]
    reports = run({name: reading(rounds) for name, rounds in zip(names, given_plans, strict=True)})
    assert list(reports) == names
    assert [report.name for report in reports.values()] == names


def test_two_rounds_of_a_hundred_decoders_are_two_batches() -> None:
    chain = Chain()
    run({str(at): reading([[at], [at, 5]]) for at in range(100)}, chain)
    assert [len(batch) for batch in chain.batches] == [100, 100]


def test_a_revert_and_an_unknown_are_answers() -> None:
    def careful() -> Decoder:
        balance, share = yield ["balance", "share"]
        return balance, share

    answers: dict[str, Any] = {"balance": Reverted(b"no"), "share": Unknown("out of gas")}
    reports = run({"careful": careful()}, Chain(answers.__getitem__))
    assert reports["careful"].status == "ok"
    assert reports["careful"].result == (Reverted(b"no"), Unknown("out of gas"))


@pytest.mark.parametrize("after", [0, 1, 2])
def test_one_that_raises_becomes_failed_and_sinks_nobody(after: int) -> None:
    error = ZeroDivisionError("by zero")
    reports = run({"broken": raising(error, after), "whole": reading([[1], [2], [3]])})
    assert reports["broken"].status == "failed"
    assert reports["broken"].reason == "ZeroDivisionError: by zero"
    assert reports["broken"].error is error
    assert reports["broken"].result is None
    assert reports["broken"].rounds == after
    assert reports["whole"].result == run_offline(reading([[1], [2], [3]]), Chain().meaning)


def test_the_reason_of_an_error_of_ours_is_its_message() -> None:
    reports = run({"broken": raising(BadRequest("block", "too early", remedy="wait"))})
    assert reports["broken"].reason == "block: too early"


def test_one_that_asks_for_ever_is_stopped_at_its_bound() -> None:
    closed = []

    def endless() -> Decoder:
        try:
            while True:
                yield [1]
        finally:
            closed.append(True)

    chain = Chain()
    reports = run({"endless": endless(), "whole": reading([[1]])}, chain)
    assert reports["endless"].status == "failed"
    assert reports["endless"].reason.startswith("too many reads")
    assert len(chain.batches) == MAX_ROUNDS
    assert closed == [True]
    assert reports["whole"].status == "ok"


@pytest.mark.parametrize(("rounds", "status"), [([[0] * 5], "ok"), ([[0] * 6], "failed"), ([[0] * 3] * 2, "failed")])
def test_asks_are_bounded_over_all_rounds(rounds: Asks, status: str) -> None:
    assert run({"greedy": reading(rounds)}, max_reads=5)["greedy"].status == status


def test_asks_without_end_are_cut_off() -> None:
    def endless() -> Iterator[int]:
        while True:
            yield 1

    def greedy() -> Decoder:
        yield endless()  # type: ignore[misc]

    reports = run({"greedy": greedy()}, max_reads=5)
    assert reports["greedy"].reason.startswith("too many reads")


@pytest.mark.parametrize("yielded", [None, 7, [[1]], [{}]], ids=repr)
def test_what_cannot_be_asked_fails_only_who_asked_it(yielded: Any) -> None:
    def odd() -> Decoder:
        yield yielded

    reports = run({"odd": odd(), "whole": reading([[1], [2]])})
    assert reports["odd"].status == "failed"
    assert "cannot be read" in reports["odd"].reason
    assert reports["whole"].status == "ok"


def test_one_that_will_not_be_closed_sinks_nobody() -> None:
    def stubborn() -> Decoder:
        while True:
            try:
                yield [1]
            except GeneratorExit:
                yield [2]

    reports = run({"stubborn": stubborn(), "whole": reading([[1]])}, max_rounds=1)
    assert reports["stubborn"].reason.startswith("too many reads")
    assert reports["whole"].status == "ok"


def test_when_the_node_is_gone_everybody_is_told() -> None:
    async def fail(_: list[Any]) -> Sequence[Any]:
        raise Unavailable("node", "gone")

    with pytest.raises(Unavailable):
        asyncio.run(run_batched({"whole": reading([[1]])}, fail))


def test_fewer_answers_than_asks_are_a_bug_of_the_driver() -> None:
    async def short(reads: list[Any]) -> Sequence[Any]:
        return reads[1:]

    with pytest.raises(AssertionError, match="one result per read"):
        asyncio.run(run_batched({"whole": reading([[1, 2]])}, short))


def test_nobody_asks_and_nothing_is_sent() -> None:
    chain = Chain()
    assert run({}, chain) == {}
    assert run({"silent": reading([])}, chain)["silent"].result == []
    assert run({"quiet": reading([[]])}, chain)["quiet"].result == []
    assert chain.batches == []


def test_an_asking_is_answered_from_a_dictionary_or_a_function() -> None:
    assert run_offline(reading([[2, 3]]), {2: "two", 3: "three"}) == ["two", "three"]
    with pytest.raises(KeyError):
        run_offline(reading([[4]]), {2: "two"})
