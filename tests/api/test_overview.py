"""The token overview: its parameters, and that it shows what the engine knows of a day."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from chainfolio.api.overview import token_overview
from chainfolio.assets import SHOWN_NATIVE, Account
from chainfolio.errors import NotFound
from chainfolio.portfolio.document import Portfolio
from tests.api.fakes import ALICE, BOB, FakeEngine, a_portfolio
from tests.portfolio.test_overview import ETHER, ether_portfolio

PATH = f"/v1/token-overview?addresses={ALICE}"


def test_it_needs_the_pro_plan_and_costs_one() -> None:
    assert (token_overview.needs, token_overview.cost, token_overview.envelope) == ("pro", 1, "historical")


@pytest.mark.parametrize("day", ["2026-03-01", "2024-02-29", "0001-01-01"])
async def test_the_day_reaches_the_engine(ask: Any, engine: FakeEngine, day: str) -> None:
    answer = await ask(f"{PATH},{BOB}&date={day}")
    assert (answer.status, await answer.json(), answer.headers["X-Completeness"]) == (200, [], "complete")
    accounts = Account("evm", ALICE), Account("evm", BOB)
    assert engine.calls == [("historical", (accounts, datetime.date.fromisoformat(day)))]


async def test_rows_that_may_lack_something_say_so(
    ask: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def historical(*_: object) -> list[Portfolio]:
        return [a_portfolio(ALICE), msgspec.structs.replace(a_portfolio(BOB), completeness="partial")]

    monkeypatch.setattr(engine, "historical", historical)
    answer = await ask(f"{PATH}&date=2026-03-01")
    assert (answer.status, answer.headers["X-Completeness"]) == (200, "partial")


async def test_pictures_are_those_of_now(ask: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def historical(*_: object) -> list[Portfolio]:
        return [ether_portfolio(("ethereum", ETHER, "2000"))]  # as it was kept, without pictures

    monkeypatch.setattr(engine, "historical", historical)
    engine.images[f"ethereum:{SHOWN_NATIVE}"] = "https://images.example/now.svg"
    (row,) = await (await ask(f"{PATH}&date=2026-03-01")).json()
    assert row["image"] == "https://images.example/now.svg"


@pytest.mark.parametrize(
    "day",
    [
        "2024-02-30",
        "2023-02-29",
        "2024-13-01",
        "2024-00-10",
        "2024-01-00",
        "0000-01-01",
        "2024-1-1",
        "20240101",
        "",
        "2024-01-01T00:00:00Z",
        "2024-01-01Z",
        "2024-01-01%2B00:00",
        "%202024-01-01",
        "2024-01-01%0A",
        "2024-W01-1",
        "2024/01/01",
        "01-01-2024",
        "today",
        "２０２４-01-01",
        "٢٠٢٤-01-01",
        "12024-01-01",
        "-2024-01-01",
        "2024-001",
    ],
)
async def test_a_day_is_written_in_one_way(ask: Any, engine: FakeEngine, day: str) -> None:
    answer = await ask(f"{PATH}&date={day}")
    body = await answer.json()
    assert (answer.status, body["error"]) == (400, "Validation Failed")
    assert body["message"].endswith("Invalid date format. Use YYYY-MM-DD")
    assert [field_error["path"] for field_error in body["details"]["query"]] == [["date"]]
    assert engine.calls == []


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (f"addresses={ALICE}", "`date` is required"),
        ("date=2026-03-01", "`addresses` is required"),
        (f"addresses={ALICE}&date=2026-03-01&date=2026-03-01", "`date` is given more than once"),
        (f"addresses={ALICE}&date=2026-03-01&start_date=2026-03-01", "unknown parameter 'start_date'"),
    ],
)
async def test_both_parameters_are_required_once(ask: Any, query: str, message: str) -> None:
    answer = await ask(f"/v1/token-overview?{query}")
    assert answer.status == 400
    assert message in (await answer.json())["message"]


async def test_a_day_without_a_snapshot_is_404(ask: Any, engine: FakeEngine) -> None:
    engine.failure = NotFound("No snapshot available for this date")
    answer = await ask(f"{PATH}&date=2026-03-01")
    expected = {"error": "Not Found", "message": "No snapshot available for this date"}
    assert (answer.status, await answer.json()) == (404, expected)


async def test_the_date_is_described(ask: Any) -> None:
    described = await (await ask("/openapi.json")).json()
    parameters = {each["name"]: each for each in described["paths"]["/v1/token-overview"]["get"]["parameters"]}
    assert parameters["date"]["required"]
    assert parameters["date"]["schema"]["format"] == "date"
