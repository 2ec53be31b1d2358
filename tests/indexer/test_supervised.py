"""A worker whose parts break: the chain is marked, and taken up again as soon as the fault has passed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from chainfolio.engine.results import Readiness
from chainfolio.engine.service import Engine
from chainfolio.environment import Environment
from chainfolio.errors import Locked, StorageFull, StoreError
from chainfolio.indexer import consistency, follow
from chainfolio.indexer.maintenance import Maintenance
from chainfolio.indexer.metrics import TaskMetrics
from chainfolio.indexer.schedule import JobSchedule
from chainfolio.indexer.wiring import System
from chainfolio.indexer.worker import Worker
from chainfolio.settings import Schedule, Settings
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.supervisor import Supervisor
from tests.chains.evm import evm
from tests.chains.index import Index, index
from tests.indexer.clock import ManualClock

ERRORS = [StoreError("lake", "the folder is not there"), ValueError("invalid literal: 'zz'"), MemoryError()]


EACH_SECOND = "* * * * * *"


class Quick(ManualClock):
    """Every sleep is short."""

    async def sleep(self, seconds: float) -> None:
        """Time passes on the clock, and hardly any elsewhere."""
        self.now_s += seconds
        await asyncio.sleep(0.005)


class Fault:
    """In place of a function: raises while it is `on`, else does what the function did."""

    def __init__(self, usual: Callable[..., Any], error: Exception) -> None:
        self.usual, self.error, self.on, self.met = usual, error, False, 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self.on:
            self.met += 1
            raise self.error
        return self.usual(*arguments, **named)


async def wait_until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 (the condition has no event)
            await asyncio.sleep(0.01)


@asynccontextmanager
async def working(live: Index) -> AsyncIterator[tuple[Worker, Engine]]:
    system = System(Settings(chains={live.key: live.chain.settings}), Environment(clock=Quick(1_800_000_000.0)))
    system._lake, system._tail, system._chains = live.lake, live.tail, {live.key: live.chain}
    supervisor = Supervisor(system.environment.clock)
    jobs = JobSchedule(Schedule(materialise=EACH_SECOND), system.environment.clock, supervisor)
    worker = Worker(system, jobs)
    async with jobs.running(), worker.running():
        yield worker, Engine(system, worker.status, supervisor)


async def unready(engine: Engine, task: str) -> Readiness:
    """Return the readiness: the chain is not healthy, for a task of it failed."""
    readiness = await engine.readiness()
    assert (readiness.ready, readiness.chains[0].healthy) == (False, False)
    assert f"{task} failed" in (readiness.chains[0].reason or "")
    assert [each.task for each in readiness.tasks if not each.healthy] == [task]
    return readiness


def exported(engine: Engine) -> str:
    registry = CollectorRegistry()
    registry.register(TaskMetrics(engine.supervisor))
    return generate_latest(registry).decode()


@pytest.mark.slow("the same handling of another error", fast=["StoreError"])
@pytest.mark.node
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_a_chain_whose_indexing_failed_is_unready_and_taken_up_again(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    step = Fault(follow.Follower.step, error)
    monkeypatch.setattr(follow.Follower, "step", lambda self: step(self))
    with evm(60) as living:
        async with index(living, tmp_path) as live, working(live) as (worker, engine):
            await wait_until(lambda: worker.status[live.key].indexed == living.height)
            step.on = True
            await wait_until(lambda: step.met >= 3)
            await unready(engine, "indexing")
            assert f'chainfolio_task_healthy{{chain="{live.key}",task="indexing"}} 0.0' in exported(engine)
            assert "zz" not in caplog.text, "the words of an unexpected error may be a node's"
            step.on = False
            living.mine(3)
            await wait_until(lambda: worker.status[live.key].indexed == living.height)
            await wait_until(lambda: not engine.supervisor.problems(live.key))
            readiness = await engine.readiness()
            assert (readiness.ready, readiness.chains[0].healthy, readiness.chains[0].reason) == (True, True, None)
    assert "indexing of local failed (1 in a row)" in caplog.text


@pytest.mark.slow("the same handling of another error", fast=["MemoryError"])
@pytest.mark.node
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_a_derivation_that_failed_is_unready_and_begun_again(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing_run = Fault(Maintenance.run_once, error)
    monkeypatch.setattr(Maintenance, "run_once", lambda self: failing_run(self))
    with evm(60) as living:
        async with index(living, tmp_path) as live, working(live) as (worker, engine):
            await wait_until(lambda: worker.status[live.key].indexed == living.height)
            failing_run.on = True
            await wait_until(lambda: failing_run.met >= 3)
            readiness = await unready(engine, "derivation")
            assert readiness.chains[0].indexed == living.height, "the head is followed all the same"
            failing_run.on = False
            await wait_until(lambda: not engine.supervisor.problems(live.key))
            assert (await engine.readiness()).ready
    assert "derivation of local failed (1 in a row)" in caplog.text


@pytest.mark.node
async def test_a_lake_that_comes_back_is_indexed_again_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Fault(consistency.check, StoreError("lake", "it is not the tail's"))
    monkeypatch.setattr(consistency, "check", check)
    check.on = True
    with evm(60) as living:
        async with index(living, tmp_path) as live, working(live) as (worker, engine):
            await wait_until(lambda: check.met >= 3)
            await unready(engine, "indexing")
            assert "not the tail's" in worker.status[live.key].halted
            check.on = False
            await wait_until(lambda: worker.status[live.key].indexed == living.height)
            await wait_until(lambda: (status := worker.status[live.key]).halted == status.problem == "")


async def test_derivation_is_called_off_only_when_its_thread_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loop, has_begun, ended = asyncio.get_running_loop(), asyncio.Event(), []

    def slow(*_: object) -> None:
        loop.call_soon_threadsafe(has_begun.set)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.05), loop).result()
        ended.append(1)

    monkeypatch.setattr(Maintenance, "run_once", slow)
    tail, jobs = Tail(tmp_path / "tail.db"), JobSchedule(Schedule(materialise=EACH_SECOND))
    maintenance = Maintenance(Lake(str(tmp_path / "lake")), tail, "a", 1, 1)
    async with jobs.running(), jobs.scheduled("materialise", maintenance.materialise_due):
        await has_begun.wait()
    assert ended == [1]
    tail.close()


async def test_a_full_disk_is_waited_out_and_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fault = Fault(lambda *_: None, StorageFull("lake"))
    fault.on = True
    monkeypatch.setattr(Maintenance, "run_once", lambda self: fault(self))
    tail, jobs = Tail(tmp_path / "tail.db"), JobSchedule(Schedule(materialise=EACH_SECOND))
    supervisor, maintenance = jobs.supervisor, Maintenance(Lake(str(tmp_path / "lake")), tail, "a", 1, 1)
    async with jobs.running(), jobs.scheduled("materialise", maintenance.materialise_due):
        await wait_until(lambda: fault.met == 3)
        assert supervisor.problems() == [
            "derivation failed: lake: no space left on the device (free some space; indexing resumes by itself)"
        ]
        fault.on = False
        await wait_until(lambda: not supervisor.problems())
    assert caplog.records[0].levelno == logging.ERROR
    tail.close()


async def test_a_state_store_that_does_not_answer_makes_the_process_unready_until_it_does() -> None:
    ping = Fault(lambda: asyncio.sleep(0), Locked("state", "postgresql://host/name cannot be reached"))
    ping.on = True
    supervisor = Supervisor(Quick())
    engine = Engine(System(Settings()), {}, supervisor)
    assert (await engine.readiness()).ready
    supervisor.every("state store", 2.0, ping)
    await wait_until(lambda: ping.met)
    await wait_until(lambda: supervisor.problems())
    readiness = await engine.readiness()
    assert (readiness.ready, readiness.tasks[0].healthy) == (False, False)
    assert "cannot be reached" in (readiness.tasks[0].reason or "")
    ping.on = False
    await wait_until(lambda: not supervisor.problems())
    assert (await engine.readiness()).ready
    await supervisor.close()
