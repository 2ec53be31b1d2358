"""Simulated time for waiting tasks, and a simulated endpoint with a rate limit."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Coroutine, Sequence
from typing import Any

from chainfolio.transport.pacing import Pace

TURNS = 30  # of the event loop, in which every task that can go on does


class SimulatedClock:
    """Time that passes while every task waits."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now_us(self) -> int:
        return int(self.now_s * 1_000_000)

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self._count += 1
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (self.now_s + seconds, self._count, woken))
        await woken

    def step_back(self, seconds: float) -> None:
        """Set the time back; who waits goes on waiting for as long as before."""
        self.now_s -= seconds
        self._waiting = [(until_s - seconds, count, woken) for until_s, count, woken in self._waiting]

    async def run(self, *work: Coroutine[Any, Any, Any]) -> None:
        """Let time pass until all of this work is done."""
        tasks = [asyncio.ensure_future(each) for each in work]
        while not all(each.done() for each in tasks):
            for _ in range(TURNS):
                await asyncio.sleep(0)
            if self._waiting and not all(each.done() for each in tasks):
                until_s, _, woken = heapq.heappop(self._waiting)
                self.now_s = max(self.now_s, until_s)
                if not woken.done():
                    woken.set_result(None)
        for each in tasks:
            each.result()


class LimitedEndpoint:
    """An endpoint with a bucket of `burst` requests or calls that fills with `rps` per second.

    `latency_s` is the time of a round trip.
    """

    def __init__(
        self,
        clock: SimulatedClock,
        rps: float,
        *,
        burst: float | None = None,
        counts_calls: bool = False,
        retry_after_s: float | None = None,
        latency_s: float = 0.05,
    ) -> None:
        self.clock, self.rps, self.burst = clock, rps, rps if burst is None else burst
        self.counts_calls, self.retry_after_s, self.latency_s = counts_calls, retry_after_s, latency_s
        self.requests = self.refusals = 0
        self._credit, self._then_s = self.burst, clock.now_s

    async def ask(self, calls: int) -> bool:
        """One round trip; False if it was refused."""
        await self.clock.sleep(self.latency_s / 2)
        self.requests += 1
        passed_s = max(0.0, self.clock.now_s - self._then_s)
        self._credit, self._then_s = min(self.burst, self._credit + passed_s * self.rps), self.clock.now_s
        cost = calls if self.counts_calls else 1
        is_admitted = self._credit >= cost
        if is_admitted:
            self._credit -= cost
        else:
            self.refusals += 1
        await self.clock.sleep(self.latency_s / 2)
        return is_admitted


async def requested(
    clock: SimulatedClock, endpoint: LimitedEndpoint, pace: Pace, batches: Sequence[int], *, at_once: int = 8
) -> float:
    """Send batches as an endpoint does, each until it is admitted; return the simulated seconds."""
    pending, start_s = list(reversed(batches)), clock.now_s

    async def worker() -> None:
        while pending:
            calls = pending.pop()
            for _ in range(100):
                sent_s = await pace.turn(calls)
                if await endpoint.ask(calls):
                    pace.accept(sent_s, calls)
                    break
                pace.refuse(sent_s, endpoint.retry_after_s)
            else:
                raise AssertionError("refused a hundred times")

    await clock.run(*(worker() for _ in range(at_once)))
    return clock.now_s - start_s
