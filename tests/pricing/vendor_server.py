"""A web server in place of a vendor, which records its requests and answers by a function."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.environment import Environment
from chainfolio.plans import run_batched
from chainfolio.price_sources import PriceSource, Quotes
from chainfolio.pricing.http_reads import Http
from chainfolio.pricing.source_chain import query_sources

NOW_S = 1_760_000_000
BLOCK = Block(100, "0xaa", "0xbb", NOW_S * 1_000_000)
Answer = Callable[[web.Request], str | bytes | int | web.Response | None]


@dataclass
class Vendor:
    """A vendor on a free port.

    `answer` returns a response, a body or a status; at None the vendor never answers.
    """

    answer: Answer
    url: str = ""
    requests: list[web.Request] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Return the response to a request."""
        self.requests.append(request)
        response = self.answer(request)
        if response is None:
            await asyncio.Event().wait()
        if isinstance(response, web.Response):
            return response
        if isinstance(response, int):
            return web.Response(status=response)
        return web.Response(body=response if isinstance(response, bytes) else str(response).encode())


@asynccontextmanager
async def vendor(answer: Answer) -> AsyncIterator[Vendor]:
    """Run a vendor within the context."""
    server, app = Vendor(answer), web.Application()
    app.router.add_get("/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()


class Clock:
    """A clock that stands still and advances by the seconds of each sleep."""

    def __init__(self, now_s: int = NOW_S) -> None:
        self.now_s, self.waited_s = now_s, 0.0

    def now_us(self) -> int:
        return self.now_s * 1_000_000

    def monotonic_s(self) -> float:
        return self.waited_s

    async def sleep(self, seconds: float) -> None:
        self.waited_s += seconds


@asynccontextmanager
async def sending(now_s: int = NOW_S, **bounds: Any) -> AsyncIterator[Http]:
    """Yield a transport for HTTP reads whose clock stands at `now_s`."""
    http = Http(Environment(clock=Clock(now_s)), **bounds)
    try:
        yield http
    finally:
        await http.close()


async def priced(
    http: Http, source: PriceSource | list[PriceSource], assets: Sequence[Asset], *blocks: Block
) -> list[Quotes]:
    """Return the quotes of one or several sources at each block, in rounds that the blocks share."""
    sources = source if isinstance(source, list) else [source]
    plans = {str(at): query_sources(sources, assets, block) for at, block in enumerate(blocks or (BLOCK,))}
    reports = await run_batched(plans, http.read)
    for report in reports.values():
        assert report.error is None, report.reason
    return [report.result or Quotes() for report in reports.values()]
