"""What several readers want at about the same time is asked of the node once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Memo:
    """Answers by their keys, at most so many of each kind; an error is forgotten at once."""

    def __init__(self, limits: dict[str, int]) -> None:
        self._limits = limits
        self._kept: dict[str, OrderedDict[Any, asyncio.Task[Any]]] = {name: OrderedDict() for name in limits}

    async def get(self, kind: str, key: Any, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer to a key, asked now where nobody did before."""
        task = self.asked(kind, key, ask)
        # Whoever is cancelled leaves the others their answer.
        return task.result() if task.done() else await asyncio.shield(task)

    def asked(self, kind: str, key: Any, ask: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """The same as it is on its way: whoever waits for it must not cancel it, for others may wait, too."""
        kept = self._kept[kind]
        task = kept.get(key)
        if task is None:
            task = kept[key] = asyncio.ensure_future(self._answered(kind, key, ask))
            while len(kept) > self._limits[kind]:
                kept.popitem(last=False)
        return task

    def has(self, kind: str, key: Any) -> bool:
        """Whether it was asked for, and did not fail so far."""
        return key in self._kept[kind]

    def drop(self, kind: str, key: Any) -> None:
        """Keep an answer no longer: nobody will ask for it again."""
        self._kept[kind].pop(key, None)

    async def _answered(self, kind: str, key: Any, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            return await ask()
        except BaseException:  # whatever ends it, a cancellation too, it is no answer
            task = asyncio.current_task()
            assert task is not None
            if self._kept[kind].get(key) is task:
                del self._kept[kind][key]
            task.add_done_callback(_looked_at)
            raise

    def close(self) -> None:
        """Ask for nothing any more."""
        for kept in self._kept.values():
            for task in kept.values():
                task.cancel()
            kept.clear()


def _looked_at(task: asyncio.Task[Any]) -> None:
    """Whoever waited for it has its error, and nobody need have waited."""
    if not task.cancelled():
        task.exception()
