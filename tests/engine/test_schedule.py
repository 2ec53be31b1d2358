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
from chainfolio.errors import HistoryUnavailable, Locked, Unavailable
from chainfolio.indexer.schedule import JobSchedule
from chainfolio.indexer.wiring import System
from chainfolio.settings import Settings
from chainfolio.supervisor import Task
from tests.e2e.conftest import World
from tests.engine import test_history
from tests.engine.test_history import DAYS, LAST, stored_rows
from tests.indexer.clock import ManualClock

pytestmark = pytest.mark.node
world, indexed_settings, system = test_history.world, test_history.indexed_settings, test_history.system


def at(day: date, hours: int = 1) -> ManualClock:
    return ManualClock(midnight_us(day) / 1_000_000 + hours * 3600)


def schedule_at(
    settings: Settings, clock: ManualClock, first_days: dict[Account, date | None]
) -> tuple[Schedule, System]:
    """Return a schedule and its system, as a separate process has them."""

    async def accounts() -> dict[Account, date | None]:
        return first_days

    system = System(settings, Environment(clock=clock))
    return Schedule(Engine(system).history, JobSchedule(), accounts), system


def stored_snapshots(system: System) -> list[tuple[str, date, int]]:
    return [(row["account"], row["day"].date(), row["attempt"]) for row in stored_rows(system)]


async def test_days_are_taken_from_the_first_on_and_missed_ones_are_made_up_for(
    world: World, indexed_settings: Settings, system: System
) -> None:
    alice = account(world.wallets["alice"])
    schedule, engine = schedule_at(indexed_settings, at(DAYS[4]), {alice: DAYS[2]})
    chain = engine.chain("local")
    assert not await schedule.take_missing(chain, Task("snapshots"))
    assert stored_snapshots(system) == [(alice.address, day, 0) for day in DAYS[2:5]]
    before = chain.requests
    assert not await schedule.take_missing(chain, Task("snapshots"))
    assert chain.requests == before
    later, restarted = schedule_at(
        indexed_settings, at(DAYS[8]), {alice: DAYS[2]}
    )  # the process was down for four days
    await later.take_missing(restarted.chain("local"), Task("snapshots"))
    assert stored_snapshots(system) == [(alice.address, day, 0) for day in DAYS[2:9]]
    assert later.status["local"].accounts == 1
    assert (later.status["local"].missing, later.status["local"].failed) == (0, 0)
    await engine.close()
    await restarted.close()


async def test_without_a_first_day_it_is_the_first_that_is_kept_else_today(
    world: World, indexed_settings: Settings, system: System
) -> None:
    alice = account(world.wallets["alice"])
    first, engine = schedule_at(indexed_settings, at(DAYS[3]), {alice: None})
    await first.take_missing(engine.chain("local"), Task("snapshots"))
    assert stored_snapshots(system) == [(alice.address, DAYS[3], 0)]
    later, restarted = schedule_at(indexed_settings, at(DAYS[5]), {alice: None})
    await later.take_missing(restarted.chain("local"), Task("snapshots"))
    assert stored_snapshots(system) == [(alice.address, day, 0) for day in DAYS[3:6]]
    await engine.close()
    await restarted.close()


async def test_all_accounts_of_a_day_are_read_together(
    world: World, indexed_settings: Settings, system: System
) -> None:
    wallets = [account(world.wallets[name]) for name in ("alice", "bob", "carol", "dave")]
    schedule, engine = schedule_at(indexed_settings, at(LAST), dict.fromkeys(wallets, LAST))
    chain = engine.chain("local")
    await schedule.take_missing(chain, Task("snapshots"))
    assert len(stored_snapshots(system)) == 4
    assert chain.requests <= 20
    await engine.close()


async def test_a_day_whose_last_block_is_not_final_is_waited_for(
    world: World, indexed_settings: Settings, system: System
) -> None:
    alice, tomorrow = account(world.wallets["alice"]), LAST + timedelta(days=1)
    schedule, engine = schedule_at(indexed_settings, at(tomorrow), {alice: LAST})
    assert await schedule.take_missing(engine.chain("local"), Task("snapshots"))
    assert stored_snapshots(system) == [(alice.address, LAST, 0)]
    await engine.close()


async def test_what_no_node_can_say_is_tried_again_once_a_day(
    world: World, indexed_settings: Settings, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = account(world.wallets["alice"])
    clock = at(DAYS[5])
    schedule, engine = schedule_at(indexed_settings, clock, {alice: DAYS[4]})
    chain = engine.chain("local")

    async def pruned(self: Any, reads: Any) -> Any:
        raise HistoryUnavailable("local", reads[0][0].height, "pruned")

    with monkeypatch.context() as patched:
        patched.setattr(type(chain), "answer_each", pruned)
        await schedule.take_missing(chain, Task("snapshots"))
        assert schedule.status["local"].failed == 2
        assert {row["completeness"] for row in stored_rows(system)} == {"unreadable"}
    before = chain.requests
    await schedule.take_missing(chain, Task("snapshots"))
    assert chain.requests == before  # not on the same day
    clock.now_s += 86_400
    await schedule.take_missing(chain, Task("snapshots"))
    assert schedule.status["local"].failed == 0
    assert [(day, attempt) for _, day, attempt in stored_snapshots(system)] == [
        (DAYS[4], 0),
        (DAYS[4], 1),
        (DAYS[5], 0),
        (DAYS[5], 1),
        (DAYS[6], 0),
    ]
    await engine.close()


async def test_failed_days_of_an_account_that_is_no_longer_scheduled_are_not_read_again(
    world: World, indexed_settings: Settings, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = account(world.wallets["alice"]), account(world.wallets["bob"])
    clock, first_days = at(DAYS[5]), dict[Account, date | None]({alice: DAYS[4], bob: DAYS[4]})
    schedule, engine = schedule_at(indexed_settings, clock, first_days)
    chain = engine.chain("local")

    async def pruned(self: Any, reads: Any) -> Any:
        raise HistoryUnavailable("local", reads[0][0].height, "pruned")

    with monkeypatch.context() as patched:
        patched.setattr(type(chain), "answer_each", pruned)
        await schedule.take_missing(chain, Task("snapshots"))
    assert schedule.status["local"].failed == 4
    del first_days[alice]
    first_days[bob] = DAYS[5]
    await schedule.take_missing(chain, Task("snapshots"))
    assert schedule.status["local"].failed == 1
    clock.now_s += 86_400
    await schedule.take_missing(chain, Task("snapshots"))
    attempts = {(address, day) for address, day, attempt in stored_snapshots(system) if attempt}
    assert attempts == {(bob.address, DAYS[5])}
    first_days[alice] = DAYS[5]
    await schedule.take_missing(chain, Task("snapshots"))
    assert (alice.address, DAYS[5], 1) in stored_snapshots(system)
    await engine.close()


async def test_a_node_that_is_down_fails_the_task_and_the_next_run_takes_all_of_it(
    world: World, indexed_settings: Settings, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = account(world.wallets["alice"])
    schedule, engine = schedule_at(indexed_settings, at(DAYS[5]), {alice: DAYS[0]})
    chain = engine.chain("local")

    async def down(self: Any, reads: Any) -> Any:
        raise Unavailable("local", "down")

    with monkeypatch.context() as patched:
        patched.setattr(type(chain), "answer_each", down)
        with pytest.raises(Unavailable):
            await schedule.take_missing(chain, Task("snapshots"))
    await schedule.take_missing(chain, Task("snapshots"))
    assert stored_snapshots(system) == [(alice.address, day, 0) for day in DAYS[:6]]
    await engine.close()


async def test_one_process_of_several_takes_them_and_the_next_one_when_it_has_ended(
    world: World, indexed_settings: Settings, system: System
) -> None:
    alice = account(world.wallets["alice"])
    schedule, engine = schedule_at(indexed_settings, at(DAYS[1]), {alice: DAYS[1]})
    chain = engine.chain("local")
    with engine.tail.hold("local.daily", "it", store="lake"):
        await schedule.run(chain)
        assert stored_snapshots(system) == []
    await schedule.run(chain)
    assert stored_snapshots(system) == [(alice.address, DAYS[1], 0)]
    with pytest.raises(Locked), system.tail.hold("local.daily", "it", store="lake"):
        pass  # it stays the only one until it ends
    schedule.release()
    with system.tail.hold("local.daily", "it", store="lake"):
        assert len(stored_snapshots(system)) == 1
    await engine.close()


async def test_the_block_of_a_day_that_is_not_final_is_polled(
    world: World, indexed_settings: Settings, system: System
) -> None:
    alice, waits = account(world.wallets["alice"]), list[float]()

    class Enough(Exception):
        """The test has seen what it wants to."""

    class PollingClock(ManualClock):
        async def sleep(self, seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 2:
                raise Enough

    schedule, engine = schedule_at(indexed_settings, PollingClock(at(LAST + timedelta(days=1)).now_s), {alice: LAST})
    with pytest.raises(Enough):
        await schedule.run(engine.chain("local"))
    assert waits == [POLL_S, POLL_S]
    schedule.release()
    await engine.close()


async def test_prometheus_is_told_what_is_missing(world: World, indexed_settings: Settings, system: System) -> None:
    alice = account(world.wallets["alice"])
    schedule, engine = schedule_at(indexed_settings, at(DAYS[1]), {alice: DAYS[0]})
    await schedule.take_missing(engine.chain("local"), Task("snapshots"))
    samples = {sample.name: sample.value for metric in DailySnapshots(schedule).collect() for sample in metric.samples}
    assert samples == {
        "chainfolio_snapshot_accounts": 1,
        "chainfolio_snapshots_missing": 0,
        "chainfolio_snapshots_failed": 0,
        "chainfolio_snapshots_taken_total": 2,
    }
    await engine.close()
