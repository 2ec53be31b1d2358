"""A cache of requests: what several readers need at about the same time is requested once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar

T = TypeVar("T")


class Memo:
    """Caches results by kind and key, up to a limit per kind. Errors are not cached."""

    def __init__(self, limits: dict[str, int]) -> None:
        self._limits = limits
        self._tasks: dict[str, OrderedDict[Hashable, asyncio.Task[Any]]] = {name: OrderedDict() for name in limits}

    async def get(self, kind: str, key: Hashable, request: Callable[[], Awaitable[T]]) -> T:
        """Return the result for a key, from `request` if it is not cached. Errors of the request are raised."""
        task = self.task(kind, key, request)
        # A caller that is cancelled must not cancel the request of the others.
        return task.result() if task.done() else await asyncio.shield(task)

    def task(self, kind: str, key: Hashable, request: Callable[[], Awaitable[T]]) -> asyncio.Task[T]:
        """Return the task of a request, started if there is none. Do not cancel it: others may wait for it.

        The oldest tasks of a kind are dropped from memory beyond its limit, and run to their end.
        """
        tasks = self._tasks[kind]
        task = tasks.get(key)
        if task is None:
            task = tasks[key] = asyncio.ensure_future(self._run(kind, key, request))
            while len(tasks) > self._limits[kind]:
                tasks.popitem(last=False)
        return task

    def has(self, kind: str, key: Hashable) -> bool:
        """Return True if a result is cached or being requested."""
        return key in self._tasks[kind]

    def drop(self, kind: str, key: Hashable) -> None:
        """Remove a result from the cache."""
        self._tasks[kind].pop(key, None)

    async def _run(self, kind: str, key: Hashable, request: Callable[[], Awaitable[T]]) -> T:
        """Run a request; if it fails or is cancelled, forget it, so that it can be repeated, and raise."""
        try:
            return await request()
        except BaseException:  # whatever ends the request, also a cancellation, gives no result to cache
            task = asyncio.current_task()
            assert task is not None
            if self._tasks[kind].get(key) is task:
                del self._tasks[kind][key]
            task.add_done_callback(_retrieve_error)
            raise

    def close(self) -> None:
        """Cancel all requests and clear the cache."""
        for tasks in self._tasks.values():
            for task in tasks.values():
                task.cancel()
            tasks.clear()


def _retrieve_error(task: asyncio.Task[object]) -> None:
    """Mark the error as retrieved: asyncio would log it if no caller waited."""
    if not task.cancelled():
        task.exception()


# Cached results by kind. A table or the rewards of a million validators take 40 MB each: of a whole network, no more of
# them are cached than two consecutive epochs need.
LIMITS: Final = {
    "block": 4096,
    "slots": 8,
    "validators": 6,
    "balances": 4,
    "attestations": 6,
    "reconciliation": 4,
    "committee": 8,
    "duties": 64,
    "seat_reward": 64,
}
WHOLE_LIMITS: Final = {**LIMITS, "validators": 4, "balances": 2, "attestations": 2, "reconciliation": 3}
LARGE_SELECTION: Final = 20_000  # validators: spans of more are read as few at once as those of a whole network
MIN_CACHED_EPOCHS: Final = 16  # that two spans of selected validators read at once


def memo_limits(epochs: int) -> dict[str, int]:
    """Return the limits for selected validators, with a number of epochs that are read at once."""
    return LIMITS | dict.fromkeys(("slots", "validators", "attestations", "reconciliation"), epochs)
