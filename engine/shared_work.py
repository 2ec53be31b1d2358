"""Work that several callers share: it is done once while they wait, and cancelled when nobody waits any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]


@dataclass(slots=True, eq=False)
class _Shared(Generic[T]):
    """Work that runs, and how many callers wait for it; whoever began it for later waits like a caller."""

    task: asyncio.Task[T]
    waiting: int = 0


class SharedWork(Generic[T]):
    """Work by key. `noted` is told of failures, for nobody may be waiting for them."""

    def __init__(self, noted: Callable[[BaseException], None]) -> None:
        self._noted = noted
        self._running: dict[str, _Shared[T]] = {}
        self._later = 0

    def __contains__(self, key: str) -> bool:
        return key in self._running

    @property
    def later(self) -> int:
        """How many pieces of work run for later."""
        return self._later

    async def results(self, wanted: Iterable[tuple[str, Work[T]]]) -> list[T]:
        """What some work gives, in its order. All of it runs at the same time; what already runs is waited for."""
        held = [(key, self._held(key, work)) for key, work in wanted]
        try:
            return [await asyncio.shield(shared.task) for _, shared in held]
        finally:
            for key, shared in held:
                self._let_go(key, shared)

    def begin(self, key: str, work: Work[T]) -> None:
        """Do some work for later: it is not cancelled, though nobody waits for it."""
        shared = self._held(key, work)
        self._later += 1
        shared.task.add_done_callback(lambda _: self._done_later())

    def _done_later(self) -> None:
        self._later -= 1

    def _held(self, key: str, work: Work[T]) -> _Shared[T]:
        shared = self._running.get(key)
        if shared is None:
            shared = self._running[key] = _Shared(asyncio.create_task(work()))
            shared.task.add_done_callback(lambda task: self._done(key, task))
        shared.waiting += 1
        return shared

    def _let_go(self, key: str, shared: _Shared[T]) -> None:
        shared.waiting -= 1
        if not shared.waiting and not shared.task.done():
            shared.task.cancel()
            self._forget(key, shared.task)  # whoever comes now begins anew

    def _done(self, key: str, task: asyncio.Task[T]) -> None:
        self._forget(key, task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._noted(error)

    def _forget(self, key: str, task: asyncio.Task[T]) -> None:
        if key in self._running and self._running[key].task is task:
            del self._running[key]
