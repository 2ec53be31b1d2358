"""The performance of wallets: its parameters, and that each day of the span is asked of the engine."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from chainfolio.api.performance import performance
from chainfolio.assets import Account
from chainfolio.errors import NotSupported
from tests.api.fakes import ALICE, BOB, FakeEngine

PATH = f"/v1/performance?addresses={ALICE}"


def test_it_needs_the_pro_plan_and_costs_one() -> None:
    assert (performance.needs, performance.cost, performance.envelope) == ("pro", 1, "historical")


async def test_the_days_and_the_currency_reach_the_engine(ask: Any, engine: FakeEngine) -> None:
    answer = await ask(f"{PATH},{BOB}&startDate=2024-02-28&endDate=2024-03-01&currency=EUR")
    assert (answer.status, (await answer.json())["currency"]) == (200, "EUR")
    days = [datetime.date(2024, 2, 28), datetime.date(2024, 2, 29), datetime.date(2024, 3, 1)]
    assert engine.calls == [("performance", ((Account("evm", ALICE), Account("evm", BOB)), days, "EUR"))]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("startDate=2024-03-01&endDate=2024-02-29", "`startDate` is after `endDate`"),
        ("startDate=2023-02-28&endDate=2024-02-29", "are 367 days: at most 366"),
        ("startDate=2024-03-01&endDate=9999-12-31", "`endDate` cannot be 9999-12-31: it is in the future"),
        ("startDate=0001-01-01&endDate=2024-03-01", "days: at most 366"),
        ("startDate=2023-02-29&endDate=2024-03-01", "Invalid date format"),
        ("startDate=2024-03-01", "`endDate` is required"),
        ("startDate=2024-03-01&endDate=2024-03-01&currency=GBP", "currency"),
    ],
)
async def test_a_span_that_cannot_be_meant_is_refused(ask: Any, engine: FakeEngine, query: str, message: str) -> None:
    answer = await ask(f"{PATH}&{query}")
    assert answer.status == 400
    assert message in (await answer.json())["message"]
    assert engine.calls == []


async def test_a_wallet_that_no_chain_can_tell_of_is_501(ask: Any, engine: FakeEngine) -> None:
    engine.failure = NotSupported("the past of it", remedy="the operator adds a chain")
    assert (await ask(f"{PATH}&startDate=2024-02-29&endDate=2024-03-01")).status == 501
