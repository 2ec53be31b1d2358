"""Jobs are woken when they are due, on a clock that the test moves: also when it is stepped, or when jobs fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, tzinfo
from typing import Any

import apscheduler.executors.base
import apscheduler.schedulers.base
import pytest
from prometheus_client import CollectorRegistry

from chainfolio.errors import Unavailable
from chainfolio.indexer.metrics import JobMetrics
from chainfolio.indexer.schedule import MAX_WAIT_S, Job, JobSchedule, trigger
from chainfolio.settings import Schedule
from chainfolio.storage.state.jobs import STOPPED
from chainfolio.supervisor import Supervisor

START = datetime(2026, 3, 1, 12, 0, 30, 500_000, tzinfo=UTC)
DAY_S = 86_400


class SteppedClock:
    """Moves when a test says so; a step moves the calendar alone."""

    def __init__(self) -> None:
        self.wall_s, self.monotonic = START.timestamp(), 50.0

    def now_us(self) -> int:
        return int(self.wall_s * 1_000_000)

    def monotonic_s(self) -> float:
        return self.monotonic

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("the schedule does not sleep on it")


class MovedSchedule:
    """A schedule, its clock, and what ran when."""

    def __init__(self, clock: SteppedClock, settings: Schedule) -> None:
        self.clock = clock
        self.jobs = JobSchedule(settings, clock, Supervisor())
        self.runs: list[str] = []

    async def work(self) -> None:
        self.runs.append(datetime.fromtimestamp(self.clock.wall_s, UTC).strftime("%d %H:%M:%S"))

    async def run_due(self) -> float:
        """Look at the clock, as the timer of APScheduler would, and let what is due run."""
        wait_s: float = self.jobs._scheduler._process_jobs()
        for _ in range(10):
            await asyncio.sleep(0)
        return wait_s

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, as fast as the timer allows."""
        end_s = self.clock.wall_s + seconds
        while self.clock.wall_s < end_s:
            wait_s = min(await self.run_due(), end_s - self.clock.wall_s) or 0.001
            self.clock.wall_s += wait_s
            self.clock.monotonic += wait_s
        await self.run_due()

    async def step(self, seconds: float) -> None:
        """Set the machine's clock."""
        self.clock.wall_s += seconds
        await self.run_due()


@asynccontextmanager
async def moved_schedule(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> AsyncIterator[MovedSchedule]:
    clock = SteppedClock()

    class MovedDatetime(datetime):
        """The time of the test."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.fromtimestamp(clock.wall_s, tz)

    for module in (apscheduler.schedulers.base, apscheduler.executors.base):
        monkeypatch.setattr(module, "datetime", MovedDatetime)
    it = MovedSchedule(clock, Schedule(**settings))
    async with it.jobs.running():
        yield it


async def test_a_job_runs_at_its_times(monkeypatch: pytest.MonkeyPatch) -> None:
    async with moved_schedule(monkeypatch, prices="*/10 * * * *") as it:
        job = it.jobs.add("prices", it.work)
        await it.pass_time(30 * 60)
        assert it.runs == ["01 12:10:00", "01 12:20:00", "01 12:30:00"]
        assert (job.run_count, job.skipped_count, job.missed_count, job.error) == (3, 0, 0, "")


async def test_a_job_that_is_turned_off_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    async with moved_schedule(monkeypatch, prices="") as it:
        it.jobs.add("prices", it.work, at_start=True)
        await it.pass_time(3 * 3600)
        assert it.runs == []


@pytest.mark.slow("a smaller step of the clock", fast=["10", "-10"])
@pytest.mark.parametrize("years", [1, 10, -1, -10])
async def test_a_stepped_clock_fires_no_storm_and_stops_no_job(monkeypatch: pytest.MonkeyPatch, years: int) -> None:
    async with moved_schedule(monkeypatch, prices="* * * * * *", check="0 * * * *", coalesce=False) as it:
        checks: list[int] = []

        async def check() -> None:
            checks.append(1)

        it.jobs.add("prices", it.work)
        it.jobs.add("check", check)
        await it.pass_time(10)
        assert (len(it.runs), len(checks)) == (10, 0)
        begin_s = asyncio.get_running_loop().time()
        await it.step(years * 365 * DAY_S)
        assert asyncio.get_running_loop().time() - begin_s < 5
        assert len(it.runs) <= 11
        assert len(checks) == (1 if years > 0 else 0)
        before = len(it.runs)
        await it.pass_time(10)
        assert 9 <= len(it.runs) - before <= 11
        await it.pass_time(3600)
        assert len(checks) == (2 if years > 0 else 1)


async def test_a_clock_that_is_set_back_an_hour_delays_a_job_by_no_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    async with moved_schedule(monkeypatch, prices="*/10 * * * *") as it:
        it.jobs.add("prices", it.work)
        await it.pass_time(600)
        await it.step(-3600)
        await it.pass_time(600)
        assert it.runs == ["01 12:10:00", "01 11:20:00"]


async def test_a_failed_run_is_shown_until_the_next_firing_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    async with moved_schedule(monkeypatch, prices="* * * * *") as it:
        fails = True

        async def work() -> None:
            await it.work()
            if fails:
                raise Unavailable("the node", "timed out")

        job = it.jobs.add("prices", work, chain="a")
        await it.pass_time(180)
        assert len(it.runs) == 3, "no run between the firings"
        assert "timed out" in job.error
        assert "prices failed: " in it.jobs.supervisor.problems("a")[0]
        assert (job.run_count, job.task.failures) == (3, 3)
        fails = False
        await it.pass_time(60)
        assert (job.error, it.jobs.supervisor.problems("a"), job.run_count) == ("", [], 4)


async def test_an_unexpected_error_and_a_cancelled_call_are_failures_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with moved_schedule(monkeypatch, prices="* * * * *") as it:
        errors: list[BaseException] = [asyncio.CancelledError(), KeyError("a secret"), Unavailable("x", "y")]

        async def work() -> None:
            raise errors.pop()

        job = it.jobs.add("prices", work)
        await it.pass_time(120)
        assert job.error == "an unexpected KeyError"
        await it.pass_time(60)
        assert (job.error, job.run_count) == ("an unexpected CancelledError", 3)


async def test_a_run_that_hangs_leaves_its_firings_out_and_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with moved_schedule(monkeypatch, prices="* * * * *", check="* * * * *") as it:
        hung = asyncio.Event()

        async def hang() -> None:
            await hung.wait()

        job, other_job = it.jobs.add("check", hang), it.jobs.add("prices", it.work)
        await it.pass_time(300)
        assert (job.is_running, job.run_count, job.skipped_count) == (True, 0, 4)
        assert other_job.run_count == 5
        hung.set()
        await it.pass_time(60)
        assert not job.is_running
        assert job.run_count == 2


async def test_a_removed_job_is_cancelled_and_keeps_its_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    async with moved_schedule(monkeypatch, materialise="* * * * *") as it:
        ended: list[str] = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("ended")

        async with it.jobs.scheduled("materialise", it.work, chain="a"):
            await it.pass_time(60)
        async with it.jobs.scheduled("materialise", work, chain="a") as job:
            await it.pass_time(60)
            assert (job.is_running, ended) == (True, [])
        assert (ended, it.jobs.jobs) == (["ended"], {})
        await it.pass_time(600)
        assert len(it.runs) == job.run_count == 1


async def test_late_firings_are_one_run_or_none_after_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    async with moved_schedule(monkeypatch, prices="* * * * *", misfire_grace_s=600, check="0 12 * * *") as it:
        job, missed = it.jobs.add("prices", it.work), it.jobs.add("check", it.work)
        it.clock.wall_s += DAY_S  # the process was stopped: both clocks went on
        it.clock.monotonic += DAY_S
        await it.run_due()
        assert (job.run_count, job.missed_count) == (1, 0)
        it.clock.wall_s += DAY_S
        it.clock.monotonic += DAY_S
        await it.run_due()
        assert (missed.run_count, missed.missed_count) == (2, 0)
        it.clock.wall_s += DAY_S - 60 + 660
        it.clock.monotonic += DAY_S - 60 + 660
        await it.run_due()
        assert (missed.run_count, missed.missed_count) == (2, 1)


async def test_the_clock_is_looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    async with moved_schedule(monkeypatch, check="0 3 * * *") as it:
        assert await it.run_due() == MAX_WAIT_S
        it.jobs.add("check", it.work)
        assert await it.run_due() == MAX_WAIT_S


@pytest.mark.parametrize(
    ("cron", "zone", "after", "fires"),
    [
        ("0 9 * * 0", "UTC", "2026-03-02T00:00+00:00", "2026-03-08T09:00+00:00"),
        ("0 9 * * 1", "UTC", "2026-03-02T00:00+00:00", "2026-03-02T09:00+00:00"),
        ("0 0 29 2 *", "UTC", "2026-03-02T00:00+00:00", "2028-02-29T00:00+00:00"),
        ("30 2 * * *", "Europe/Zurich", "2026-03-28T12:00+01:00", "2026-03-30T02:30+02:00"),
        ("0 0 * * *", "Asia/Kolkata", "2026-03-02T00:00+00:00", "2026-03-02T18:30+00:00"),
    ],
)
def test_a_firing_is_in_its_zone_and_weekdays_begin_with_sunday(cron: str, zone: str, after: str, fires: str) -> None:
    due = trigger(cron, Schedule(time_zone=zone)).get_next_fire_time(None, datetime.fromisoformat(after))
    if zone != "Europe/Zurich":
        assert due == datetime.fromisoformat(fires)
    else:  # half past two does not exist on the day on which summer begins
        assert due.astimezone(UTC) <= datetime.fromisoformat(fires).astimezone(UTC)


async def test_prometheus_is_told_of_each_job(monkeypatch: pytest.MonkeyPatch) -> None:
    async with moved_schedule(monkeypatch, prices="* * * * *") as it:
        it.jobs.add("prices", it.work, chain="a")
        registry = CollectorRegistry()
        registry.register(JobMetrics(it.jobs))
        of = {"job": "prices", "chain": "a"}
        assert registry.get_sample_value("chainfolio_job_seconds", of) is None
        await it.pass_time(60)
        values = {
            name: registry.get_sample_value(f"chainfolio_job_{name}", of)
            for name in ("runs_total", "skipped_total", "missed_total", "running", "failed", "seconds")
        }
        assert values.pop("runs_total") == 1
        assert values == dict.fromkeys(("skipped_total", "missed_total", "running", "failed", "seconds"), 0)


async def test_a_record_that_fails_stops_no_job(caplog: pytest.LogCaptureFixture) -> None:
    records: list[tuple[bool, str]] = []

    async def record(job: Job) -> None:
        records.append((job.is_ended, job.error))
        raise KeyError("the store is away")

    async def work() -> None:
        if len(records) > 2:
            await asyncio.Event().wait()

    jobs = JobSchedule(record=record)
    async with jobs.running():
        for _ in range(2):
            job = jobs.add("prices", work, at_start=True)
            await asyncio.wait([job.running] if job.running else [], timeout=0.1)
            await jobs.remove("prices")
    assert records == [(False, ""), (True, ""), (False, ""), (True, STOPPED)]
    assert job.run_count == 1
    assert "is not recorded: an unexpected KeyError" in caplog.text


async def test_a_cancellation_while_a_job_is_removed_is_not_lost() -> None:
    may_end = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await may_end.wait()

    jobs = JobSchedule()
    async with jobs.running():
        job = jobs.add("prices", work, at_start=True)
        await asyncio.sleep(0)
        removing = asyncio.create_task(jobs.remove("prices"))
        await asyncio.sleep(0)
        removing.cancel()
        await asyncio.sleep(0)
        may_end.set()
        await asyncio.wait([removing], timeout=5)
        assert removing.cancelled()
        assert not job.is_running
        assert not job.has_failed
