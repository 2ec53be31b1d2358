"""Requests without a response are sent again after the endpoint's usual time, within limits."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from chainfolio.adapters.evm.endpoint import EvmEndpoint
from chainfolio.budgets import Budget
from chainfolio.environment import Environment
from chainfolio.errors import OverBudget, Unavailable
from chainfolio.transport import http_endpoint, metering
from chainfolio.transport.exchange import HttpResponse, NoResponse
from chainfolio.transport.http_endpoint import FEW_HEDGES, MAX_SENT
from chainfolio.transport.wire import Request

CHAIN_ID = Request("eth_chainId")


class HangingTransport:
    """A transport that answers at once, except to the requests with these numbers, which it never answers."""

    def __init__(self, *hanging: int) -> None:
        self.hanging, self.requests, self.cancelled = set(hanging), 0, 0

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        self.requests += 1
        if self.requests in self.hanging or -1 in self.hanging:
            try:
                async with asyncio.timeout(timeout_s):
                    await asyncio.Event().wait()
            except TimeoutError:
                raise NoResponse(source, timeout_s) from None
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        reply: Any = {"jsonrpc": "2.0", "id": json.loads(body)["id"], "result": "0x1"}
        return HttpResponse(200, None, json.dumps(reply).encode())

    async def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_endpoint, "LEAST_PATIENCE_S", 0.01)


def endpoint_of(transport: HangingTransport, timeout_s: float = 60) -> EvmEndpoint:
    endpoint = EvmEndpoint("http://one.test", transport, Environment(), timeout_s=timeout_s)
    endpoint.checked = True
    return endpoint


async def test_a_hung_request_is_sent_again_and_its_connection_is_ended() -> None:
    transport = HangingTransport(21)
    endpoint = endpoint_of(transport)
    for _ in range(21):
        assert await endpoint.ask_one(CHAIN_ID) == b'"0x1"'
    assert (transport.requests, transport.cancelled) == (22, 1)
    assert (endpoint.requests, endpoint.hedged) == (22, 1)
    assert not endpoint.errors.counts


async def test_a_request_is_sent_three_times_at_most() -> None:
    transport = HangingTransport(-1)
    endpoint = endpoint_of(transport, timeout_s=0.3)
    for _ in range(20):
        endpoint.health.record_read("exchange eth_chainId", 0.001)
    endpoint.checked = False
    with pytest.raises(Unavailable, match="no answer within"):
        await endpoint.ask_one(CHAIN_ID)
    assert transport.requests <= 2 * MAX_SENT
    assert transport.requests > 2


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_an_endpoint_that_is_slow_throughout_is_not_asked_twice_as_often() -> None:
    transport = HangingTransport(*range(1, 400, 2))
    endpoint = endpoint_of(transport, timeout_s=0.2)
    for _ in range(20):
        endpoint.health.record_read("exchange eth_chainId", 0.001)
    for _ in range(3 * FEW_HEDGES):
        await endpoint.ask_one(CHAIN_ID)
    assert 1 <= endpoint.hedged <= FEW_HEDGES
    assert endpoint.errors.counts["NoResponse"], "the time limit ended the others"


async def test_an_endpoint_without_samples_is_waited_for() -> None:
    transport = HangingTransport(1)
    endpoint = endpoint_of(transport, timeout_s=0.6)
    assert await endpoint.ask_one(CHAIN_ID) == b'"0x1"'
    assert endpoint.hedged == 1


async def test_a_request_that_is_sent_again_is_charged_again() -> None:
    transport = HangingTransport(21)
    endpoint, budget = endpoint_of(transport), Budget(max_requests=100)
    with metering.charge_to(budget):
        for _ in range(21):
            await endpoint.ask_one(CHAIN_ID)
    assert budget.requests == 22


async def test_without_a_budget_for_it_no_request_is_sent_again() -> None:
    transport = HangingTransport(21)
    endpoint, budget = endpoint_of(transport, timeout_s=0.2), Budget(max_requests=21)
    with metering.charge_to(budget):
        for _ in range(20):
            await endpoint.ask_one(CHAIN_ID)
        with pytest.raises((OverBudget, Unavailable)):
            await endpoint.ask_one(CHAIN_ID)
    assert transport.requests == 21


async def test_an_answer_that_comes_too_late_gives_its_memory_back() -> None:
    given_back: list[int] = []

    @dataclass
    class CountedLease:
        number: int

        def give_back(self) -> None:
            given_back.append(self.number)

    class SimultaneousTransport(HangingTransport):
        """Answers the first two tries at the same moment."""

        def __init__(self) -> None:
            super().__init__()
            self.both = asyncio.Event()

        async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
            posted = await super().post(source, url, body, timeout_s)
            number = self.requests
            if number == 2:
                self.both.set()
            await self.both.wait()
            return replace(posted, lease=cast("Any", CountedLease(number)))

    transport = SimultaneousTransport()
    assert await endpoint_of(transport, timeout_s=0.6).ask_one(CHAIN_ID) == b'"0x1"'
    assert sorted(given_back) == [1, 2]
