"""The first run in a real browser: from an empty folder to the why of a price, without a settings file by hand."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import socket
import stat
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from chainfolio.cli.demo import prepare
from chainfolio.localchain.node import LocalNode
from chainfolio.settings_file import load
from tests.e2e.browser import PROGRAM, Page, browsing
from tests.e2e.conftest import World
from tests.e2e.dashboard_page import HOSTILE, REPORT, WIDE
from tests.e2e.running import COMMAND, PATIENCE_S, environment, free_port
from tests.e2e.test_dashboard_axe import SIMPLE, check
from tests.e2e.test_dashboard_axe import axe as axe

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium here"),
]
SOLANA = "7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtV"
SECRET = "s3cr3t"
CHECKED = "document.querySelector('#report')"
# Each click of a user on the page that is shown; clicks by a script count too.
CLICKS = "window.clicks = 0; addEventListener('click', () => { clicks += 1; }, true);"


@dataclass(frozen=True)
class FirstRun:
    """A server in a folder without settings, as a person at a terminal sees it."""

    folder: Path
    link: str
    node: LocalNode
    alice: str

    @property
    def url(self) -> str:
        return self.link.partition("/#")[0]

    @property
    def file(self) -> Path:
        return self.folder / "chainfolio.toml"


@contextmanager
def started(world: World, folder: Path) -> Iterator[FirstRun]:
    """Run `chainfolio serve` in a terminal. Prices and protocols of the chain come from variables, not from a file."""
    world_folder, here = folder / "beside", folder / "here"
    here.mkdir()
    prepare(world_folder, world.node, world.deployment, 0)
    variables = {
        "CHAINFOLIO_PRICES_FILE": f"{world_folder}/prices.toml",
        "CHAINFOLIO_PROTOCOLS": f"{world_folder}/protocols",
    }
    terminal, end = pty.openpty()
    with (folder / "log").open("wb") as log:
        command = [*COMMAND, "serve", "--port", str(free_port())]
        running = subprocess.Popen(command, cwd=here, env=environment() | variables, stdout=end, stderr=log)
        try:
            yield FirstRun(here, _link(terminal), world.node, world.wallets["alice"])
        finally:
            running.terminate()
            running.wait(PATIENCE_S)
            os.close(terminal)
            os.close(end)
    assert "Traceback" not in (folder / "log").read_text()


def _link(terminal: int) -> str:
    output, limit = "", time.monotonic() + PATIENCE_S
    while not (link := re.search(r"(http://\S+link=\w+)\r?\n", output)):
        assert select.select([terminal], [], [], max(0.0, limit - time.monotonic()))[0], output
        output += os.read(terminal, 10_000).decode()
    return link[1]


@pytest.fixture
def first_run(world: World, tmp_path: Path) -> Iterator[FirstRun]:
    with started(world, tmp_path) as it:
        yield it


@asynccontextmanager
async def at_start(run: FirstRun, folder: Path, width: int = 1280, theme: str = "light") -> AsyncIterator[Page]:
    """The page that the link opens."""
    async with browsing(folder / "profile") as page:
        await page.do(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        await page.do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        await page.do("Page.enable")
        await page.do("Page.addScriptToEvaluateOnNewDocument", source=REPORT + CLICKS)
        await page.open(run.link)
        await page.once("document.querySelector('#start-show')")
        yield page
        assert await page.says("refusals") == []


async def enter(page: Page, **values: str) -> None:
    """Put texts into fields as a keyboard does."""
    for name, value in values.items():
        await page.says(
            f"(field => {{ field.value = {json.dumps(value)}; field.dispatchEvent(new Event('input')); }})"
            f"(document.getElementById('start-{name}'))"
        )


async def click(page: Page, selector: str) -> None:
    await page.says(f"document.querySelector({json.dumps(selector)}).click()")


async def api(page: Page, path: str) -> Any:
    """The answer of the API to the session of the page."""
    return await page.says(
        f"fetch({json.dumps(path)}, {{headers: {{'X-Chainfolio-Dashboard': '1'}}}}).then(answer => answer.json())"
    )


async def shown_values(page: Page) -> list[str]:
    return sorted(await page.says("[...document.querySelectorAll('tr.asset button.number')].map(b => b.dataset.exact)"))


async def picture(page: Page, name: str) -> None:
    """Store what there is to see, if a folder for pictures is named."""
    if folder := os.environ.get("CHAINFOLIO_TESTS_PICTURES"):
        (Path(folder) / f"{name}.png").write_bytes(await page.picture())


async def keep(page: Page, run: FirstRun, label: str) -> list[str]:
    """Keep the chain on the page until the server serves it; return the rules that the page violates meanwhile."""
    await page.says("document.querySelector('#keep').scrollIntoView()")
    await click(page, "#keep-chain")
    await page.once("document.querySelector('#write')")
    await picture(page, f"keep-{label}")
    faults = await check(page, "keep")
    assert SECRET not in await page.says("document.body.textContent")
    assert "networth" not in str(await api(page, f"/v1/portfolio?addresses={run.alice}")), "it is not served before"
    assert not run.file.exists()
    await click(page, "#write")
    await page.once("document.querySelector('[data-page=portfolio][data-ready] tr.asset button.number')")
    assert load(run.file, {}).chains["local"].endpoints == [f"{run.node.url}/?{SECRET}"]
    assert stat.S_IMODE(run.file.stat().st_mode) == 0o600
    await picture(page, f"kept-{label}")
    return faults


@pytest.mark.slow("each width and theme starts a server and a browser", fast=["390-dark"])
@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1280, "light"), (390, "light"), (1280, "dark")])
async def test_an_empty_folder_leads_to_the_why_of_a_price(
    first_run: FirstRun, tmp_path: Path, width: int, theme: str, axe: str
) -> None:
    label, networth = f"{width}-{theme}", "document.getElementById('networth').dataset.exact"
    async with at_start(first_run, tmp_path, width, theme) as page:
        await page.says(f"{axe}; 0")
        faults = [f"empty: {each}" for each in await page.says(SIMPLE)]
        await picture(page, f"start-{label}")
        await enter(page, addresses=first_run.alice, rpc=f"{first_run.node.url}/?{SECRET}")
        await page.once(f"{CHECKED} && !document.querySelector('#start-show').disabled")
        assert await page.says("document.querySelector('#report').dataset.chain") == "local"
        faults += [f"checked: {each}" for each in await page.says(SIMPLE)]
        await page.says("document.querySelector('#report').scrollIntoView()")
        await picture(page, f"checked-{label}")
        await click(page, "#start-show")
        await page.once("document.querySelector('[data-page=start][data-ready] tr.asset button.number')")
        first, first_worth = await shown_values(page), await page.says(networth)
        assert Decimal(first_worth) > 0
        await picture(page, f"shown-{label}")
        await click(page, "tr.asset button.number")
        assert "chainlink" in (await page.says("document.querySelector('dialog[open]').textContent")).lower()
        assert await page.says("clicks") <= 3
        await page.says("document.querySelector('dialog[open]').close()")
        faults += await keep(page, first_run, label)
        (document,) = await api(page, f"/v1/portfolio?addresses={first_run.alice}")
        assert [document["networth"], await page.says(networth)] == [first_worth] * 2
        assert await shown_values(page) == first
        for page_name in ("operations", "status"):
            await page.says(f"location.hash = '#/{page_name}'")
            await page.once(f"document.querySelector('[data-page={page_name}] #add-chain')")
        await click(page, "#add-chain")
        await page.once("document.querySelector('[data-page=start] #start-show')")
        await enter(page, rpc=first_run.node.url)
        await page.once("document.querySelector('#checked')?.textContent.includes('is configured already')")
        assert faults == []


async def test_wrong_input_is_explained_on_the_page(first_run: FirstRun, tmp_path: Path) -> None:
    async with at_start(first_run, tmp_path, 390) as page:

        async def report_of(addresses: str, rpc: str) -> str:
            await page.says("document.querySelector('#checked').replaceChildren()")
            await enter(page, addresses=addresses, rpc=rpc)
            await page.once(CHECKED)
            assert await page.says(WIDE) == []
            text: str = await page.says("document.querySelector('#report').textContent")
            return text

        disabled = "document.querySelector('#start-show').disabled"
        for rpc, part in (
            (HOSTILE[:2000], "is not an http:// or https:// address"),
            (f"http://127.0.0.1:1/{SECRET}", "127.0.0.1:1"),
            (first_run.url, "dashboard's own server"),
            (f"wss://a.example/{SECRET}", "take the https:// or http:// address"),
        ):
            text = await report_of(first_run.alice, rpc)
            assert part in text
            assert SECRET not in text
            assert await page.says(disabled) is True
        assert await page.says("document.body.id") != "hit"
        text = await report_of(f"{SOLANA}, <b>x</b>, vitalik.eth", first_run.node.url)
        assert "is a Solana address, and no chain of its kind is among: local" in text
        assert "names are looked up on ethereum" in text
        assert await page.says(disabled) is True
        await page.says("document.getElementById('start-chain').value = 'polygon'")
        await page.says("document.getElementById('start-chain').dispatchEvent(new Event('change'))")
        await page.once("document.querySelector('#report')?.textContent.includes('serves local, and not polygon')")
        assert [each for each in page.complaints if "/v1/credits" not in each] == []  # 401 before the link is used


async def test_a_check_can_be_stopped_and_two_tabs_keep_once(first_run: FirstRun, tmp_path: Path) -> None:
    async with at_start(first_run, tmp_path) as page:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            await enter(page, addresses=first_run.alice, rpc=f"http://127.0.0.1:{silent.getsockname()[1]}")
            await page.once("document.querySelector('#stop')")
            await click(page, "#stop")
            await page.once("document.querySelector('#checked [role=alert]')")
        await enter(page, rpc=first_run.node.url)
        await page.once(f"{CHECKED} && !document.querySelector('#start-show').disabled")
        await click(page, "#start-show")
        await page.once("document.querySelector('#keep-chain')")
        await click(page, "#keep-chain")
        await page.once("document.querySelector('#write')")
        first_run.file.write_text("# written by another tab\n")
        await click(page, "#write")
        await page.once("document.querySelector('#keep [role=alert]')")
        assert "has changed since you saw it" in await page.says("document.querySelector('#keep').textContent")
        assert first_run.file.read_text() == "# written by another tab\n"
        await click(page, "#keep [role=alert] button")
        await page.once("document.querySelector('#write')")
        assert "written by another tab" in await page.says("document.querySelector('#keep details').textContent")
        await click(page, "#write")
        await page.once("document.querySelector('[data-page=portfolio][data-ready]')")
        assert first_run.file.read_text().startswith("# written by another tab\n\n[chains.local]\n")
