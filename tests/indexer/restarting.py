"""A worker whose tasks fail, and which dies while its supervisor starts them again.

`python -m tests.indexer.restarting ROUNDS SEED`: in each round a process dies at each named point of a restart, one
after the other. How many died at each is printed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from chainfolio import supervisor
from chainfolio.cli.main import main
from chainfolio.supervisor import Supervisor, Task, Work
from tests.indexer.dying import WRITES
from tests.indexer.killed import hurry, load

BACK_OFF_S, MAX_LIFE_S, MAX_WRITES, TRIES = 0.1, 30.0, 10, 3
FAILED, WAITS, BEGINS, WRITES_AGAIN, WROTE_AGAIN, FAILED_AGAIN = POINTS = (
    "a task has failed",
    "its back-off lasts",
    "it begins again",
    "a write of it is due",
    "a write of it is done",
    "it has failed three times",
)


class Fault(Exception):
    """A fault of our own, which nothing expects."""


def die() -> NoReturn:
    """Die as by `kill -9`."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody survives that")


@dataclass(slots=True)
class Life:
    """A life: after some writes the next one fails; from then on the process dies at the point, or at one of the first
    writes after it.
    """

    point: str
    writes: int
    writes_after_failure: int
    failures: int = 0
    has_begun: bool = False

    def arm(self) -> None:
        """Put itself in the place of writes, failures and beginnings."""
        supervisor.FIRST_WAIT_S = BACK_OFF_S  # type: ignore[misc]
        for store, names in WRITES.items():
            for name in names:
                setattr(store, name, self._writing(getattr(store, name)))
        Task.failed = self._failing(Task.failed)  # type: ignore[assignment, method-assign]
        Supervisor.start = self._starting(Supervisor.start)  # type: ignore[method-assign]

    def _writing(self, usual: Callable[..., Any]) -> Callable[..., Any]:
        def write(*arguments: Any, **named: Any) -> Any:
            self.writes -= 1
            if self.writes < 0 and (not self.failures or self.point == FAILED_AGAIN):
                raise Fault
            self.writes_after_failure -= self.has_begun
            if self.writes_after_failure == 0 and self.point == WRITES_AGAIN:
                die()
            result = usual(*arguments, **named)
            return die() if self.writes_after_failure == 0 and self.point == WROTE_AGAIN else result

        return write

    def _failing(self, usual: Callable[[Task, BaseException], float]) -> Callable[[Task, BaseException], float]:
        def failed(task: Task, error: BaseException) -> float:
            wait_s = usual(task, error)
            if isinstance(error, Fault):
                self.failures += 1
                if self.point == FAILED or (self.point == FAILED_AGAIN and self.failures == 3):
                    die()
                if self.point == WAITS:
                    threading.Timer(BACK_OFF_S / 2, die).start()
            return wait_s

        return failed

    def _starting(self, usual: Callable[..., Task]) -> Callable[..., Task]:
        def start(self_: Supervisor, name: str, work: Work, *, chain: str = "") -> Task:
            async def counted_run(task: Task) -> None:
                self.has_begun = self.has_begun or task.failures > 0
                if self.has_begun and self.point == BEGINS:
                    die()
                await work(task)

            return usual(self_, name, counted_run, chain=chain)

        return start


def lived(point: str, writes: int, writes_after_failure: int) -> str:
    """Return the point at which a life ended: its own, unless it lasted too long for it."""
    child = os.fork()
    if child == 0:
        Life(point, writes, writes_after_failure).arm()
        os._exit(main(["worker"]))
    last_s = time.monotonic() + MAX_LIFE_S
    while time.monotonic() < last_s:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
                sys.exit(f"ended with {os.waitstatus_to_exitcode(status)}")
            return point
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "late"


if __name__ == "__main__":
    load()
    hurry()
    chance, ends = random.Random(int(sys.argv[2])), Counter[str]()
    for point in POINTS * int(sys.argv[1]):
        for _ in range(TRIES):
            end = lived(point, chance.randint(0, MAX_WRITES), chance.randint(1, MAX_WRITES))
            ends[end] += 1
            if end == point:
                break
    print(json.dumps(ends))
