"""The page of data in a real browser: queries are those of the API, hostile cells stay text, files are downloaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.e2e.browser import PROGRAM, Page
from tests.e2e.dashboard_page import CAROL, HOSTILE, MUTE, WIDE, get, opened
from tests.e2e.running import Demo

pytestmark = [
    pytest.mark.node,
    pytest.mark.xdist_group("demo"),
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium here"),
]
CELLS = "[...document.querySelectorAll('#rows tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"
IS_DONE = "document.querySelector('#result') && !document.querySelector('form.sql .main').disabled"
TOTALS = "SELECT token, total(raw) AS total FROM transfers GROUP BY token ORDER BY total DESC NULLS LAST LIMIT 7"


def rows_of(demo: Demo, query: str) -> list[list[Any]]:
    """The rows of a query, as the API has them."""
    headers = {"Authorization": f"Bearer {demo.key}", "Content-Type": "application/json"}
    with urlopen(Request(f"{demo.url}/v1/sql", json.dumps({"query": query}).encode(), headers), timeout=60) as answer:
        rows: list[list[Any]] = json.loads(answer.read())["rows"]
    return rows


async def run(page: Page, query: str) -> None:
    """Write a query into the editor, run it, and wait for its result."""
    await page.says("document.querySelector('#result')?.remove()")
    await page.says(f"document.querySelector('#query').value = {json.dumps(query)}")
    await page.says("document.querySelector('form.sql .main').click()")
    await page.once(IS_DONE)


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
async def test_a_query_shows_the_rows_of_the_api_and_a_chart(
    demo: Demo, tmp_path: Path, width: int, theme: str
) -> None:
    async with opened(demo, tmp_path, f"data?addresses={CAROL}", width, theme) as page:
        await page.once("document.querySelector('[data-ready]')")
        tables = get(demo, "/v1/sql/tables")["data"]
        shown = await page.says(
            "[...document.querySelectorAll('[data-table]')].map(e => [e.dataset.table, e.dataset.rows])"
        )
        assert [name for name, _ in shown] == [each["name"] for each in tables]
        await run(page, TOTALS)
        assert await page.says(CELLS) == [[cell or "null" for cell in row] for row in rows_of(demo, TOTALS)]
        await page.says("document.querySelector('#charts summary').click()")
        await page.once("document.querySelectorAll('#chart .bar-fill').length === 7")
        await run(page, "SELECT height, gas_used, time FROM blocks ORDER BY height LIMIT 50")
        await page.says("document.querySelector('#charts summary').click()")
        await page.once("document.querySelector('#chart canvas')")
        await page.says("document.querySelector('[data-table=transfers] summary').click()")
        await page.once("document.querySelector('[data-table=transfers] table')")
        assert "raw_dec" in await page.says("document.querySelector('[data-table=transfers]').textContent")
        assert await page.says(WIDE) == []
        assert await page.says(MUTE) == []
        assert page.complaints == []


async def test_examples_run_and_errors_are_those_of_the_server(demo: Demo, tmp_path: Path) -> None:
    async with opened(demo, tmp_path, f"data?addresses={CAROL}") as page:
        await page.once("document.querySelector('[data-ready]')")
        for place in range(4):
            await page.says("document.querySelector('#result')?.remove()")
            await page.says(f"document.querySelectorAll('.chip')[{place}].click()")
            await page.says("document.querySelector('form.sql .main').click()")
            await page.once(IS_DONE)
            assert await page.says(CELLS), place
        await page.says("document.querySelector('#query').value = 'SELECT * FROM gossip'")
        await page.says("document.querySelector('form.sql .main').click()")
        await page.once("document.querySelector('[role=alert]')")
        assert "gossip" in await page.says("document.querySelector('[role=alert]').textContent")


async def test_hostile_cells_and_names_stay_text(demo: Demo, tmp_path: Path) -> None:
    hostile = HOSTILE[:200].replace("'", "''")
    async with opened(demo, tmp_path, "data", 390) as page:
        await page.once("document.querySelector('[data-ready]')")
        await run(page, f"""SELECT '{hostile}' AS "<img src=x onerror=document.body.id='hit'>", 1 AS n, [1, 2] AS l""")
        await page.says("document.querySelector('#charts summary').click()")
        await page.once("document.querySelector('#chart .bar-fill')")
        assert await page.says("document.body.id === '' && !document.querySelector('#result img')")
        assert not {"\u202e", "\u200b"} & set(await page.says("document.querySelector('#result').textContent"))
        assert await page.says(WIDE) == []
        assert page.complaints == []


async def test_a_query_is_saved_chosen_downloaded_and_removed(demo: Demo, tmp_path: Path) -> None:
    record = """window.files = []; const real = URL.createObjectURL;
      URL.createObjectURL = (blob) => { files.push(blob); return real.call(URL, blob); };"""
    async with opened(demo, tmp_path, "data", script=record) as page:
        await page.once("document.querySelector('[data-ready]')")
        await run(page, "SELECT 170141183460469231731687303715884105727 AS most")
        for place, start in enumerate(("most", "PAR1", "")):
            await page.says(f"document.querySelectorAll('#result .quiet')[{place}].click()")
            await page.once(f"files.length === {place + 1}")
            assert (await page.says(f"files[{place}].text()")).startswith(start)
            await page.once(IS_DONE)
        await page.says("document.querySelector('#title').value = 'page-of-data'")
        await page.says("document.querySelector('#title').form.requestSubmit()")
        await page.once("[...document.querySelectorAll('#saved option')].some(each => each.value === 'page-of-data')")
        (stored,) = [each for each in get(demo, "/v1/sql/queries")["data"] if each["name"] == "page-of-data"]
        assert stored["query"].endswith("AS most")
        field = "Object.assign(document.querySelector('#saved'), {value: 'page-of-data'})"
        choose = f"{field}.dispatchEvent(new Event('change'))"
        await page.says(choose)
        await page.says("[...document.querySelector('#saved').form.querySelectorAll('button')].pop().click()")
        await page.once("![...document.querySelectorAll('#saved option')].some(each => each.value === 'page-of-data')")
