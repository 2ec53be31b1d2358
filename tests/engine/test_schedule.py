"""Daily snapshots by schedule: what is missing is taken, once, by one process, and a clock says when."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest

from chainfolio.assets import Account, account
from chainfolio.engine.history.day_blocks import midnight_us
from chainfolio.engine.history.schedule import POLL_S, DailySnapshots, Schedule
from chainfolio.engine.service import Engine
from chainfolio.environment import Environment
from chainfolio.errors import Locked, Unavailable
from chainfolio.indexer.schedule import JobSchedule
from chainfolio.indexer.wiring import System
from chainfolio.settings import Settings
from chainfolio.supervisor import Task
from tests.e2e.conftest import World
from tests.engine import test_history
from tests.engine.test_history import DAYS, LAST, kept
from tests.indexer.clock import ManualClock

pytestmark = pytest.mark.node
world, whole, system = test_history.world, test_history.whole, test_history.system


def at(day: date, hours: int = 1) -> ManualClock:
    return ManualClock(midnight_us(day) / 1_000_000 + hours * 3600)


def made(settings: Settings, clock: ManualClock, wanted: dict[Account, date | None]) -> tuple[Schedule, System]:
    """A schedule of a process of its own."""

    async def those() -> dict[Account, date | None]:
        return wanted

    system = System(settings, Environment(clock=clock))
    return Schedule(Engine(system).history, JobSchedule(), those), system


def taken(system: System) -> list[tuple[str, date, int]]:
    return [(row["account"], row["day"].date(), row["attempt"]) for row in kept(system)]


async def test_days_are_taken_from_the_first_on_and_missed_ones_are_made_up_for(
    world: World, whole: Settings, system: System
) -> None:
    alice = account(world.wallets["alice"])
    schedule, one = made(whole, at(DAYS[4]), {alice: DAYS[2]})
    chain = one.chain("local")
    assert not await schedule.take_missing(chain, Task("snapshots"))
    assert taken(system) == [(alice.address, day, 0) for day in DAYS[2:5]]
    before = chain.requests
    assert not await schedule.take_missing(chain, Task("snapshots"))
    assert chain.requests == before
    later, other = made(whole, at(DAYS[8]), {alice: DAYS[2]})  # the process was down for four days
    await later.take_missing(other.chain("local"), Task("snapshots"))
    assert taken(system) == [(alice.address, day, 0) for day in DAYS[2:9]]
    assert later.status["local"].accounts == 1
    assert (later.status["local"].missing, later.status["local"].failed) == (0, 0)
    await one.close()
    await other.close()


async def test_without_a_first_day_it_is_the_first_that_is_kept_else_today(
    world: World, whole: Settings, system: System
) -> None:
    alice = account(world.wallets["alice"])
    first, one = made(whole, at(DAYS[3]), {alice: None})
    await first.take_missing(one.chain("local"), Task("snapshots"))
    assert taken(system) == [(alice.address, DAYS[3], 0)]
    later, other = made(whole, at(DAYS[5]), {alice: None})
    await later.take_missing(other.chain("local"), Task("snapshots"))
    assert taken(system) == [(alice.address, day, 0) for day in DAYS[3:6]]
    await one.close()
    await other.close()


async def test_all_accounts_of_a_day_are_read_together(world: World, whole: Settings, system: System) -> None:
    wallets = [account(world.wallets[name]) for name in ("alice", "bob", "carol", "dave")]
    schedule, one = made(whole, at(LAST), dict.fromkeys(wallets, LAST))
    chain = one.chain("local")
    await schedule.take_missing(chain, Task("snapshots"))
    assert len(taken(system)) == 4
    assert chain.requests <= 20
    await one.close()


async def test_a_day_whose_last_block_is_not_final_is_waited_for(world: World, whole: Settings, system: System) -> None:
    alice, tomorrow = account(world.wallets["alice"]), LAST + timedelta(days=1)
    schedule, one = made(whole, at(tomorrow), {alice: LAST})
    assert await schedule.take_missing(one.chain("local"), Task("snapshots"))
    assert taken(system) == [(alice.address, LAST, 0)]
    await one.close()


async def test_what_no_node_can_say_is_tried_again_once_a_day(
    world: World, whole: Settings, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = account(world.wallets["alice"])
    clock = at(DAYS[5])
    schedule, one = made(whole, clock, {alice: DAYS[4]})
    chain = one.chain("local")

    async def pruned(self: Any, asked: Any) -> Any:
        from chainfolio.errors import HistoryUnavailable

        raise HistoryUnavailable("local", asked[0][0].height, "pruned")

    with monkeypatch.context() as patched:
        patched.setattr(type(chain), "answer_each", pruned)
        await schedule.take_missing(chain, Task("snapshots"))
        assert schedule.status["local"].failed == 2
        assert {row["completeness"] for row in kept(system)} == {"unreadable"}
    before = chain.requests
    await schedule.take_missing(chain, Task("snapshots"))
    assert chain.requests == before  # not on the same day
    clock.now_s += 86_400
    await schedule.take_missing(chain, Task("snapshots"))
    assert schedule.status["local"].failed == 0
    assert [(day, attempt) for _, day, attempt in taken(system)] == [
        (DAYS[4], 0),
        (DAYS[4], 1),
        (DAYS[5], 0),
        (DAYS[5], 1),
        (DAYS[6], 0),
    ]
    await one.close()


async def test_a_node_that_is_down_fails_the_task_and_the_next_run_takes_all_of_it(
    world: World, whole: Settings, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = account(world.wallets["alice"])
    schedule, one = made(whole, at(DAYS[5]), {alice: DAYS[0]})
    chain = one.chain("local")

    async def down(self: Any, asked: Any) -> Any:
        raise Unavailable("local", "down")

    with monkeypatch.context() as patched:
        patched.setattr(type(chain), "answer_each", down)
        with pytest.raises(Unavailable):
            await schedule.take_missing(chain, Task("snapshots"))
    await schedule.take_missing(chain, Task("snapshots"))
    assert taken(system) == [(alice.address, day, 0) for day in DAYS[:6]]
    await one.close()


async def test_one_process_of_several_takes_them_and_the_next_one_when_it_has_ended(
    world: World, whole: Settings, system: System
) -> None:
    alice = account(world.wallets["alice"])
    schedule, one = made(whole, at(DAYS[1]), {alice: DAYS[1]})
    chain = one.chain("local")
    with one.tail.hold("local.daily", "it", store="lake"):
        await schedule.run(chain)
        assert taken(system) == []
    await schedule.run(chain)
    assert taken(system) == [(alice.address, DAYS[1], 0)]
    with pytest.raises(Locked), system.tail.hold("local.daily", "it", store="lake"):
        pass  # it stays the only one until it ends
    schedule.release()
    with system.tail.hold("local.daily", "it", store="lake"):
        assert len(taken(system)) == 1
    await one.close()


async def test_the_block_of_a_day_that_is_not_final_is_polled(world: World, whole: Settings, system: System) -> None:
    alice, waits = account(world.wallets["alice"]), list[float]()

    class Enough(Exception):
        """The test has seen what it wants to."""

    class Seen(ManualClock):
        async def sleep(self, seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 2:
                raise Enough

    schedule, one = made(whole, Seen(at(LAST + timedelta(days=1)).now_s), {alice: LAST})
    with pytest.raises(Enough):
        await schedule.run(one.chain("local"))
    assert waits == [POLL_S, POLL_S]
    schedule.release()
    await one.close()


async def test_prometheus_is_told_what_is_missing(world: World, whole: Settings, system: System) -> None:
    alice = account(world.wallets["alice"])
    schedule, one = made(whole, at(DAYS[1]), {alice: DAYS[0]})
    await schedule.take_missing(one.chain("local"), Task("snapshots"))
    found = {sample.name: sample.value for metric in DailySnapshots(schedule).collect() for sample in metric.samples}
    assert found == {
        "chainfolio_snapshot_accounts": 1,
        "chainfolio_snapshots_missing": 0,
        "chainfolio_snapshots_failed": 0,
        "chainfolio_snapshots_taken_total": 2,
    }
    await one.close()
