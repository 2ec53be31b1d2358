"""The supervisor of background tasks: logs, counts and restarts failed ones, and marks them unhealthy.

A task is a coroutine that runs until it is cancelled. An exception ends only its current run: the next run begins after
a back-off that doubles, carries jitter and has an upper bound. A task is unhealthy from its first failure until it
reports progress.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from chainfolio.environment import Clock, SystemClock
from chainfolio.errors import ChainfolioError

FIRST_WAIT_S: Final = 1.0
MAX_WAIT_S: Final = 60.0

T = TypeVar("T")

log = logging.getLogger("chainfolio.supervisor")


async def wait_for_end(future: asyncio.Future[T]) -> T:
    """Wait until a future has ended and return its result, also if the caller is cancelled meanwhile.

    Such a cancellation is raised at the end, and is not passed on to the future.

    Raises:
        CancelledError: The caller or the future was cancelled.
        BaseException: The error of the future.
    """
    await _wait_until_done(future)
    return future.result()


async def _wait_until_done(future: asyncio.Future[T]) -> None:
    """Wait until a future has ended. Then raise CancelledError if the caller was cancelled meanwhile."""
    cancellation: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        raise cancellation


async def cancel_and_wait(task: asyncio.Task[object]) -> None:
    """Cancel a task and wait for its end.

    Raises:
        CancelledError: The caller was cancelled meanwhile.
        BaseException: The error of the task.
    """
    task.cancel()
    await _wait_until_done(task)
    if not task.cancelled():
        task.result()


def start_in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Start work in a thread and return its future."""
    run = partial(contextvars.copy_context().run, work)
    return asyncio.get_running_loop().run_in_executor(None, run)


async def in_thread(work: Callable[[], T]) -> T:
    """Run work in a thread and return its result.

    A cancelled call ends after the work, because the locks of its caller must be held until then. Raises the work's
    error, and CancelledError.
    """
    return await wait_for_end(start_in_thread(work))


class TaskEnded(ChainfolioError):
    """A task ended without being cancelled."""


@dataclass(slots=True)
class Task:
    """One background task: `name` is its kind, `chain` the chain it works for.

    `failures` counts its failed runs; `problem` is the reason why it is unhealthy, empty if it is healthy.
    """

    name: str
    chain: str = ""
    failures: int = 0
    problem: str = ""
    _failures_in_a_row: int = 0

    @property
    def label(self) -> str:
        """The name in logs."""
        return f"{self.name} of {self.chain}" if self.chain else self.name

    def progressed(self) -> None:
        """Mark the task as healthy; its next back-off starts from the beginning."""
        self.problem, self._failures_in_a_row = "", 0

    def record_failure(self, error: BaseException) -> None:
        """Count a failure that the next request repairs; the task stays healthy.

        The first, second, fourth, eighth… failure is logged.
        """
        self.failures += 1
        if self.failures & (self.failures - 1) == 0:
            log.warning("%s failed (%d so far): %s", self.label, self.failures, described(error))
            self._trace(error)

    def failed(self, error: BaseException) -> float:
        """Log and count a failed run, and return the seconds to wait before the next one.

        They double with each failure in a row, up to MAX_WAIT_S; the first has its traceback in the log.
        """
        self.failures += 1
        wait_s = min(FIRST_WAIT_S * 2.0 ** min(self._failures_in_a_row, 16), MAX_WAIT_S)
        self._failures_in_a_row += 1
        self.problem = f"{self.name} failed: {described(error)}"
        log.error("%s failed (%d in a row): %s", self.label, self._failures_in_a_row, described(error))
        if self._failures_in_a_row == 1:
            self._trace(error)
        return wait_s

    def _trace(self, error: BaseException) -> None:
        """Log the origin of an unexpected error: its frames only, because its message may hold anything."""
        if (cause := unexpected(error)) is not None:
            log.error("%s failed here:\n%s", self.label, "".join(traceback.format_tb(cause.__traceback__)))


Work = Callable[[Task], Awaitable[None]]


@dataclass(slots=True)
class Supervisor:
    """Runs background tasks; one supervisor for each process. `tasks` are all that were ever started."""

    clock: Clock = field(default_factory=SystemClock)
    random: random.Random = field(default_factory=random.SystemRandom)
    tasks: list[Task] = field(default_factory=list)
    _running: dict[tuple[str, str], asyncio.Task[None]] = field(default_factory=dict)

    def start(self, name: str, work: Work, *, chain: str = "") -> Task:
        """Run `work` until `stop`, again after each error. A task that runs already fails an assertion.

        A task that was stopped and is started again keeps its counts.
        """
        key = name, chain
        assert key not in self._running, f"{name} of {chain or 'this process'} runs already"
        task = self.task(name, chain=chain)
        self._running[key] = asyncio.create_task(self._run(task, work), name=task.label)
        return task

    def task(self, name: str, *, chain: str = "") -> Task:
        """Return the record of a task, created if there is none.

        The record alone suffices for work that requests start without waiting; they call `record_failure`.
        """
        record = next((each for each in self.tasks if (each.name, each.chain) == (name, chain)), None)
        if record is None:
            record = Task(name, chain)
            self.tasks.append(record)
        return record

    def every(self, name: str, seconds: float, work: Callable[[], Awaitable[object]], *, chain: str = "") -> Task:
        """Run `work` repeatedly, with a wait of `seconds` before each run; each successful run is progress.

        After an error it starts again, after a growing pause.
        """

        async def repeated(task: Task) -> None:
            while True:
                await self.clock.sleep(seconds)
                await work()
                task.progressed()

        return self.start(name, repeated, chain=chain)

    async def stop(self, name: str, *, chain: str = "") -> None:
        """Cancel a task and wait for its end; do nothing if it does not run."""
        running = self._running.pop((name, chain), None)
        if running is not None:
            await cancel_and_wait(running)

    async def close(self) -> None:
        """Stop every task, the newest first, also if cancelled meanwhile."""
        async with AsyncExitStack() as stack:
            for name, chain in self._running:
                stack.push_async_callback(self.stop, name, chain=chain)

    @asynccontextmanager
    async def running(self, name: str, work: Work, *, chain: str = "") -> AsyncIterator[Task]:
        """Run a task as long as the block lasts; yields it."""
        task = self.start(name, work, chain=chain)
        try:
            yield task
        finally:
            await self.stop(name, chain=chain)

    def problems(self, chain: str = "") -> list[str]:
        """Return the problems of unhealthy tasks of a chain, or of tasks without a chain."""
        return [task.problem for task in self.tasks if task.chain == chain and task.problem]

    async def _run(self, task: Task, work: Work) -> None:
        """Run a task's work for ever: after an error, or an end, it starts again after a growing pause.

        Only a cancellation of the task itself ends it.
        """
        while True:
            try:
                await work(task)
                raise TaskEnded("it ended without being stopped")
            except asyncio.CancelledError as error:
                current = asyncio.current_task()
                if current is None or current.cancelling():
                    raise
                wait_s = task.failed(error)  # a call inside was cancelled, not this task
            except Exception as error:  # any error: a task must not end in silence
                wait_s = task.failed(error)
            await self.clock.sleep(wait_s * (1 + self.random.random() / 4))


def unexpected(error: BaseException) -> BaseException | None:
    """Return the first error inside `error` that is not a ChainfolioError; None if all are."""
    if isinstance(error, BaseExceptionGroup):
        return next((cause for each in error.exceptions if (cause := unexpected(each)) is not None), None)
    return None if isinstance(error, ChainfolioError) else error


def described(error: BaseException) -> str:
    """Return an error in one line: the message of our own errors, only the class of any other.

    The message of another error may hold anything.
    """
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(described(each) for each in error.exceptions))
    return str(error) if isinstance(error, ChainfolioError) else f"an unexpected {type(error).__name__}"
