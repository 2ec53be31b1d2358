"""Rate of requests to one endpoint: a token bucket that adapts to the endpoint's refusals.

Without a refusal there is no limit. A refusal sets the rate to what the endpoint accepted lately. While requests wait
for it, the rate rises again, slowly at first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from chainfolio.environment import Clock

# Floats: seconds, rates and ratios of requests; nothing of a chain.
BURST_S: Final = 0.5  # seconds whose requests may be sent at once after a rest, by a learnt rate
REST_S: Final = 1.0  # after so many seconds without a request an endpoint has its full allowance again
BACK_OFF: Final = 0.95  # of the rate that was accepted before a refusal, or of the rate before
GUESS_RPS, FEW = 5.0, 5  # the first rate if fewer requests than that were accepted before the first refusal
GUESSING: Final = 0.1  # growth with each request that waits, until a guess is refused
GROWTH: Final = ((100, 0.0005), (200, 0.01), (10**9, 0.05))  # the same after so many requests since a refusal
STEADY, STEADY_CUT, CUT = 50, 0.9, 0.5  # the minimum part of a rate that stays after so many requests, and after fewer
GUESS_CUT: Final = 0.75  # the same of a rate that rose from a guess
FIRST_HOLD_S, MAX_HOLD_S = 0.1, 20.0  # seconds without any request after refusals in a row that name no time
MEASURED: Final = 3  # refusals by which requests and calls are compared
CLEARLY: Final = 1.2
RATE, COUNTS_CALLS = "rps", "counts_calls"  # names of the stored facts of an endpoint


class Pace:
    """The turns of all requests to one endpoint.

    Args:
        clock: Measures and waits.
        max_rps: Upper bound of the rate, kept without bursts; 0 for none.
        learnt: Facts that an earlier process stored: `rps`, and `counts_calls` as 0 or 1.
        on_learn: Called with the name and value of each such fact.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        max_rps: float = 0,
        learnt: Mapping[str, int] | None = None,
        on_learn: Callable[[str, int], None] = lambda name, value: None,
    ) -> None:
        """Begin with the learnt rate, or without a limit.

        Args:
            clock: Its monotonic time is used.
            max_rps: Requests in a second that the settings allow; 0: no limit.
            learnt: A rate and its unit that an earlier process learnt.
            on_learn: Called with name and value of what is learnt.
        """
        learnt = learnt or {}
        self.max_rps = max_rps
        self.rate: float | None = learnt.get(RATE) or None  # requests or calls in a second; None: no limit is known
        self.counts_calls = bool(learnt.get(COUNTS_CALLS))
        self._clock, self._on_learn = clock, on_learn
        self._turn = asyncio.Lock()
        self._last_s = clock.monotonic_s()
        self._full_s = self._hold_s = self._since_s = self._sent_s = self._last_s
        self._refused_s = self._last_s - REST_S
        self._requests = self._calls = self._in_a_row = 0
        self._waited = GROWTH[0][0]  # requests that waited since a refusal; a remembered rate may be out of date
        self._is_guess = False
        self._first_lasted_s = 0.0  # how long requests were accepted before the first refusal; 0 after the second
        self._burst = 0.0 if max_rps else BURST_S
        self._is_fresh = True
        self._measured: deque[tuple[float, float]] = deque(maxlen=MEASURED)

    async def turn(self, calls: int) -> float:
        """Wait until a request of so many calls may be sent, and return that time (monotonic seconds)."""
        async with self._turn:
            is_late = False
            while (wait_s := self._start_s(now_s := self._now_s()) - now_s) > 0:
                is_late = now_s >= self._hold_s
                await self._clock.sleep(wait_s)
            if is_late:
                self._grow()
            if now_s - self._sent_s > REST_S and now_s - self._refused_s > REST_S:
                self._measure_from(now_s, is_fresh=True)
            if rate := self.bound:
                cost = calls if self.counts_calls and self.rate is not None else 1
                self._full_s = max(now_s, self._full_s) + cost / rate
            self._sent_s = now_s
            return now_s

    def accept(self, sent_s: float, calls: int) -> None:
        """Count a request of so many calls, sent at `sent_s`, that was not refused for its rate."""
        self._in_a_row = 0
        if sent_s > self._refused_s:
            self._requests += 1
            self._calls += calls
        elif self._first_lasted_s and self.rate is not None:  # it was on its way when the first one was refused
            self._set(self.rate + BACK_OFF * (calls if self.counts_calls else 1) / self._first_lasted_s)

    def refuse(self, sent_s: float, retry_after_s: float | None) -> None:
        """Lower the rate after a refused request, and delay all requests as long as the endpoint asks.

        Requests that were on their way when the rate was lowered do not lower it further.

        Args:
            sent_s: When the refused request was sent (monotonic seconds).
            retry_after_s: The wait that the endpoint asks for; None for an exponential one.
        """
        now_s = self._now_s()
        if sent_s > self._refused_s:
            self._lower(now_s)
            self._in_a_row += 1
            self._refused_s = now_s
            self._measure_from(now_s, is_fresh=False)
            if retry_after_s is None:
                retry_after_s = min(MAX_HOLD_S, FIRST_HOLD_S * 2.0 ** min(self._in_a_row, 16))
        self.hold(retry_after_s or 0.0)
        self._full_s = max(self._full_s, self._hold_s + self._burst_s)  # its allowance is used up

    def hold(self, seconds: float) -> None:
        """Send nothing for so many seconds."""
        self._hold_s = max(self._hold_s, self._now_s() + seconds)

    @property
    def _burst_s(self) -> float:
        return self._burst if self.rate is not None else 0.0

    @property
    def bound(self) -> float:
        """The current rate in requests or calls per second; 0 if no limit is known."""
        return min(self.rate or self.max_rps, self.max_rps or self.rate or 0.0)

    def _start_s(self, now_s: float) -> float:
        return max(now_s, self._hold_s, self._full_s - self._burst_s)

    def _now_s(self) -> float:
        """Return the time; if the clock steps back, shift all times of this object with it."""
        now_s = self._clock.monotonic_s()
        if now_s < self._last_s:
            back_s = self._last_s - now_s
            self._full_s, self._hold_s, self._since_s = (
                each - back_s for each in (self._full_s, self._hold_s, self._since_s)
            )
            self._sent_s, self._refused_s = self._sent_s - back_s, self._refused_s - back_s
        self._last_s = now_s
        return now_s

    def _grow(self) -> None:
        """Raise the rate after a request that waited for it."""
        self._waited += 1
        if self.rate is not None:
            slow = next(growth for max_waited, growth in GROWTH if self._waited <= max_waited)
            self.rate *= 1 + (GUESSING if self._is_guess else slow)

    def _measure_from(self, now_s: float, *, is_fresh: bool) -> None:
        """Count what is accepted anew. `is_fresh`: the endpoint has its full allowance."""
        self._since_s, self._requests, self._calls, self._is_fresh = now_s, 0, 0, is_fresh

    def _lower(self, now_s: float) -> None:
        """Set the rate by what was accepted since the last refusal, or since a rest."""
        if self.rate is not None and self._is_fresh and self._requests < BURST_S * self.rate:
            self._burst = 0.0  # it takes nothing at once
        self._waited = 0
        if not self._requests:  # others use the allowance, or it has ended for long: no measure of the rate
            if self.rate is not None:
                self._set(self.rate * CUT)
            return
        lasted_s = max(now_s - self._since_s, REST_S if self._is_fresh else 0.01)
        by_requests, by_calls = self._requests / lasted_s, self._calls / lasted_s
        self._measured.append((by_requests, by_calls))
        is_new = self._choose_unit() or self.rate is None
        self._first_lasted_s = lasted_s if self.rate is None else 0.0
        accepted = BACK_OFF * (by_calls if self.counts_calls else by_requests)
        if is_new or self.rate is None:
            self._is_guess = self._requests < FEW
            accepted = max(accepted, GUESS_RPS) if self._is_guess else accepted
        else:
            min_part = STEADY_CUT if self._requests >= STEADY else GUESS_CUT if self._is_guess else CUT
            self._is_guess = False
            accepted = min(max(accepted, min_part * self.rate), BACK_OFF * self.rate)
        self._set(accepted)

    def _set(self, rate: float) -> None:
        self.rate = rate
        self._on_learn(RATE, max(1, round(rate)))

    def _choose_unit(self) -> bool:
        """Choose calls or requests, whichever varies less from refusal to refusal; True if the choice changed."""
        if len(self._measured) < 2:
            return False
        requests, calls = (max(each) / max(min(each), 1e-9) for each in zip(*self._measured, strict=True))
        counts_calls = calls * CLEARLY < requests or (self.counts_calls and not requests * CLEARLY < calls)
        if counts_calls == self.counts_calls:
            return False
        self.counts_calls = counts_calls
        self._on_learn(COUNTS_CALLS, int(counts_calls))
        return True
