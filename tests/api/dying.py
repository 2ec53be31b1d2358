"""A server that dies at a named point of a change: `python -m tests.api.dying PORT URL`.

Each line on its input starts one server.

A line names the point, or none; then a child of this process serves, armed to die there. It is answered with the
number of the child, and with how that ended as soon as it did. This process loads the libraries and never uses them.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from bench import fleet
from chainfolio.api import admission, changes
from chainfolio.storage.state import State, idempotency, ledger
from chainfolio.storage.state.meter import Meter

HOLD_S = 3
# In the order in which a change comes by them. COMMITTED and what comes after it: the change is made.
POINTS = (
    "before the transaction",
    "the key is claimed",
    "the credits are seen",
    "the change is made",
    "half of it is paid",
    "it is paid",
    "the answer is kept",
    "before the commit",
    "the change is committed",
    "before the answer",
)
COMMITTED = POINTS.index("the change is committed")
KEYED = ("the key is claimed", "the answer is kept")


def die() -> NoReturn:
    """Kill this process with SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody survives that")


def arm(point: str) -> None:
    """Die as soon as a change comes by a point."""
    match point:
        case "before the transaction":
            _before(changes, "_store_once")
        case "the key is claimed":
            _after(idempotency, "claim")
        case "the credits are seen":
            _after(ledger, "check_affords")
        case "the change is made":
            _before(Meter, "pay")
        case "half of it is paid":
            _after(ledger.Balance, "move")
        case "it is paid":
            _after(Meter, "pay")
        case "the answer is kept":
            _after(idempotency, "store_response")
        case "before the commit" | "the change is committed":
            _around_commit(inside=point == "before the commit")
        case "before the answer":
            _after_awaited(admission, "answer_change")
        case _:
            raise ValueError(point)


def _before(holder: Any, name: str) -> None:
    getattr(holder, name)  # a name that is gone would arm nothing
    setattr(holder, name, lambda *arguments, **named: die())


def _after(holder: Any, name: str) -> None:
    usual: Callable[..., Any] = getattr(holder, name)

    def last(*arguments: Any, **named: Any) -> NoReturn:
        usual(*arguments, **named)
        die()

    setattr(holder, name, last)


def _after_awaited(holder: Any, name: str) -> None:
    usual: Callable[..., Any] = getattr(holder, name)

    async def last(*arguments: Any, **named: Any) -> NoReturn:
        await usual(*arguments, **named)
        die()

    setattr(holder, name, last)


def _around_commit(*, inside: bool) -> None:
    """The last moment inside the transaction of a change, or the first one after it."""
    usual = State.write

    async def run(self: State, work: Callable[[Any], Any]) -> Any:
        def work_and_die(tx: Any) -> Any:
            result = work(tx)
            return die() if inside else result

        await usual(self, work_and_die)
        die()

    State.write = run  # type: ignore[method-assign]


def main(port: str, url: str) -> None:
    """One life after the other."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            if line.strip():
                arm(line.strip())
            fleet.main([port, url, "--hold", str(HOLD_S)])
            os._exit(0)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
