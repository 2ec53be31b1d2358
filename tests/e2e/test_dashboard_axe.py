"""Every page of the dashboard, in both themes: no violation of axe-core, no overflow at any width, all by keyboard."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest

from chainfolio.localchain import install
from chainfolio.localchain.errors import InstallFailed, NodeJsMissing
from tests.e2e.browser import PROGRAM, Page
from tests.e2e.dashboard_page import CAROL, MUTE, WIDE, opened
from tests.e2e.running import Demo

pytestmark = [
    pytest.mark.node,
    pytest.mark.xdist_group("demo"),
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium here"),
]
MANIFEST = Path(__file__).parent / "axe.json"
PAGES = (
    "portfolio",
    "transactions",
    "gains",
    "positions",
    "nfts",
    "approvals",
    "validators",
    "data",
    "status",
    "operations",
    "history",
)
SETTLED = "document.querySelector('.inner [role=alert], .inner[data-ready], .records .record') !== null"
SIMPLE = """axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.map(each =>
  `${each.id}: ${each.nodes.slice(0, 3).map(node => node.html.slice(0, 120)).join(' | ')}`))"""
DRAWN = "new Promise(done => requestAnimationFrame(() => setTimeout(() => requestAnimationFrame(done), 50)))"
WIDTHS = (390, 2560)


@pytest.fixture(scope="module")
def axe() -> str:
    """The script of axe-core, whose hash is pinned."""
    try:
        folder = install.archives(MANIFEST, install.home() / "axe") / "node_modules" / "axe-core"
    except (InstallFailed, NodeJsMissing) as error:
        pytest.skip(f"axe-core cannot be installed here: {error}")
    script = (folder / "axe.min.js").read_bytes()
    digest = base64.b64encode(hashlib.sha384(script).digest()).decode()
    assert f"sha384-{digest}" == json.loads(MANIFEST.read_text())["integrity"]
    return script.decode()


async def resize(page: Page, width: int) -> None:
    """Give the page another width."""
    await page.do(
        "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
    )


async def check(page: Page, page_name: str) -> list[str]:
    """Return the page's faults: violations of both themes, overflows, and elements that no keyboard reaches."""
    violations = []
    for theme in ("light", "dark"):
        await page.says(f"document.documentElement.dataset.theme = '{theme}'")
        violations += [f"{page_name} {theme}: {each}" for each in await page.says(SIMPLE)]
    for width in WIDTHS:
        await resize(page, width)
        await page.says(DRAWN)
        wide = await page.says(WIDE)
        if await page.says("document.documentElement.scrollWidth") > width:
            wide.append("the page itself")
        violations += [f"{page_name} {width}: {each}" for each in wide]
    return violations + [f"{page_name}: {each}" for each in await page.says(MUTE)]


@pytest.mark.slow("a browser opens every page at each width and theme", fast=["portfolio"])
@pytest.mark.parametrize("page_names", [PAGES[:1], PAGES[1:]], ids=["portfolio", "others"])
async def test_no_page_violates_a_rule_of_accessibility(
    demo: Demo, tmp_path: Path, axe: str, page_names: tuple[str, ...]
) -> None:
    violations = []
    async with opened(demo, tmp_path, f"portfolio?addresses={CAROL}") as page:
        await page.says(f"{axe}; 0")
        for page_name in page_names:
            parameters = "&validators=7" if page_name == "validators" else ""
            await page.says(f"location.hash = '#/{page_name}?addresses={CAROL}{parameters}'")
            await page.once(f"document.querySelector('[data-page={page_name}]') && {SETTLED}")
            await page.says("[...document.querySelectorAll('details')].slice(0, 12).forEach(each => each.open = true)")
            violations += await check(page, page_name)
        if len(page_names) > 1:
            await page.says("location.hash = '#/portfolio'")
            await page.once("document.querySelector('[data-page=portfolio] p.card')")
            violations += await check(page, "empty")
        await page.do("Network.clearBrowserCookies")
        await page.says("location.hash = '#/gains'")
        await page.once("document.querySelector('form.login')")
        violations += await check(page, "login")
    assert not violations, "\n".join(violations)


async def test_the_why_of_a_number_violates_no_rule(demo: Demo, tmp_path: Path, axe: str) -> None:
    async with opened(demo, tmp_path, f"portfolio?addresses={CAROL}", 390) as page:
        await page.says(f"{axe}; 0")
        await page.once("document.querySelector('[data-ready]')")
        await page.says("document.querySelector('tr.asset button.number').click()")
        violations = await check(page, "why")
    assert not violations, "\n".join(violations)
