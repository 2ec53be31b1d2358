"""Work shared by several callers: done once, and cancelled when no caller waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from chainfolio.engine.shared_work import SharedWork


class Desk:
    """Work that ends when `done` is set; it counts its starts and cancellations."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        self.began, self.cancelled, self.done = 0, 0, asyncio.Event()
        self.shared: SharedWork[int] = SharedWork(lambda error: self.noted.append(str(error)))

    async def work(self) -> int:
        self.began += 1
        try:
            await self.done.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.began

    def caller(self, key: str = "a") -> asyncio.Task[list[int]]:
        return asyncio.create_task(self.shared.results([(key, self.work)]))


async def let_tasks_run(*waiting: Awaitable[object]) -> None:
    await asyncio.gather(*waiting, return_exceptions=True)
    for _ in range(3):
        await asyncio.sleep(0)


async def test_who_asks_while_it_runs_shares_it() -> None:
    desk = Desk()
    callers = [desk.caller() for _ in range(3)]
    await let_tasks_run()
    desk.done.set()
    assert await asyncio.gather(*callers) == [[1]] * 3
    assert "a" not in desk.shared


async def test_it_ends_with_the_last_one_who_waits_and_is_begun_anew_for_the_next() -> None:
    desk = Desk()
    callers = [desk.caller() for _ in range(2)]
    await let_tasks_run()
    callers[0].cancel()
    await let_tasks_run(callers[0])
    assert (desk.began, desk.cancelled) == (1, 0)
    callers[1].cancel()
    another = desk.caller()
    await let_tasks_run(callers[1])
    assert (desk.began, desk.cancelled) == (2, 1)
    desk.done.set()
    assert await another == [2]


async def test_what_was_begun_for_later_is_not_cancelled_and_is_counted() -> None:
    desk = Desk()
    desk.shared.begin("a", desk.work)
    caller = desk.caller()
    await let_tasks_run()
    caller.cancel()
    await let_tasks_run(caller)
    assert (desk.cancelled, desk.shared.background_count) == (0, 1)
    desk.done.set()
    await let_tasks_run()
    await let_tasks_run()
    assert (desk.shared.background_count, "a" in desk.shared) == (0, False)


async def test_a_failure_is_noted_and_told_to_who_waits_and_lets_go_of_the_rest() -> None:
    desk = Desk()

    async def failing() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await desk.shared.results([("b", failing), ("a", desk.work)])
    await let_tasks_run()
    assert (desk.noted, desk.cancelled) == (["no"], 1)
