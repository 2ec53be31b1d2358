"""The performance of a wallet that is paid every day, from a server and as the charts of its documentation page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest

from chainfolio.amounts import EXACT, total
from chainfolio.engine.history.day_blocks import days_from
from tests.e2e.browser import PROGRAM, browsing
from tests.e2e.conftest import Server, Serving, World, paid_daily

pytestmark = pytest.mark.node
FIRST, LAST = date(2024, 2, 26), date(2024, 3, 2)
DAYS: Final = [str(day) for day in days_from(FIRST, LAST)]
PATH: Final = "/v1/performance?addresses={}&startDate={}&endDate={}"
BOX: Final = "document.getElementById('op-performance')"
# Points of each line, the number of dots, and the text of the other chart; some days are not known.
GAPS: Final = """(() => {
  const days = [["2024-01-01", "10"], ["2024-01-02", "12"], ["2024-01-03", "N/A"], ["2024-01-04", "11"],
                ["2024-01-08", "9"], ["2024-01-09", "9.5"]];
  const said = { currency: "USD", days: days.map(([day, value]) => ({ day, value, growth: "N/A" })) };
  const [worth, growth] = charts(JSON.stringify(said));
  return [[...worth.querySelectorAll("polyline")].map(line => line.getAttribute("points").split(" ").length),
          worth.querySelectorAll(".dot").length, growth.textContent]; })()"""
# What of an answer stands out of its box.
OUTSIDE: Final = f"""[...{BOX}.querySelectorAll('.result, .result *')]
  .filter(each => each.getBoundingClientRect().right > {BOX}.getBoundingClientRect().right + 1)
  .map(each => each.tagName + " " + each.textContent.slice(0, 40))"""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """A chain that lives through some days, 29 February among them; Alice pays Carol every day."""
    with paid_daily(days_from(FIRST, LAST)) as paid_world:
        yield paid_world


async def subscribed(server: Server, world: World) -> str:
    """Carol, of whose past the caller may know."""
    carol = world.wallets["carol"]
    headers = {"Authorization": f"Bearer {server.key}", "Idempotency-Key": "once"}
    body = {"addresses": [{"address": carol}]}
    async with server.client.post(f"{server.url}/v1/subscribe-snapshot", json=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
    return carol


async def test_the_days_of_a_performance_are_those_of_the_past_and_what_was_paid_in_is_no_gain(
    world: World, serving: Serving
) -> None:
    async with serving(world) as server:
        await server.at(world.node.height)
        carol = await subscribed(server, world)
        path = PATH.format(carol, FIRST, LAST)
        performance: dict[str, Any] = await server.json(path)
        assert [day["day"] for day in performance["days"]] == DAYS
        for day in performance["days"]:
            (past,) = await server.json(f"/v1/historical?addresses={carol}&date={day['day']}")
            assert day["value"] == past["networth"]
        payments = [Decimal(flow["value"]) for flow in performance["flows"]]
        assert len(payments) == len(DAYS) - 1
        assert total(payments) == Decimal(performance["netFlows"]) > 0
        change = EXACT.subtract(Decimal(performance["endValue"]), Decimal(performance["startValue"]))
        assert Decimal(performance["gain"]) == EXACT.subtract(change, total(payments))
        assert performance["timeWeightedReturn"] != "N/A", performance["reasons"]
        assert await server.json(path) == performance


@pytest.mark.slow("a browser draws the days that the other test compares")
@pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium here")
async def test_the_page_draws_each_day_of_the_answer_and_a_day_that_is_not_known_is_a_gap(
    world: World, serving: Serving, tmp_path: Path
) -> None:
    async with serving(world) as server, browsing(tmp_path / "profile") as page:
        await server.at(world.node.height)
        carol = await subscribed(server, world)
        await page.do("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
        await page.open(f"{server.url}/docs")
        await page.once(f"{BOX} && {BOX}.querySelector('.try button')")
        fields = {"addresses": carol, "startDate": DAYS[0], "endDate": DAYS[-1]}
        await page.says(f"document.getElementById('key').value = {json.dumps(server.key)}")
        for name, text in fields.items():
            await page.says(f"{BOX}.querySelector('[name={name}]').value = {json.dumps(text)}")
        await page.says(f"{BOX}.querySelector('.try button').click()")
        await page.once(f"{BOX}.querySelector('.result .note') && !{BOX}.querySelector('.try button').disabled")
        days = json.loads(await page.says(f"{BOX}.querySelector('.result pre').textContent"))["days"]
        titles = await page.says(f"[...{BOX}.querySelectorAll('figcaption')].map(each => each.textContent)")
        assert titles == ["Worth in USD as each day began", "What 100 became, whatever was paid in or taken out"]
        charts = f"[...{BOX}.querySelectorAll('.chart')]"
        chart_labels = await page.says(
            f"{charts}.map(each => [...each.querySelectorAll('.dot title')].map(dot => dot.textContent))"
        )
        assert chart_labels == [[f"{day['day']}: {day[name]}" for day in days] for name in ("value", "growth")]
        heights = await page.says(
            f"{charts}.map(each => [...each.querySelectorAll('.dot')].map(dot => dot.cy.baseVal.value))[0]"
        )
        values = [Decimal(day["value"]) for day in days]
        assert sorted(range(len(days)), key=lambda at: -heights[at]) == sorted(range(len(days)), key=values.__getitem__)
        assert await page.says("document.documentElement.scrollWidth") <= 1280
        lines, dots, other_chart = await page.says(GAPS)
        assert (lines, dots) == ([2, 2], 5)
        assert "not known on any of these days" in other_chart
        assert await page.says("charts('[]').length + charts('{\"days\": []}').length") == 0
        await page.says(f"{BOX}.querySelector('.result').scrollIntoView({{behavior: 'instant'}})")
        picture = tmp_path / "page.png"
        picture.write_bytes(await page.picture())
        assert picture.read_bytes().startswith(b"\x89PNG")
        await page.do("Emulation.setDeviceMetricsOverride", width=380, height=900, deviceScaleFactor=1, mobile=False)
        await page.says(f"{BOX}.querySelector('.try button').click()")
        await page.once(f"{BOX}.querySelector('.chart') && !{BOX}.querySelector('.try button').disabled")
        assert await page.says(OUTSIDE) == []
        assert page.complaints == []
