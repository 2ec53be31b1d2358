"""A page of the dashboard in a real browser, logged in, and the answers of the API beside it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cache
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from chainfolio.api.auth import COOKIE, HEADER
from tests.e2e.browser import Page, browsing
from tests.e2e.running import Demo

CAROL = "0x90f79bf6eb2c4f870365e785982e1f101e93b906"
HOSTILE = "\u202eCIBB<img src=x onerror=document.body.id='hit'>\u200b" + "A" * 10_000
REPORT = "window.refusals = []; addEventListener('securitypolicyviolation', e => refusals.push(e.blockedURI));"
WIDE = """[...document.querySelectorAll('body *')].filter(node => !node.closest('.scroll')
  && node.getBoundingClientRect().right > innerWidth + 0.5).map(node => node.outerHTML.slice(0, 90))"""
# Controls that a keyboard does not reach, or that have no name for those who do not see them.
MUTE = """[...document.querySelectorAll('button, a, input, select, summary')].filter(node => node.tabIndex < 0 ||
  !(node.textContent.trim() || node.ariaLabel || node.labels?.length)).map(node => node.outerHTML.slice(0, 90))"""


def get(demo: Demo, path: str) -> Any:
    """The document of the API at a path."""
    request = Request(demo.url + path, headers={"Authorization": f"Bearer {demo.key}"})
    with urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


@cache
def session(demo: Demo) -> str:
    """A session of the key, for all tests: an account begins few sessions in a minute."""
    body, headers = json.dumps({"key": demo.key}).encode(), {HEADER: "1", "Content-Type": "application/json"}
    with urlopen(Request(f"{demo.url}/dashboard/session", body, headers), timeout=60) as answer:
        cookie: str = answer.headers["Set-Cookie"]
    return cookie.partition("=")[2].partition(";")[0]


@asynccontextmanager
async def opened(
    demo: Demo, folder: Path, path: str, width: int = 1280, theme: str = "light", script: str = ""
) -> AsyncIterator[Page]:
    """A page of the dashboard, logged in."""
    async with browsing(folder / "profile") as page:
        await page.do(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        await page.do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        await page.do("Page.enable")
        await page.do("Page.addScriptToEvaluateOnNewDocument", source=REPORT + script)
        token = await asyncio.to_thread(session, demo)
        cookie = {"name": COOKIE, "value": token, "httpOnly": True, "sameSite": "Strict"}
        await page.do("Network.setCookie", url=demo.url, **cookie)
        await page.open(f"{demo.url}/#/{path}")
        await page.once("document.querySelector('.inner')")
        yield page
        assert await page.says("refusals") == []


def dollars(text: str) -> str:
    """An amount of money as the page shows it."""
    value = Decimal(text)
    sign = "−" if value < 0 else ""
    return f"{sign}${abs(value).quantize(Decimal('0.01'), ROUND_HALF_EVEN):,}"
