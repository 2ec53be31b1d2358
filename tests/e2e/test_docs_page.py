"""The documentation's page in a real browser: it draws every operation, and its form gets real answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.browser import PROGRAM, browsing
from tests.e2e.conftest import Serving, World

pytestmark = [pytest.mark.node, pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium here")]

PORTFOLIO = "document.getElementById('op-' + {operation})"


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
        shown = json.loads(await page.says(f"{box}.querySelector('.result pre').textContent"))
        assert shown == [await server.portfolio(world.wallets["alice"])]
        assert (await page.picture()).startswith(b"\x89PNG")
        assert page.complaints == []
