"""Work shared by concurrent callers: it runs once, and is cancelled when its last caller leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]


@dataclass(slots=True, eq=False)
class _SharedTask(Generic[T]):
    """Running work, and its number of callers; background work counts as a caller."""

    task: asyncio.Task[T]
    waiting: int = 0


class SharedWork(Generic[T]):
    """Runs work by key."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        """Create a registry without running work; `on_failure` gets each failure, as work may have no caller."""
        self._on_failure = on_failure
        self._running: dict[str, _SharedTask[T]] = {}
        self._background_count = 0

    def __contains__(self, key: str) -> bool:
        return key in self._running

    @property
    def background_count(self) -> int:
        """Return the number of pieces of background work."""
        return self._background_count

    async def results(self, requests: Iterable[tuple[str, Work[T]]]) -> list[T]:
        """Return the results of some work in order; all of it runs concurrently, and running work is joined.

        The first error is raised; work for which no other caller waits is then cancelled.
        """
        joined = [(key, self._join(key, work)) for key, work in requests]
        try:
            return [await asyncio.shield(shared.task) for _, shared in joined]
        finally:
            for key, shared in joined:
                self._leave(key, shared)

    def begin(self, key: str, work: Work[T]) -> None:
        """Start some work in the background, or join the work that runs with this key; return at once.

        It counts as background work until it ends, and is not cancelled if all callers leave.
        """
        shared = self._join(key, work)
        self._background_count += 1
        shared.task.add_done_callback(lambda _: self._end_background())

    def _end_background(self) -> None:
        self._background_count -= 1

    def _join(self, key: str, work: Work[T]) -> _SharedTask[T]:
        """Return the running work of a key, started if there is none, with one more that waits for it."""
        shared = self._running.get(key)
        if shared is None:
            shared = self._running[key] = _SharedTask(asyncio.create_task(work()))
            shared.task.add_done_callback(lambda task: self._done(key, task))
        shared.waiting += 1
        return shared

    def _leave(self, key: str, shared: _SharedTask[T]) -> None:
        shared.waiting -= 1
        if not shared.waiting and not shared.task.done():
            shared.task.cancel()
            self._forget(key, shared.task)  # a later caller starts anew

    def _done(self, key: str, task: asyncio.Task[T]) -> None:
        self._forget(key, task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)

    def _forget(self, key: str, task: asyncio.Task[T]) -> None:
        if key in self._running and self._running[key].task is task:
            del self._running[key]
