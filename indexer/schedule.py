"""The clock of recurring jobs. APScheduler wakes each job by its cron expression.

The schedule only wakes jobs. What a job does follows from what is stored, so that a firing that comes twice, or not at
all, changes no result. A run that fails is repeated by the next firing; a run that lasts leaves firings out, and delays
no other job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec
from apscheduler.events import EVENT_JOB_MISSED
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.cron import CronTrigger

from chainfolio.cron import WEEKDAYS, parse_cron
from chainfolio.environment import Clock, SystemClock
from chainfolio.settings import Schedule
from chainfolio.spans import span
from chainfolio.storage.state.jobs import STOPPED, is_failure
from chainfolio.supervisor import Supervisor, Task, cancel_and_wait, described

MAX_WAIT_S: Final = 10.0  # between two looks at the clock: so long, a stepped clock can delay a job
FIRST_WINDOW: Final = timedelta(minutes=1)  # in which the last firing is looked for; then doubled
STEP_S: Final = 5.0  # the clock was stepped if it differs by more from the one that never jumps
Work = Callable[[], Awaitable[object]]
# Names under which logs, /readyz and metrics of tasks show jobs, if they differ from the names in the settings.
TASKS: Final = {"materialise": "derivation", "check": "scrub"}

log = logging.getLogger("chainfolio.jobs")


@dataclass(slots=True)
class Job:
    """A recurring job of this process, for one chain or none.

    Attributes:
        skipped_count: Firings that were left out because a run still lasted.
        missed_count: Firings that were later than the grace of the settings.
        began_us: Begin of the last run in Unix microseconds, None before the first.
        ended_us: End of the last run that has ended.
        duration_s: Duration of that run.
        error: Why that run failed or was stopped; empty if it succeeded.
        is_ended: False from the begin of a run to its end.
    """

    name: str
    chain: str
    cron: str
    work: Work
    task: Task
    run_count: int = 0
    skipped_count: int = 0
    missed_count: int = 0
    began_us: int | None = None
    ended_us: int | None = None
    duration_s: float = 0.0
    error: str = ""
    is_ended: bool = True
    running: asyncio.Task[None] | None = None

    @property
    def has_failed(self) -> bool:
        """True if the last run that has ended failed; one that was stopped did not."""
        return is_failure(self.error)

    @property
    def is_running(self) -> bool:
        """True while a run lasts."""
        return self.running is not None and not self.running.done()


@dataclass(slots=True)
class JobSchedule:
    """Wakes the jobs of one process. Jobs may come and go while it runs.

    `record`, if there is one, stores a job at the begin and at the end of each run.
    """

    settings: Schedule = field(default_factory=Schedule)
    clock: Clock = field(default_factory=SystemClock)
    supervisor: Supervisor = field(default_factory=Supervisor)
    jobs: dict[tuple[str, str], Job] = field(default_factory=dict)
    record: Callable[[Job], Awaitable[None]] | None = None
    _scheduler: _SteppedScheduler = field(init=False)
    _known: list[Job] = field(default_factory=list)

    def __post_init__(self) -> None:
        # A log line for each firing is of no use; ours says what failed.
        logging.getLogger("apscheduler").setLevel(logging.ERROR)
        self._scheduler = _SteppedScheduler(self.clock, self.settings)
        self._scheduler.add_listener(self._missed, EVENT_JOB_MISSED)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Wake jobs for the duration of the block, on the running loop; at its end, end all runs."""
        self._scheduler.start()
        try:
            yield
        finally:
            async with AsyncExitStack() as stack:  # all are ended, also if this task is cancelled meanwhile
                stack.push_async_callback(asyncio.sleep, 0)  # it shuts down in the next turn of the loop
                stack.callback(self._scheduler.shutdown, wait=False)
                for name, chain in self.jobs:
                    stack.push_async_callback(self.remove, name, chain=chain)

    def add(self, name: str, work: Work, *, chain: str = "", at_start: bool = False) -> Job:
        """Run `work` at the times that the settings give to the job `name`; `at_start`: also now.

        A job that was removed and is added again keeps its counts. One that is turned off never runs.
        """
        key = name, chain
        assert key not in self.jobs, f"{name} of {chain or 'this process'} is scheduled already"
        cron: str = getattr(self.settings, name)
        job = next((each for each in self._known if (each.name, each.chain) == key), None)
        if job is None:
            job = Job(name, chain, cron, work, self.supervisor.task(TASKS.get(name, name), chain=chain))
            self._known.append(job)
        job.work, self.jobs[key] = work, job
        if cron:
            self._scheduler.add_job(self._wake, trigger(cron, self.settings), (job,), id=_id(job))
            if at_start:
                job.running = asyncio.create_task(self._run(job), name=job.task.label)
        return job

    async def remove(self, name: str, *, chain: str = "") -> None:
        """Wake a job no more, and cancel its run; do nothing if it is not scheduled."""
        job = self.jobs.pop((name, chain), None)
        if job is None:
            return
        if job.cron:
            self._scheduler.remove_job(_id(job))
        if job.running is not None:
            await cancel_and_wait(job.running)

    @asynccontextmanager
    async def scheduled(self, name: str, work: Work, *, chain: str = "") -> AsyncIterator[Job]:
        """Schedule a job as long as the block lasts, and yield it; its run is cancelled at the end."""
        job = self.add(name, work, chain=chain)
        try:
            yield job
        finally:
            await self.remove(name, chain=chain)

    async def _wake(self, job: Job) -> None:
        """Start a job unless it was removed; if it still runs, only count that it was skipped."""
        if self.jobs.get((job.name, job.chain)) is not job:  # removed meanwhile
            return
        if job.is_running:
            job.skipped_count += 1
            return
        job.running = asyncio.create_task(self._run(job), name=job.task.label)

    async def _run(self, job: Job) -> None:
        """Run a job once and record its begin and end; any error is logged, and kept until a run succeeds.

        Only a cancellation is raised.
        """
        began_s, job.began_us, job.is_ended = self.clock.monotonic_s(), self.clock.now_us(), False
        await self._record(job)
        try:
            with span("job", job=job.name, chain=job.chain):
                await job.work()
        except asyncio.CancelledError as error:
            current = asyncio.current_task()
            if current is None or current.cancelling():
                job.error = STOPPED
                await self._end(job, began_s)
                raise
            self._failed(job, error)  # a call inside was cancelled, not this run
        except Exception as error:  # any error: the next firing runs the job again
            self._failed(job, error)
        else:
            job.error = ""
            job.task.progressed()
        job.run_count += 1
        await self._end(job, began_s)

    async def _end(self, job: Job, began_s: float) -> None:
        job.duration_s, job.ended_us = self.clock.monotonic_s() - began_s, self.clock.now_us()
        job.is_ended = True
        await self._record(job)

    async def _record(self, job: Job) -> None:
        """Record a run. A run goes on if that fails: what is due does not follow from the records."""
        if self.record is not None:
            try:
                await self.record(job)
            except Exception as error:  # two processes may insert one row; the state store may be away
                log.warning("the run of %s is not recorded: %s", job.task.label, described(error))

    def _failed(self, job: Job, error: BaseException) -> None:
        job.error = described(error)
        job.task.failed(error)

    def _missed(self, event: Any) -> None:
        for job in self.jobs.values():
            if _id(job) == event.job_id:
                job.missed_count += 1


def _id(job: Job) -> str:
    return f"{job.name}:{job.chain}"


def zone(settings: Schedule) -> tzinfo:
    """Return the time zone of the schedule."""
    return ZoneInfo(settings.time_zone)


def trigger(cron: str, settings: Schedule) -> Any:
    """Return the trigger of APScheduler for a valid cron expression.

    Each field is a list of values: in APScheduler's own expressions, weekday 0 is Monday.
    """
    parsed = parse_cron(cron)
    times = {
        "second": parsed.seconds,
        "minute": parsed.minutes,
        "hour": parsed.hours,
        "day": parsed.days,
        "month": parsed.months,
    }
    fields = {name: ",".join(map(str, values)) for name, values in times.items()}
    weekdays = ",".join(WEEKDAYS[each] for each in parsed.weekdays)
    return CronTrigger(**fields, day_of_week=weekdays, timezone=zone(settings), jitter=settings.jitter_s or None)


def last_firing(cron: str, settings: Schedule, now: datetime, grace: timedelta) -> datetime | None:
    """Return the last time up to `now` at which a cron expression fires; None if not within `grace`.

    The time is in UTC. The jitter of the settings is left out, so that all processes get the same time.
    """
    times, window = trigger(cron, msgspec.structs.replace(settings, jitter_s=0)), min(FIRST_WINDOW, grace)

    def next_from(moment: datetime) -> datetime | None:
        firing: datetime | None = times.get_next_fire_time(None, moment)
        # A sum of a time of the zone and a duration may be an earlier moment where clocks go back.
        return None if firing is None else firing.astimezone(UTC)

    while (firing := next_from(now - window)) is None or firing > now:
        if window >= grace:
            return None
        window = min(2 * window, grace)
    while (following := next_from(firing + timedelta(microseconds=1))) is not None and firing < following <= now:
        firing = following
    return firing


class _SteppedScheduler(AsyncIOScheduler):  # type: ignore[misc] # it has no types
    """APScheduler's scheduler, which notices that the machine's clock was stepped.

    By itself it would run or count each firing between the old time and the new one, or wait until an old time comes
    again. Here each job is due once after a step forward, and at its next time after a step back.
    """

    def __init__(self, clock: Clock, settings: Schedule) -> None:
        defaults = {"coalesce": settings.coalesce, "misfire_grace_time": settings.misfire_grace_s}
        super().__init__(timezone=zone(settings), job_defaults=defaults)
        self._clock = clock
        self._offset_s = self._read_offset()

    def _read_offset(self) -> float:
        return self._clock.now_us() / 1_000_000 - self._clock.monotonic_s()

    def _process_jobs(self) -> float:
        """Run due jobs and return the seconds until the next look.

        Correct due times after a step of the clock. A step forward makes jobs due now whose time was skipped; a step
        back computes their time anew.
        """
        offset_s = self._read_offset()
        if abs(step_s := offset_s - self._offset_s) > STEP_S:
            log.warning("the clock was stepped by %.0f s", step_s)
            now = datetime.fromtimestamp(self._clock.now_us() / 1_000_000, self.timezone)
            for job in self._stepped_jobs(now, step_s):
                due = now if step_s > 0 else job.trigger.get_next_fire_time(None, now)
                job.modify(next_run_time=due)
        self._offset_s = offset_s
        wait_s = super()._process_jobs()
        return MAX_WAIT_S if wait_s is None else min(wait_s, MAX_WAIT_S)

    def _stepped_jobs(self, now: datetime, step_s: float) -> Iterator[Any]:
        """Yield the jobs whose next time is in the past after a step forward, and all after a step back."""
        for job in self.get_jobs():
            if job.next_run_time is not None and (step_s < 0 or job.next_run_time < now):
                yield job
