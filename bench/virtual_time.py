"""An event loop in virtual time: it never waits, and each wait advances its time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class _Selector(selectors.SelectSelector):
    """Advances the virtual time by each wait, and does not wait."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "everything waits for something that never comes"
        self.now_s += max(timeout, 0.0)
        return super().select(0)


class InlineThreads(ThreadPoolExecutor):
    """Runs the work of threads at once, so that the virtual time stands still meanwhile."""

    def submit(self, work: Callable[..., object], /, *arguments: object, **options: object) -> Future[Any]:
        """Run the work, and return a future that has its result or its error."""
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments, **options))
        except BaseException as error:  # the code that awaits the future gets it
            future.set_exception(error)
        return future


def virtual_loop() -> asyncio.SelectorEventLoop:
    """Return a loop in virtual time. Work for threads runs inline. The caller closes it."""
    selector = _Selector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now_s  # type: ignore[method-assign]
    loop.set_default_executor(InlineThreads())
    return loop
