"""GET /openapi.json and /docs: the interface description, for programs and for people."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from threading import Lock

import msgspec

from chainfolio.api.context import Answer, Context
from chainfolio.api.openapi import describe
from chainfolio.api.router import Route, get
from chainfolio.settings import Settings

TAG = "Documentation"


def routes(api_routes: Sequence[Route], settings: Settings) -> tuple[Route, ...]:
    """Return the documentation routes, which describe `api_routes` and themselves."""
    made: list[bytes] = []
    lock = Lock()

    def document() -> bytes:
        """Return the description. The first request makes it, because that takes a tenth of a second."""
        with lock:  # requests that arrive meanwhile do not make it again
            if not made:
                description = describe((*api_routes, *page_routes), settings)
                made.append(msgspec.json.format(msgspec.json.encode(description), indent=2))
        return made[0]

    @get("/openapi.json", tag=TAG, summary="This description, OpenAPI 3.1", public=True)
    async def openapi(request: Context) -> Answer:
        """Returns the OpenAPI description, which is generated from the routes."""
        return Answer(made[0] if made else await asyncio.to_thread(document), headers={"Cache-Control": "no-cache"})

    page_routes = (openapi, page)
    return page_routes


@get("/docs", tag=TAG, summary="This description, to read and to try", public=True, media="text/html")
async def page(request: Context) -> Answer:
    """Returns an HTML page that loads nothing from other servers."""
    html, policy = _page()
    return Answer(html, 200, "text/html", {"Cache-Control": "no-cache", "Content-Security-Policy": policy})


@cache
def _page() -> tuple[bytes, str]:
    """Return the page with style and scripts inlined, and a Content-Security-Policy for only those."""
    folder = resources.files("chainfolio.api") / "static"
    names = ("docs.html", "docs.css", "charts.js", "docs.js")
    html, style, charts, script = ((folder / name).read_text("utf-8") for name in names)
    policy = (
        f"default-src 'none'; script-src '{_hash(charts)}' '{_hash(script)}'; style-src '{_hash(style)}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    page = html.replace("/*style*/", style).replace("/*charts*/", charts).replace("/*script*/", script)
    return page.encode(), policy


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
