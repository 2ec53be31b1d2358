"""The bytes of answers in flight: a bound for all, first come first served, and no wait without an end."""

from __future__ import annotations

import random
from concurrent.futures import CancelledError, Future

import pytest

from chainfolio.memory import ByteBudget, Lease


def leases(budget: ByteBudget, *sizes: int) -> list[Lease]:
    lease_list = [budget.lease() for _ in sizes]
    for lease, size in zip(lease_list, sizes, strict=True):
        assert lease.take(size) is None
    return lease_list


def test_the_first_bytes_of_an_answer_need_no_room() -> None:
    budget = ByteBudget(common=100, alone=100, free=10)
    leases(budget, 110, 110)
    waiting = budget.lease().take(11)
    assert waiting is not None
    assert not waiting.done()
    small = budget.lease()
    assert [small.take(5), small.take(5)] == [None, None]


def test_what_is_given_back_goes_to_whoever_waited_longest() -> None:
    budget = ByteBudget(common=100, alone=100, free=0)
    first, alone = leases(budget, 100, 50)
    waits = [budget.lease().take(size) for size in (60, 30, 30)]
    assert [wait is not None and wait.done() for wait in waits] == [False] * 3
    first.give_back()
    assert [wait is not None and wait.done() for wait in waits] == [True, True, False]
    alone.give_back()
    assert [wait is not None and wait.done() for wait in waits] == [True] * 3
    assert (budget.waiting, budget.held, budget.held_alone) == (0, 90, 30)


def test_two_answers_that_each_hold_half_do_not_wait_for_each_other() -> None:
    budget = ByteBudget(common=100, alone=100, free=0)
    first, second = leases(budget, 50, 50)
    assert first.take(50) is None, "one goes on alone"
    wait = second.take(50)
    assert wait is not None
    first.give_back()
    assert wait.done()
    assert budget.peak == 150


def test_whoever_comes_later_does_not_overtake() -> None:
    budget = ByteBudget(common=100, alone=100, free=0)
    leases(budget, 60, 60)
    first, second = budget.lease().take(50), budget.lease().take(10)
    assert first is not None
    assert second is not None, "there is room for it, and another answer has waited longer"


def test_whoever_leaves_waits_no_more_and_takes_no_more() -> None:
    budget = ByteBudget(common=100, alone=100, free=0)
    _, alone = leases(budget, 100, 1)
    leaving, staying = budget.lease(), budget.lease()
    taken_wait, wait = leaving.take(100), staying.take(50)
    assert taken_wait is not None
    assert wait is not None
    leaving.give_back()
    with pytest.raises(CancelledError):
        taken_wait.result(0)
    late = leaving.take(1)
    assert late is not None
    assert late.cancelled()
    alone.give_back()
    assert wait.done()


def test_a_wait_that_was_cancelled_holds_up_nobody() -> None:
    budget = ByteBudget(common=100, alone=100, free=0)
    first, _ = leases(budget, 100, 1)
    leaving = budget.lease()
    taken_wait, wait = leaving.take(60), budget.lease().take(60)
    assert taken_wait is not None
    assert wait is not None
    taken_wait.cancel()
    first.give_back()
    leaving.give_back()
    assert wait.done()


@pytest.mark.parametrize("seed", range(20))
def test_every_answer_ends_and_all_together_stay_below_the_bound(seed: int) -> None:
    chance = random.Random(seed)
    budget = ByteBudget(common=100, alone=80, free=chance.choice([0, 5]))
    pending_bytes = {budget.lease(): chance.randrange(1, 81) for _ in range(40)}
    waits: dict[Lease, Future[None] | None] = dict.fromkeys(pending_bytes)
    while pending_bytes:
        ready = [lease for lease in pending_bytes if (wait := waits[lease]) is None or wait.done()]
        assert ready, "nobody can go on"
        lease = chance.choice(ready)
        if pending_bytes[lease] == 0:
            lease.give_back()
            del pending_bytes[lease]
            continue
        step = min(pending_bytes[lease], chance.randrange(1, 20))
        pending_bytes[lease] -= step
        waits[lease] = lease.take(step)
        assert 0 <= budget.held <= 100
        assert 0 <= budget.held_alone <= 80
    assert (budget.held, budget.held_alone, budget.waiting) == (0, 0, 0)
