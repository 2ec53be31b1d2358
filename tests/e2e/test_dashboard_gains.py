"""The page of gains in a real browser: sums, assets, years and lots are those of the API, and so are the files."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from chainfolio import amounts
from chainfolio.portfolio.pnl.report import COLUMNS
from tests.e2e.browser import PROGRAM, Page
from tests.e2e.dashboard_page import CAROL, HOSTILE, MUTE, WIDE, dollars, get, opened
from tests.e2e.running import Demo

pytestmark = [
    pytest.mark.node,
    pytest.mark.xdist_group("demo"),
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium here"),
]
SUMS = ("openPnl", "closedPnl", "totalCostBasis", "value", "income", "fees")
NUMBERS = ("totalCostBasis", "value", "openPnl", "closedPnl")
EXACT = "(selector, key) => [...document.querySelectorAll(selector)].map(e => [e.dataset[key], e.dataset.exact])"
LOTS = """[...document.querySelectorAll('.disposal')].flatMap(box => [...box.querySelectorAll('tbody tr')]
  .map(row => [box.dataset.transaction, row.cells[0].title,
    ...[...row.querySelectorAll('[data-exact]')].map(cell => cell.dataset.exact)]))"""
SAVED = """window.saved = []; const makeURL = URL.createObjectURL;
  URL.createObjectURL = blob => { saved.push(blob); return makeURL(blob); };"""


async def saved(page: Page, label: str) -> str:
    """The file that a button downloads."""
    await page.do("Page.setDownloadBehavior", behavior="deny")
    await page.says(f"[...document.querySelectorAll('button')].find(b => b.textContent === '{label}').click()")
    text: str = await page.says("saved.pop().text()")
    return text


def by_year(gains: list[dict[str, str]]) -> dict[str, list[str]]:
    """Proceeds, cost and gain of each year's known disposals, then its income."""
    sums: dict[str, list[Decimal]] = defaultdict(lambda: [Decimal(0)] * 4)
    for row in gains:
        parts = sums[row["time"][:4]]
        if row["kind"] == "income":
            parts[3] += Decimal(row["proceeds"]) if row["proceeds"] != "N/A" else 0
        elif row["gain"] != "N/A":
            parts[:3] = [
                part + Decimal(row[key]) for part, key in zip(parts, ("proceeds", "cost", "gain"), strict=False)
            ]
    return {year: [amounts.text(each) for each in parts] for year, parts in sums.items()}


async def test_gains_are_those_of_the_api_to_the_digit(demo: Demo, tmp_path: Path) -> None:
    answer = get(demo, f"/v1/gains?addresses={CAROL}&method=hifo")
    path = f"gains?addresses={CAROL}&method=hifo"
    async with opened(demo, tmp_path, path, 390, "dark", SAVED) as page:
        await page.once("document.querySelector('[data-ready]')")
        assert dict(await page.says(f"({EXACT})('[data-sum]', 'sum')")) == {key: answer[key] for key in SUMS}
        holdings = {
            f"{each['chain']}:{each['contract']}": [each[key] for key in NUMBERS] for each in answer["holdings"]
        }
        rows = "(id => [...document.querySelectorAll(id)].map(r => [r.dataset.asset ?? r.dataset.year, "
        rows += "[...r.querySelectorAll('[data-exact]')].map(c => c.dataset.exact)]))"
        page_holdings = dict(await page.says(f"{rows}('#held [data-asset]')"))
        assert page_holdings
        assert page_holdings == {key: holdings[key] for key in page_holdings}
        assert all(set(numbers) <= {"0", "N/A"} for key, numbers in holdings.items() if key not in page_holdings)
        assert dict(await page.says(f"{rows}('#years [data-year]')")) == by_year(answer["gains"])
        while await page.says("!!document.querySelector('#disposals > button')"):
            await page.says("document.querySelector('#disposals > button').click()")
        await page.says("[...document.querySelectorAll('.disposal')].forEach(each => each.open = true)")
        await page.once("[...document.querySelectorAll('.disposal')].every(each => each.querySelector('tbody'))")
        keys = ("transaction", "amount", "proceeds", "cost", "gain")
        assert sorted(await page.says(LOTS)) == sorted([row[key] for key in keys] for row in answer["gains"])
        texts = await page.says("[...document.querySelectorAll('.disposal .gain')].map(e => [e.title, e.textContent])")
        known_texts = [
            (exact, text) for exact, text in texts if exact != "N/A" and abs(Decimal(exact)) >= Decimal("0.01")
        ]
        assert known_texts
        assert all(text == dollars(exact) for exact, text in known_texts)
        await check_files(page, answer)
        await check_filters(page, answer)
        assert await page.says(WIDE) == []
        assert await page.says(MUTE) == []
        await page.do("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
        assert await page.says(WIDE) == []
        assert page.complaints == []


async def check_files(page: Page, answer: dict[str, Any]) -> None:
    """The files have the rows of the answer."""
    rows = list(csv.DictReader(io.StringIO(await saved(page, "Download CSV"))))
    assert rows == answer["gains"]
    assert tuple(rows[0]) == COLUMNS
    assert json.loads(await saved(page, "Download JSON")) == answer


async def check_filters(page: Page, answer: dict[str, Any]) -> None:
    """A kind and an asset leave their rows, in the list and in the file."""
    await page.says(
        "(asset => { asset.value = 'DAI'; asset.dispatchEvent(new Event('input')); })(document.getElementById('asset'))"
    )
    await page.says(
        "(kind => { kind.value = 'sell'; kind.dispatchEvent(new Event('change')); })(document.getElementById('kind'))"
    )
    expected = [row for row in answer["gains"] if (row["symbol"], row["kind"]) == ("dai", "sell")]
    assert expected
    assert list(csv.DictReader(io.StringIO(await saved(page, "Download CSV")))) == expected
    hashes = await page.says("[...document.querySelectorAll('.disposal')].map(each => each.dataset.transaction)")
    assert set(hashes) == {row["transaction"] for row in expected}


async def test_names_in_gains_that_attack_stay_text(demo: Demo, tmp_path: Path) -> None:
    change = json.dumps({"symbol": HOSTILE, "reason": HOSTILE, "chain": HOSTILE, "rule": "=cmd|' /C calc'!A0"})
    script = f"""{SAVED} const real = fetch, change = {change}; window.fetch = async (path, ...more) => {{
      const answer = await real(path, ...more);
      if (!path.startsWith('/v1/gains')) return answer;
      const changed = JSON.parse(await answer.text(), (key, value) => change[key] ?? value);
      return new Response(JSON.stringify({{...changed, unknown: {{[change.reason]: 1}}}}), {{status: answer.status}});
    }};"""
    async with opened(demo, tmp_path, f"gains?addresses={CAROL}", 390, script=script) as page:
        await page.once("document.querySelector('[data-ready]')")
        await page.says("[...document.querySelectorAll('details')].slice(0, 20).forEach(each => each.open = true)")
        await page.once("document.querySelector('.disposal tbody')")
        assert await page.says("document.querySelector('img') === null && document.body.id === ''")
        assert await page.says(WIDE) == []
        assert not {"\u202e", "\u200b"} & set(await page.says("document.body.textContent"))
        rows = list(csv.DictReader(io.StringIO(await saved(page, "Download CSV"))))
        assert {row["rule"][0] for row in rows} == {"'"}
        assert page.complaints == []
