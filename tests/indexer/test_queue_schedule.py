"""Maintenance on the queue: jobs are due at the times of the settings, once for all workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from chainfolio.environment import Environment
from chainfolio.errors import StoreError
from chainfolio.indexer import maintenance
from chainfolio.indexer.job_queue import JobQueue, opened
from chainfolio.indexer.maintenance import Maintenance
from chainfolio.indexer.queue_worker import QueueWorker
from chainfolio.indexer.schedule import last_firing
from chainfolio.indexer.wiring import System
from chainfolio.settings import Schedule
from chainfolio.settings_file import load
from chainfolio.tables import BLOCKS
from tests.indexer.clock import ManualClock
from tests.storage.conftest import make
from tests.storage.stores import NO_POSTGRES, Server, own_server

NOON_S = datetime(2024, 7, 1, 12, tzinfo=UTC).timestamp()  # before now: the database has a clock of its own
CHAINS = "".join(f'[chains.{key}]\nrpc = ["http://127.0.0.1:9"]\ndatasets = ["blocks"]\n' for key in ("base", "celo"))


@pytest.fixture(scope="module")
def machine() -> Iterator[Server]:
    with own_server() as server:
        if server is None:
            pytest.skip(NO_POSTGRES)
        yield server


class Workers:
    """Workers of one queue, whose clock a test moves. The nodes of both chains are down."""

    def __init__(self, clock: ManualClock, systems: list[System], queues: list[JobQueue]) -> None:
        self.clock, self.systems, self.queue = clock, systems, queues[0]
        self.each = [QueueWorker(system, queue) for system, queue in zip(systems, queues, strict=True)]

    async def look(self, **later: float) -> list[tuple[str, str]]:
        """Let all workers add due jobs at once, after a time; return chain and kind of all jobs."""
        self.clock.now_s += timedelta(**later).total_seconds()
        await asyncio.gather(*(worker.add_due() for worker in self.each))
        return sorted((job.chain, job.kind) for job in await self.queue.jobs())

    async def work(self) -> None:
        """Run all jobs."""
        await self.each[0].run(wait=False)
        assert await self.queue.jobs() == []


@pytest.fixture
def schedule() -> str:
    """Times of the settings."""
    return ""


@pytest.fixture
async def workers(machine: Server, schedule: str, tmp_path: Path) -> AsyncIterator[Workers]:
    file, url, clock = tmp_path / "c.toml", machine.new_database("schedule"), ManualClock(NOON_S)
    file.write_text(f'data = "d"\n[tail]\nurl = "{url}"\n[schedule]\n{schedule}\n{CHAINS}')
    async with AsyncExitStack() as stack:
        systems = [System(load(file), environment=Environment(clock)) for _ in range(2)]
        for system in systems:
            stack.push_async_callback(system.close)
        yield Workers(clock, systems, [await stack.enter_async_context(opened(url)) for _ in systems])


async def test_replaced_files_are_deleted_once_an_hour_by_one_job_for_the_lake(workers: Workers) -> None:
    assert await workers.look(minutes=1) == [("base", "vacuum")]
    await workers.work()
    assert await workers.look(minutes=58) == []
    assert await workers.look(minutes=2) == [("base", "vacuum")]
    assert await workers.look(hours=3) == [("base", "vacuum")], "it waits already"
    await workers.work()
    assert await workers.look(seconds=-600) == [], "a clock that is behind adds nothing again"


@pytest.mark.parametrize("schedule", ['vacuum = ""\nmaterialise = ""'])
async def test_jobs_that_the_settings_turn_off_are_not_due(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Maintenance, "due_histories", lambda _: ["account_transfers"])
    monkeypatch.setattr(Maintenance, "has_small_files", lambda _: True)
    assert await workers.look(hours=2) == []


@pytest.mark.parametrize("schedule", ['vacuum = ""'])
async def test_small_files_are_merged_by_one_job_of_their_chain(workers: Workers) -> None:
    lake = workers.systems[0].lake
    assert await workers.look(seconds=30) == [], "there is nothing to merge"
    for batch in range(maintenance.MAX_SMALL + 1):
        lake.append(BLOCKS, make(BLOCKS, "celo", [batch], per_block=1), stream="celo/collect", batch=batch)
    assert await workers.look(seconds=10) == [], "the time has not come"
    assert await workers.look(seconds=20) == [("celo", "compact")]
    await workers.work()
    assert len(lake.entries(BLOCKS)) < maintenance.MAX_SMALL
    assert lake.count(BLOCKS, "celo") == maintenance.MAX_SMALL + 1
    assert await workers.look(seconds=30) == []


async def test_a_clock_that_is_years_ahead_records_no_time(workers: Workers, caplog: pytest.LogCaptureFixture) -> None:
    assert await workers.look(days=36500) == []
    assert "base: no vacuum: queue: the clock of this machine (2124-" in caplog.text
    assert "celo: no compact: queue: the clock of this machine (2124-" in caplog.text
    assert await workers.look(days=-36500) == [("base", "vacuum")]
    await workers.work()
    later = "UPDATE job_firings SET fired_at = now() + interval '9 years'"
    await workers.queue.app.connector.execute_query_async(later)
    assert await workers.look(hours=1) == [("base", "vacuum")], "a time that a wrong clock recorded is replaced"


async def test_parked_jobs_are_added_again_at_their_next_time(workers: Workers) -> None:
    connector = workers.queue.app.connector
    await workers.queue.add("compact", "celo")
    assert await workers.look() == [("base", "vacuum"), ("celo", "compact")]
    await connector.execute_query_async("UPDATE procrastinate_jobs SET status = 'failed'")
    assert await workers.look(minutes=59) == [("base", "vacuum"), ("celo", "compact")]
    assert {job.status for job in await workers.queue.jobs()} == {"failed"}, "the time has not come"
    await workers.look(minutes=1)
    assert {job.kind: job.status for job in await workers.queue.jobs()} == {"compact": "failed", "vacuum": "todo"}
    (number,) = (job.number for job in await workers.queue.jobs() if job.kind == "vacuum")
    await workers.queue.cancel(number)
    await workers.look(hours=1)
    ended = {job.kind: job.number for job in await workers.queue.jobs()}
    assert ended["vacuum"] == number, "a job that a user cancelled waits for `retry`"


async def test_damaged_stores_of_a_chain_keep_no_maintenance_from_the_queue(
    workers: Workers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: Maintenance) -> bool:
        raise StoreError("lake", "a damaged log")

    monkeypatch.setattr(Maintenance, "has_small_files", fail)
    monkeypatch.setattr(Maintenance, "due_histories", lambda each: fail(each) if each.chain == "base" else ["a"])
    jobs = [("base", "compact"), ("base", "vacuum"), ("celo", "compact"), ("celo", "materialise")]
    assert await workers.look() == jobs
    assert caplog.text.count("base: no materialise: lake: a damaged log") == 2, "each worker says it"


@pytest.mark.parametrize("schedule", ['materialise = ""\nmisfire_grace_s = 60'])
async def test_files_of_a_lake_are_deleted_by_one_job_at_a_time(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, most = 0, 0

    async def work(_: QueueWorker, chain: str) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1

    monkeypatch.setattr(QueueWorker, "_vacuum", work)
    queue, workers.clock.now_s = workers.queue, NOON_S + 1_800
    queue.app.tasks.clear()
    worker = QueueWorker(workers.systems[0], queue)
    for chain in ("base", "celo"):
        await queue.add("vacuum", chain)
    await worker.run(wait=False)
    await worker.run(wait=False)
    assert (most, await queue.jobs()) == (1, [])


async def test_maintenance_is_added_before_ranges_that_fill_the_queue(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chainfolio.indexer.queue_worker.MAX_WAITING", 2)
    for first in range(2):
        await workers.queue.add("index", "base", first=first, last=first)
    assert ("base", "vacuum") in await workers.look(minutes=1)
    order = "SELECT task_name FROM procrastinate_jobs ORDER BY priority DESC, id"
    rows = await workers.queue.app.connector.execute_query_all_async(order)
    assert rows[0]["task_name"] == "vacuum"


@pytest.mark.parametrize(
    ("cron", "now", "last"),
    [
        ("0 * * * *", "12:00:00", "12:00:00"),
        ("0 * * * *", "12:59:59", "12:00:00"),
        ("*/30 * * * * *", "12:00:29", "12:00:00"),
        ("*/30 * * * * *", "12:00:30", "12:00:30"),
        ("0 11 * * *", "12:00:00", "11:00:00"),
        ("0 11 * * *", "12:00:01", None),
        ("0 0 1 1 *", "12:00:00", None),
    ],
)
def test_the_last_time_of_a_job_is_within_the_grace(cron: str, now: str, last: str | None) -> None:
    def time_of(text: str) -> datetime:
        return datetime.fromisoformat(f"2026-07-01T{text}+00:00")

    firing = last_firing(cron, Schedule(jitter_s=50), time_of(now), timedelta(hours=1))
    assert firing == (time_of(last) if last else None)


@pytest.mark.parametrize(
    ("zone", "now", "last"),
    [
        ("Europe/Berlin", "2026-10-25T00:00:07", "2026-10-25T00:00:00"),
        ("Europe/Berlin", "2026-10-25T01:00:07", "2026-10-25T01:00:00"),
        ("Europe/Berlin", "2026-10-25T02:59:07", "2026-10-25T02:00:00"),
        ("America/New_York", "2026-11-01T06:00:07", "2026-11-01T06:00:00"),
        ("Australia/Lord_Howe", "2026-04-04T15:30:07", "2026-04-04T15:30:00"),
        ("Europe/Berlin", "2026-03-29T01:00:07", "2026-03-29T01:00:00"),
    ],
)
def test_the_last_time_of_a_job_is_found_where_clocks_change(zone: str, now: str, last: str) -> None:
    moment, before = (datetime.fromisoformat(f"{text}+00:00") for text in (now, last))
    assert last_firing("0 * * * *", Schedule(time_zone=zone), moment, timedelta(hours=1)) == before
