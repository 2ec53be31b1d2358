"""Which endpoint is asked first, when a second one is asked, and what is shown of each."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from chainfolio.adapters.evm.node import SURVEY_S
from chainfolio.chain_results import EndpointHealth
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, HistoryUnavailable, SourceError, Unavailable
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.health import HEDGE_LEAST_S, HEDGE_SAMPLES, LAG_BLOCKS, MIN_EXCHANGES, Health
from tests.evm.fakes import FakeChain, FakeNode, Wired, wired


def names(pool: Wired) -> list[str]:
    return [endpoint.name for endpoint in pool.node.ranked()]


def three() -> Wired:
    chain = FakeChain(20)
    return wired(*(FakeNode(chain) for _ in range(3)), checked=True)


def test_equals_stay_in_the_order_of_the_settings() -> None:
    assert names(three()) == ["one.test", "two.test", "three.test"]


@pytest.mark.parametrize(("lag", "first"), [(LAG_BLOCKS, "one.test"), (LAG_BLOCKS + 1, "two.test")])
def test_who_lags_is_asked_last(lag: int, first: str) -> None:
    all_three = three()
    for endpoint, height in zip(all_three.node.endpoints, (100 - lag, 100, 100), strict=True):
        endpoint.health.height = height
    assert names(all_three)[0] == first
    assert set(names(all_three)) == {"one.test", "two.test", "three.test"}


def test_who_fails_more_often_than_not_is_asked_last_until_it_does_not() -> None:
    all_three = three()
    health = all_three.node.endpoints[0].health
    for _ in range(MIN_EXCHANGES):
        health.record_failure()
    assert names(all_three)[-1] == "one.test"
    for _ in range(MIN_EXCHANGES):
        health.record_exchange(0.01)
    assert names(all_three)[0] == "one.test"


@pytest.mark.parametrize(("latency_s", "first"), [(0.24, "one.test"), (0.9, "two.test")])
def test_who_is_much_slower_is_asked_last(latency_s: float, first: str) -> None:
    all_three = three()
    for endpoint, each_s in zip(all_three.node.endpoints, (latency_s, 0.01, 0.02), strict=True):
        endpoint.health.record_exchange(each_s)
    assert names(all_three)[0] == first


def test_latency_is_an_average_that_forgets() -> None:
    health = Health()
    for _ in range(50):
        health.record_exchange(1.0)
    for _ in range(50):
        health.record_exchange(0.1)
    assert health.latency_s == pytest.approx(0.1, rel=0.01)


async def test_every_endpoint_is_looked_at_now_and_then() -> None:
    chain, late = FakeChain(20), FakeChain(3)
    late.headers[0] = chain.headers[0]
    two = wired(FakeNode(chain), FakeNode(late))
    await two.node.connect()
    assert [endpoint.health.height for endpoint in two.node.endpoints] == [20, 3]
    request_count = len(two.transport.order)
    await two.node.connect()
    assert two.transport.order[request_count:] == ["one.test"]
    two.clock.now_s += SURVEY_S
    await two.node.connect()
    assert two.transport.order[request_count + 1 :] == ["one.test", "one.test", "two.test"]


async def test_what_is_known_is_told_and_what_is_not_is_none() -> None:
    url = "http://one.test/v2/s3cr3t0123456789"
    pool = wired(FakeNode(FakeChain(20)), urls=[url])
    await pool.node.connect()
    health, best = pool.endpoint.health, pool.node.best_height
    assert (health.height, health.lag_blocks(best), pool.endpoint.health_report(best).latency_ms, health.faults) == (
        20,
        0,
        0,
        0,
    )
    assert (pool.endpoint.name, Health().lag_blocks(best), EndpointHealth("one").latency_ms) == ("one.test", None, None)
    pool.node.quarantine(pool.endpoint, "a", "b", "c")
    assert health.evidence is None, "the last one is never quarantined"


# --- hedging ---------------------------------------------------------------------------------------------------------


@dataclass
class Stepped:
    """A clock that advances only for its sleepers, in the order of their wake-up times."""

    now_s: float = 0.0
    waiting: list[tuple[float, int, asyncio.Future[None]]] = field(default_factory=list)

    def now_us(self) -> int:
        return int(self.now_s * 1_000_000)

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        due: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((self.now_s + seconds, len(self.waiting), due))
        await due

    async def run(self, task: asyncio.Task[Any]) -> Any:
        """Let time pass until a task is done."""
        while not task.done():
            for _ in range(20):
                await asyncio.sleep(0)
            if not task.done():
                self.waiting = [entry for entry in self.waiting if not entry[2].done()]
                self.now_s, _, due = self.waiting.pop(self.waiting.index(min(self.waiting)))
                due.set_result(None)
        return task.result()


Times = Callable[[str], float]


class Timed:
    """Reads that take a given time at each endpoint."""

    def __init__(self, **takes_s: float) -> None:
        self.clock = Stepped()
        self.takes_s: dict[str, float] = dict(takes_s)
        self.fails: dict[str, Exception] = {}
        self.asked: list[str] = []
        pool = wired(*(FakeNode(FakeChain(1)) for _ in takes_s), checked=True)
        self.node = pool.node
        self.node.environment = Environment(clock=self.clock, random=random.Random(3))

    async def read(self, endpoint: Endpoint) -> str:
        self.asked.append(endpoint.name)
        await self.clock.sleep(self.takes_s[endpoint.name.removesuffix(".test")])
        if endpoint.name in self.fails:
            raise self.fails[endpoint.name]
        return endpoint.name

    async def read_once(self) -> str:
        return str(await self.clock.run(asyncio.ensure_future(self.node.with_any(self.read, kind="state"))))

    async def warm(self) -> None:
        for _ in range(HEDGE_SAMPLES):
            await self.read_once()
        self.asked.clear()


async def test_a_read_that_takes_unusually_long_is_asked_of_another_and_the_first_answer_wins() -> None:
    timed = Timed(one=0.1, two=0.02)
    await timed.warm()
    timed.takes_s["one"] = 30.0
    start_s = timed.clock.now_s
    assert await timed.read_once() == "two.test"
    assert timed.asked == ["one.test", "two.test"]
    assert timed.clock.now_s - start_s == pytest.approx(0.12, rel=0.15)
    assert timed.node.hedged == 1


async def test_a_usual_read_is_asked_of_one() -> None:
    timed = Timed(one=0.1, two=0.02)
    await timed.warm()
    assert await timed.read_once() == "one.test"
    assert timed.asked == ["one.test"]


async def test_nobody_is_impatient_before_enough_was_seen() -> None:
    timed = Timed(one=0.1, two=0.02)
    timed.takes_s["one"] = 30.0
    assert await timed.read_once() == "one.test"
    assert timed.node.hedged == 0


async def test_patience_has_a_least() -> None:
    timed = Timed(one=0.0001, two=0.0001)
    await timed.warm()
    patience_s = timed.node.endpoints[0].health.patience_s("state")
    assert patience_s == HEDGE_LEAST_S
    assert timed.node.endpoints[0].health.patience_s("logs") is None


async def test_the_one_that_was_too_slow_wins_where_the_other_fails() -> None:
    timed = Timed(one=0.1, two=0.01)
    await timed.warm()
    timed.takes_s["one"], timed.fails["two.test"] = 0.3, Unavailable("two.test", "is on fire")
    assert await timed.read_once() == "one.test"
    timed.fails["one.test"] = BadAnswer("one.test", "is on fire, too")
    with pytest.raises(SourceError, match="on fire"):
        await timed.read_once()


@pytest.mark.parametrize("is_refused_first", [True, False])
async def test_a_refusal_does_not_hide_the_timeout_of_the_other_of_two_reads_at_once(is_refused_first: bool) -> None:
    timed = Timed(one=0.1, two=0.01)
    await timed.warm()
    timed.takes_s["one"] = 0.3 if is_refused_first else 0.19
    timed.takes_s["two"] = 0.01 if is_refused_first else 0.3
    timed.fails["one.test"] = Unavailable("one.test", "no answer within 60 s")
    timed.fails["two.test"] = HistoryUnavailable("two.test", 1, "missing trie node")
    with pytest.raises(Unavailable, match="no answer"):
        await timed.read_once()
    assert timed.node.hedged == 1


async def test_who_is_always_overtaken_is_no_longer_asked_first() -> None:
    timed = Timed(one=0.1, two=0.01)
    await timed.warm()
    timed.node.endpoints[1].health.record_exchange(0.01)
    timed.takes_s["one"] = 30.0
    for _ in range(60):
        await timed.read_once()
    timed.asked.clear()
    await timed.read_once()
    assert timed.asked == ["two.test"]


async def test_hedging_can_be_switched_off() -> None:
    timed = Timed(one=0.1, two=0.01)
    timed.node.hedge = False
    await timed.warm()
    timed.takes_s["one"] = 30.0
    assert await timed.read_once() == "one.test"
