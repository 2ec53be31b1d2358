"""Compute partitions inline, in processes of this machine, or on a Ray cluster.

All three call the same function on the same partitions, so their results are equal. A worker that dies costs a retry of
its partitions.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from chainfolio.engine.recompute.values import compute
from chainfolio.errors import Unavailable, needs_extra

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

    import polars as pl

    from chainfolio.engine.recompute.partitions import Partition

EXECUTORS: Final = ("inline", "processes", "ray")
RETRIES: Final = 3
THREADS: Final = "POLARS_MAX_THREADS"  # Polars reads it once, when it is imported
Report = Callable[["Partition"], None]
Compute = Callable[["Partition"], "pl.DataFrame"]


@dataclass(frozen=True, slots=True)
class Executor:
    """Computes partitions inline, in processes, or on Ray.

    Attributes:
        kind: One of `EXECUTORS`.
        workers: The number of processes; of Ray, that of partitions in flight. 0: one for each processor.
        address: The address of a Ray cluster, such as `ray://head:10001`; empty starts one on this machine.
        compute: The function of one partition. It has to be importable by workers.
    """

    kind: str = "inline"
    workers: int = 0
    address: str = ""
    compute: Compute = compute

    @property
    def worker_count(self) -> int:
        """The number of partitions that are computed at once."""
        return self.workers or os.cpu_count() or 1

    def run(self, partitions: Sequence[Partition], report: Report) -> list[pl.DataFrame]:
        """Return the result of each partition in their order; `report` is called after each one.

        Raises:
            MissingDependency: Ray is not installed.
            Unavailable: Workers died `RETRIES` times, or the Ray cluster cannot be reached.
            ChainfolioError: An error of the computation.
        """
        results: dict[int, pl.DataFrame] = {}
        run = {"inline": self._inline, "processes": self._in_processes, "ray": self._on_ray}[self.kind]
        for number, result in run(partitions):
            results[number] = result
            report(partitions[number])
        return [results[number] for number in range(len(partitions))]

    def _inline(self, partitions: Sequence[Partition]) -> Iterator[tuple[int, pl.DataFrame]]:
        for number, partition in enumerate(partitions):
            yield number, self.compute(partition)

    def _in_processes(self, partitions: Sequence[Partition]) -> Iterator[tuple[int, pl.DataFrame]]:
        """Yield the number and result of each partition, in the order in which they end.

        A new pool repeats the partitions of a dead worker.

        Raises:
            Unavailable: Workers died more than RETRIES times.
        """
        from concurrent.futures.process import BrokenProcessPool

        pending, deaths = dict(enumerate(partitions)), 0
        while pending:  # ends: each pass computes a partition or counts a death
            try:
                with _pool(min(self.worker_count, len(pending))) as pool:
                    for number, result in self._completed(pool, pending):
                        del pending[number]
                        yield number, result
            except BrokenProcessPool as error:
                deaths += 1
                if deaths > RETRIES:
                    names = "; ".join(partition.name for partition in list(pending.values())[:3])
                    raise Unavailable("workers", f"a process died {deaths} times, last in one of: {names}") from error

    def _completed(
        self, pool: ProcessPoolExecutor, pending: dict[int, Partition]
    ) -> Iterator[tuple[int, pl.DataFrame]]:
        """Compute partitions in a pool; yield number and rows of each as soon as it is done."""
        with _interrupts_blocked():
            numbers: dict[Future[pl.DataFrame], int] = {
                pool.submit(self.compute, partition): number for number, partition in pending.items()
            }
        for future in as_completed(numbers):
            yield numbers[future], future.result()

    def _on_ray(self, partitions: Sequence[Partition]) -> Iterator[tuple[int, pl.DataFrame]]:
        """Yield the number and result of each partition, in the order in which they end.

        Ray repeats the partitions of a dead worker. An error of a partition is raised as it is.

        Raises:
            Unavailable: Ray failed.
        """
        with _ray(self.address, self.worker_count) as ray:
            remote = ray.remote(max_retries=RETRIES)(_compute_on_ray)
            waiting, running = list(enumerate(partitions)), dict[Any, int]()
            while waiting or running:  # ends: each pass completes a partition or raises
                while waiting and len(running) < 2 * self.worker_count:
                    number, partition = waiting.pop(0)
                    running[remote.remote(self.compute, partition)] = number
                done, _ = ray.wait(list(running), num_returns=1)
                try:
                    result = ray.get(done[0])
                except ray.exceptions.RayTaskError as error:
                    raise error.cause or error from None
                except ray.exceptions.RayError as error:
                    name = partitions[running[done[0]]].name
                    raise Unavailable("ray", f"{name}: {_first_line(error)}") from error
                yield running.pop(done[0]), result


def _compute_on_ray(function: Compute, partition: Partition) -> pl.DataFrame:
    return function(partition)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of processes.

    Its workers end with the block, at once if it raises, and if this process dies.
    """
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    before = os.environ.get(THREADS)
    os.environ[THREADS] = "1"  # one processor for each worker; new processes inherit it
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin_worker)
    try:
        yield pool
        pool.shutdown()
    except BaseException:  # also an interrupt: what the workers compute is of no use any longer
        processes = list((pool._processes or {}).values())
        for process in processes:
            process.kill()
        pool.shutdown(cancel_futures=True)
        raise
    finally:
        os.environ.pop(THREADS, None) if before is None else os.environ.update({THREADS: before})


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block SIGINT during the block, so that processes that start in it ignore Ctrl-C."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker() -> None:
    """End this process as soon as its parent ends."""
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


@contextmanager
def _ray(address: str, workers: int) -> Iterator[Any]:
    """Connect to a Ray cluster, or start one on this machine; disconnect, or end it, with the block.

    Raises:
        MissingDependency: Ray is not installed.
        Unavailable: The cluster cannot be reached.
    """
    with needs_extra("ray", "the executor ray"):
        import ray

    local = {} if address else {"num_cpus": workers, "include_dashboard": False}
    environment = {"env_vars": {THREADS: "1"}}
    try:  # without an address, Ray would connect to another cluster that runs on this machine
        ray.init(address or "local", log_to_driver=False, logging_level="ERROR", runtime_env=environment, **local)
    except Exception as error:  # Ray raises a plain Exception if a node does not start in time
        ray.shutdown()
        raise Unavailable("ray", f"{address or 'local'}: {_first_line(error)}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
