"""The documentation's page in a real browser: it draws every operation, and its form gets real answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.browser import PROGRAM, Page, browsing
from tests.e2e.conftest import Serving, World
from tests.e2e.running import Demo

pytestmark = [
    pytest.mark.node,
    pytest.mark.xdist_group("demo"),
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium here"),
]

PORTFOLIO = "document.getElementById('op-' + {operation})"
# What takes away what other examples are about comes last.
LAST = ["remove_member", "remove_entry", "delete_bundle"]
# Their examples have ids that are made when something is added.
MADE_IDS = {"remove_alert", "alert_secrets", "rotate_secret", "test_alert", "replay_delivery"}
BEACON = ("validator_", "rewards_", "withdrawals_", "deposits_")
# The widest that reaches beyond the window, and how far Send lies below the last field of its form.
WIDE = "Math.max(...[...document.querySelectorAll('body *')].map(node => node.getBoundingClientRect().right))"
GAPS = """[...document.querySelectorAll('section.operation')].map(box => {
  const fields = [...box.querySelectorAll('[data-in], textarea')];
  const send = box.querySelector('.try button').getBoundingClientRect();
  return fields.length ? send.top - fields.pop().getBoundingClientRect().bottom : 0; })"""

# Of each field that holds one address whether all of it is seen, and how wide the descriptions of parameters are.
ADDRESSES = """[...document.querySelectorAll('.parameter input')].filter(field => /^0x[0-9a-f]{40}$/.test(field.value))
  .map(field => field.scrollWidth <= field.clientWidth)"""
DESCRIPTIONS = "[...document.querySelectorAll('.parameter > div:nth-child(2)')].map(node => node.clientWidth)"


async def opened(page: Page, url: str, width: int) -> None:
    """The page, drawn, in a window of that width."""
    await page.do(
        "Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=width < 600
    )
    await page.open(f"{url}/docs")
    await page.once("document.querySelectorAll('section.operation').length > 0")


async def test_the_field_of_an_address_shows_all_of_it_and_squeezes_no_description(demo: Demo, tmp_path: Path) -> None:
    async with browsing(tmp_path / "profile") as page:
        await opened(page, demo.url, 1280)
        assert len(await page.says(ADDRESSES)) > 5
        for width in (910, 1190, 1210, 1280):
            await opened(page, demo.url, width)
            assert all(await page.says(ADDRESSES)), width
            assert min(await page.says(DESCRIPTIONS)) > 200, width


@pytest.mark.parametrize("width", [390, 1280])
async def test_nothing_overflows_and_send_is_below_its_fields(demo: Demo, tmp_path: Path, width: int) -> None:
    async with browsing(tmp_path / "profile") as page:
        await opened(page, demo.url, width)
        for opening in ("0", "document.querySelectorAll('details').forEach(each => each.open = true)"):
            await page.says(opening)
            assert await page.says("document.documentElement.scrollWidth") <= width
            assert await page.says(WIDE) <= width
        assert 0 < max(await page.says(GAPS)) < 250
        assert page.complaints == []


async def test_a_narrow_page_is_folded_and_its_menu_leads_to_each_operation(demo: Demo, tmp_path: Path) -> None:
    async with browsing(tmp_path / "profile") as page:
        await opened(page, demo.url, 390)
        assert await page.says("document.documentElement.scrollHeight") < 12_000
        is_nav_visible = "document.getElementById('nav').checkVisibility()"
        assert not await page.says(is_nav_visible)
        await page.says("document.querySelector('#menu > summary').click()")
        await page.once(is_nav_visible)
        links = await page.says("[...document.querySelectorAll('#nav a')].map(link => link.hash)")
        boxes = await page.says("[...document.querySelectorAll('section.operation')].map(box => '#' + box.id)")
        assert sorted(links) == sorted(boxes)
        await page.says(f"document.querySelector('#nav a[href=\"{links[-1]}\"]').click()")
        form = f"document.querySelector('{links[-1]} .try button')"
        await page.once(f"{form}.checkVisibility()")
        assert not await page.says(is_nav_visible), "the menu closes"
        top = await page.says(f"document.querySelector('{links[-1]}').getBoundingClientRect().top")
        assert 0 <= top < 844
        assert await page.says("document.querySelectorAll('section.operation .operation-form[open]').length") == 1


async def test_the_first_click_of_every_example_is_answered_on_the_demo(demo: Demo, tmp_path: Path) -> None:
    async with browsing(tmp_path / "profile") as page:
        await opened(page, demo.url, 390)
        key = json.dumps(demo.key)
        await page.says(f"document.getElementById('key').value = {key}")
        names = await page.says("[...document.querySelectorAll('section.operation')].map(box => box.id.slice(3))")
        assert set(LAST) < set(names)
        results = {}
        for name in [*(each for each in names if each not in LAST), *LAST]:
            box = PORTFOLIO.format(operation=json.dumps(name))
            await page.says(f"{box}.querySelector('.try button').click()")
            await page.once(f"{box}.querySelector('.result .note') && !{box}.querySelector('.try button').disabled")
            results[name] = await page.says(f"{box}.querySelector('.result').textContent")
        refusals = {name: result for name, result in results.items() if not result.startswith("20")}
        unknown = {name: refusals.pop(name) for name in MADE_IDS}
        assert all(result.startswith("404") for result in unknown.values()), unknown
        assert [name for name in refusals if not name.startswith(BEACON)] == [], refusals
        assert all("501" in result for result in refusals.values()), "the demo has no beacon chain"
        for name in ("portfolio", "portfolio_at_block", "historical", "transactions", "approvals", "token_overview"):
            assert '"symbol"' in results[name] or '"block"' in results[name], f"{name} shows nothing"
        assert '"dailyIncome": "N/A"' not in results["portfolio"]
        assert '"completeness": "complete"' in results["transactions"]


@pytest.mark.slow("a browser draws each of fifty operations")
async def test_the_page_draws_every_operation_and_its_form_gets_a_portfolio(
    world: World, serving: Serving, tmp_path: Path
) -> None:
    async with serving(world) as server, browsing(tmp_path / "profile") as page:
        await server.at(world.node.height)
        description = await server.json("/openapi.json")
        await page.open(f"{server.url}/docs")
        await page.once("document.querySelectorAll('section.operation').length > 0")
        drawn = await page.says("[...document.querySelectorAll('section.operation .path')].map(a => a.textContent)")
        assert sorted(drawn) == sorted(path for path, methods in description["paths"].items() for _ in methods)

        operation = description["paths"]["/v1/portfolio"]["get"]["operationId"]
        box = PORTFOLIO.format(operation=json.dumps(operation))
        fill = "(node, text) => { node.value = text; node.dispatchEvent(new Event('input', {bubbles: true})); }"
        await page.says(f"({fill})(document.getElementById('key'), {json.dumps(server.key)})")
        await page.says(f"({fill})({box}.querySelector('[name=addresses]'), {json.dumps(world.wallets['alice'])})")
        await page.says(f"{box}.querySelector('.try button').click()")
        await page.once(f"{box}.querySelector('.result .status')")
        assert (await page.says(f"{box}.querySelector('.result .status').textContent")).startswith("200")
        document = json.loads(await page.says(f"{box}.querySelector('.result pre').textContent"))
        assert document == [await server.portfolio(world.wallets["alice"])]

        box = PORTFOLIO.format(operation='"add_entries"')
        entry = {"address": world.wallets["alice"], "label": "Alice"}
        text = json.dumps(json.dumps({"entries": [entry]}))
        await page.says(f"{box}.querySelector('textarea').value = {text}")
        await page.says(f"{box}.querySelector('[name=Idempotency-Key]').value = 'once'")
        await page.says(f"{box}.querySelector('.try .quiet').click()")
        command = await page.says(f"{box}.querySelector('.result pre').textContent")
        assert command.startswith("curl -X POST ")
        assert "Idempotency-Key: once" in command
        await page.says(f"{box}.querySelector('.try button').click()")
        await page.once(f"{box}.querySelector('.result .status')")
        document = json.loads(await page.says(f"{box}.querySelector('.result pre').textContent"))
        assert [each["label"] for each in document["data"]] == ["Alice"]
        assert (await page.picture()).startswith(b"\x89PNG")
        assert page.complaints == []
