"""Background tasks: none ends in silence."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Awaitable, Callable

import pytest

from chainfolio.errors import StoreError
from chainfolio.supervisor import MAX_WAIT_S, Supervisor, Task, cancel_and_wait, in_thread


class Waits:
    """A clock that keeps every wait, and lets the supervisor go on at once."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def now_us(self) -> int:
        """Return 0: no code reads it."""
        raise AssertionError

    def monotonic_s(self) -> float:
        """Return 0: no code reads it."""
        raise AssertionError

    async def sleep(self, seconds: float) -> None:
        """Take note."""
        self.waits.append(seconds)
        await asyncio.sleep(0)


class Still(random.Random):
    """No jitter."""

    def random(self) -> float:
        """Always the least."""
        return 0.0


async def ran(supervisor: Supervisor, work: Callable[[Task], Awaitable[None]], times: int) -> Task:
    """Run a task with that many failures."""
    task = supervisor.start("indexing", work, chain="local")
    async with asyncio.timeout(5):
        while task.failures < times:  # noqa: ASYNC110 (the count has no event)
            await asyncio.sleep(0)
    return task


@pytest.mark.parametrize(
    "error", [ValueError("SECRET"), StoreError("lake", "gone"), ExceptionGroup("g", [KeyError("SECRET")])]
)
async def test_whatever_ends_a_task_is_logged_marked_counted_and_tried_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(task: Task) -> None:
        raise error

    supervisor = Supervisor(Waits(), Still())
    task = await ran(supervisor, work, 3)
    assert supervisor.problems("local") == [task.problem] != [""]
    assert supervisor.problems() == []
    await supervisor.close()
    assert caplog.text.count("indexing of local failed (") == task.failures
    assert "SECRET" not in caplog.text + task.problem, "the words of an unexpected error may hold anything"
    assert ("failed here:" in caplog.text) == (not isinstance(error, StoreError))


async def test_the_back_off_doubles_to_an_upper_bound_and_starts_anew_after_progress() -> None:
    clock, runs = Waits(), 0

    async def work(task: Task) -> None:
        nonlocal runs
        runs += 1
        if runs == 9:
            task.progressed()
            assert task.problem == ""
        raise ValueError

    supervisor = Supervisor(clock, Still())
    await ran(supervisor, work, 11)
    await supervisor.close()
    assert clock.waits[:11] == [1, 2, 4, 8, 16, 32, MAX_WAIT_S, MAX_WAIT_S, 1, 2, 4]


async def test_a_task_that_comes_to_its_end_or_is_cancelled_from_inside_has_failed() -> None:
    async def ends(task: Task) -> None:
        return

    async def cancels(task: Task) -> None:
        raise asyncio.CancelledError

    for work in (ends, cancels):
        supervisor = Supervisor(Waits(), Still())
        task = await ran(supervisor, work, 2)
        assert task.problem
        await supervisor.close()


async def test_a_task_that_is_stopped_and_started_again_keeps_its_counts() -> None:
    async def work(task: Task) -> None:
        raise ValueError

    supervisor = Supervisor(Waits(), Still())
    task = await ran(supervisor, work, 2)
    await supervisor.stop("indexing", chain="local")
    failures = task.failures
    assert await ran(supervisor, work, failures + 1) is task
    await supervisor.close()
    assert supervisor.tasks == [task]


async def test_repeated_work_is_healthy_again_after_one_good_run() -> None:
    results = iter([ValueError(), ValueError(), None])
    has_recovered = asyncio.Event()

    async def run_once() -> None:
        match next(results, None):
            case Exception() as error:
                raise error
            case None:
                has_recovered.set()

    supervisor = Supervisor(Waits(), Still())
    task = supervisor.every("probe", 2.0, run_once)
    async with asyncio.timeout(5):
        await has_recovered.wait()
        await asyncio.sleep(0)
    assert (task.failures, task.problem) == (2, "")
    await supervisor.close()


async def test_a_failure_that_is_only_noted_is_counted_and_logged_and_marks_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    supervisor = Supervisor(Waits(), Still())
    for _ in range(5):
        supervisor.task("refresh").record_failure(ValueError("SECRET"))
    assert (supervisor.task("refresh").failures, supervisor.problems()) == (5, [])
    assert [record.levelno for record in caplog.records].count(logging.WARNING) == 3
    assert "SECRET" not in caplog.text


async def _turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_cancellation_during_stop_is_raised_after_the_task_has_ended() -> None:
    may_end, ended = asyncio.Event(), []

    async def work(task: Task) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await may_end.wait()
            ended.append(task.name)

    supervisor = Supervisor(Waits(), Still())
    for name in ("first", "second"):
        supervisor.start(name, work)
    await _turns()
    closing = asyncio.create_task(supervisor.close())
    await _turns()
    closing.cancel()
    await _turns()
    assert not closing.done()
    may_end.set()
    await asyncio.wait([closing], timeout=5)
    assert closing.cancelled()
    assert ended == ["second", "first"]


async def test_the_error_of_a_cancelled_task_is_raised() -> None:
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("its end failed")

    task = asyncio.create_task(work())
    await _turns()
    with pytest.raises(ValueError, match="its end failed"):
        await cancel_and_wait(task)


async def test_work_in_a_thread_ends_before_its_cancelled_caller() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        may_end.wait(5)
        ended.append(True)

    calling = asyncio.create_task(in_thread(work))
    await asyncio.to_thread(begun.wait, 5)
    for _ in range(2):  # a second cancellation shortens nothing either
        calling.cancel()
        await _turns()
    assert not calling.done()
    may_end.set()
    await asyncio.wait([calling], timeout=5)
    assert calling.cancelled()
    assert ended == [True]
