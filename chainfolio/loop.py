"""The event loop of our processes: uvloop where available, and fewer garbage collections."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
THRESHOLD: Final = (20_000, 20, 20)  # answers are many small things that all end together: a look at them finds nothing


def run_until_done(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in a new event loop, and restore the garbage collector's thresholds."""
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLD)
    try:
        from asyncio import Runner  # here, for it takes 30 ms, which `chainfolio --help` does without

        with Runner(loop_factory=loop_factory()) as runner:
            return runner.run(main)
    finally:
        gc.set_threshold(*before)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of uvloop's event loop; None on Windows, for the standard one."""
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
