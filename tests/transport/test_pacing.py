"""The pace of one endpoint: learnt from refusals, shared by all readers, robust against odd clocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from chainfolio.transport.pacing import MAX_HOLD_S, Pace
from tests.transport.simulated import LimitedEndpoint, SimulatedClock, requested

PHASES = [10] * 80 + [1] * 600 + [10] * 80 + [1] * 600


@pytest.mark.parametrize("retry_after_s", [None, 1.0], ids=["no Retry-After", "Retry-After 1"])
@pytest.mark.parametrize("latency_s", [0.005, 0.05, 0.2])
@pytest.mark.parametrize("rps", [2, 5, 15, 50, 200])
async def test_at_most_one_request_in_twenty_is_refused(
    rps: int, latency_s: float, retry_after_s: float | None
) -> None:
    clock = SimulatedClock()
    endpoint = LimitedEndpoint(clock, rps, retry_after_s=retry_after_s, latency_s=latency_s)
    took_s = await requested(clock, endpoint, Pace(clock), [10] * 600)
    assert endpoint.refusals <= 0.05 * endpoint.requests
    assert took_s <= 1.25 * max(600 / rps, 600 * latency_s / 8)


async def test_the_newcomers_limit_costs_a_fifth_more_time_at_most() -> None:
    clock = SimulatedClock()
    endpoint = LimitedEndpoint(clock, 15, retry_after_s=1.0)
    took_s = await requested(clock, endpoint, Pace(clock), [10] * 250)
    assert endpoint.refusals <= 0.05 * endpoint.requests
    assert took_s <= 1.2 * 250 / 15


async def test_an_endpoint_without_a_limit_is_not_slowed() -> None:
    clock = SimulatedClock()
    endpoint = LimitedEndpoint(clock, 1e9)
    took_s = await requested(clock, endpoint, Pace(clock), [1] * 400)
    assert took_s == pytest.approx(400 / 8 * endpoint.latency_s)


async def test_calls_of_a_batch_are_counted_if_the_endpoint_counts_them() -> None:
    clock = SimulatedClock()
    endpoint = LimitedEndpoint(clock, 60, counts_calls=True, retry_after_s=1.0)
    learnt: dict[str, int] = {}
    pace = Pace(clock, on_learn=learnt.__setitem__)
    took_s = await requested(clock, endpoint, pace, PHASES)
    assert pace.counts_calls
    assert learnt["counts_calls"] == 1
    assert endpoint.refusals <= 0.1 * endpoint.requests
    assert took_s <= 1.5 * sum(PHASES) / endpoint.rps


async def test_requests_are_counted_if_the_endpoint_counts_those() -> None:
    clock = SimulatedClock()
    endpoint = LimitedEndpoint(clock, 15, retry_after_s=1.0)
    pace = Pace(clock)
    await requested(clock, endpoint, pace, PHASES)
    assert not pace.counts_calls
    assert endpoint.refusals <= 0.05 * endpoint.requests


async def test_a_learnt_limit_holds_after_a_restart() -> None:
    clock, learnt = SimulatedClock(), dict[str, int]()
    endpoint = LimitedEndpoint(clock, 15, retry_after_s=1.0)
    await requested(clock, endpoint, Pace(clock, on_learn=learnt.__setitem__), [10] * 100)
    assert 12 <= learnt["rps"] <= 18
    clock.now_s += 60
    before = endpoint.refusals
    await requested(clock, endpoint, Pace(clock, learnt=learnt), [10] * 30)
    assert endpoint.refusals == before


async def test_a_limit_that_is_lifted_is_left_behind() -> None:
    clock = SimulatedClock()
    endpoint = LimitedEndpoint(clock, 1e9)
    took_s = await requested(clock, endpoint, Pace(clock, learnt={"rps": 1}), [1] * 600)
    assert took_s < 600 / 2


async def test_one_pace_for_all_who_ask_an_endpoint() -> None:
    clock = SimulatedClock()
    endpoint, pace = LimitedEndpoint(clock, 15, retry_after_s=1.0), Pace(clock)
    await requested(clock, endpoint, pace, [1] * 600, at_once=64)
    assert endpoint.refusals <= 0.05 * endpoint.requests + 64  # those that are on their way at the first refusal


async def test_a_slow_endpoint_does_not_slow_a_fast_one() -> None:
    clock = SimulatedClock()
    slow, fast = LimitedEndpoint(clock, 1, retry_after_s=30.0), LimitedEndpoint(clock, 100)
    ends: list[float] = []

    async def of(endpoint: LimitedEndpoint, count: int) -> None:
        pace = Pace(clock)
        for _ in range(count):
            while not await _ask_once(endpoint, pace):
                pass
        ends.append(clock.now_s)

    await clock.run(of(slow, 20), of(fast, 20))
    assert ends[0] - 1_000.0 <= 20 * 0.05 + 1
    assert slow.refusals


async def _ask_once(endpoint: LimitedEndpoint, pace: Pace) -> bool:
    sent_s = await pace.turn(1)
    is_admitted = await endpoint.ask(1)
    pace.accept(sent_s, 1) if is_admitted else pace.refuse(sent_s, endpoint.retry_after_s)
    return is_admitted


async def test_refusals_for_ever_are_asked_less_and_less_often() -> None:
    clock = SimulatedClock()
    pace, sent_s = Pace(clock), list[float]()

    async def work() -> None:
        for _ in range(12):
            sent_s.append(await pace.turn(1))
            pace.refuse(sent_s[-1], None)
            clock.now_s += 0.001

    await clock.run(work())
    gaps = _gaps(sent_s)
    assert gaps == sorted(gaps)
    assert gaps[-1] == pytest.approx(MAX_HOLD_S, abs=0.01)


@pytest.mark.parametrize("back_s", [0.5, 3_600.0])
async def test_a_clock_that_steps_back_stops_nobody(back_s: float) -> None:
    clock = SimulatedClock()
    pace, sent_s = Pace(clock, learnt={"rps": 10}), list[float]()

    async def work() -> None:
        for number in range(40):
            if number == 20:
                clock.step_back(back_s)
            sent_s.append(await pace.turn(1))

    await clock.run(work())
    gaps = _gaps(sent_s)
    assert max(gaps[20:]) <= 0.2
    assert sum(gap > 0.05 for gap in gaps[20:]) >= 15, "the rate is still kept"


def _gaps(sent_s: Sequence[float]) -> list[float]:
    return [later - sooner for sooner, later in pairwise(sent_s)]


@pytest.mark.parametrize("retry_after_s", [0.0, 1.0, 45.0])
async def test_all_wait_as_long_as_the_endpoint_asks(retry_after_s: float) -> None:
    clock = SimulatedClock()
    pace = Pace(clock)
    pace.refuse(await pace.turn(1), retry_after_s)
    start_s, sent_s = clock.now_s, list[float]()

    async def work() -> None:
        sent_s.append(await pace.turn(1))

    await clock.run(work(), work(), work())
    assert min(sent_s) - start_s >= retry_after_s


async def test_a_configured_rate_is_the_upper_bound() -> None:
    clock = SimulatedClock()
    endpoint = LimitedEndpoint(clock, 1e9)
    took_s = await requested(clock, endpoint, Pace(clock, max_rps=4, learnt={"rps": 100}), [1] * 41)
    assert took_s >= 10
