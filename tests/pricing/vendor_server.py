"""A web server that stands for a vendor: it answers what a function says, and counts what it was asked."""

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
    """A vendor at a port of its own. `answer` gives a body, or a status; None never answers."""

    answer: Answer
    url: str = ""
    asked: list[web.Request] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """What each request is answered."""
        self.asked.append(request)
        found = self.answer(request)
        if found is None:
            await asyncio.Event().wait()
        if isinstance(found, web.Response):
            return found
        if isinstance(found, int):
            return web.Response(status=found)
        return web.Response(body=found if isinstance(found, bytes) else str(found).encode())


@asynccontextmanager
async def vendor(answer: Answer) -> AsyncIterator[Vendor]:
    """A vendor that runs meanwhile."""
    found, app = Vendor(answer), web.Application()
    app.router.add_get("/{path:.*}", found.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    found.url = f"http://{host}:{port}"
    try:
        yield found
    finally:
        await runner.cleanup()


class Clock:
    """A clock that stands still, and goes on where somebody waits."""

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
    """What sends HTTP reads, at a time."""
    http = Http(Environment(clock=Clock(now_s)), **bounds)
    try:
        yield http
    finally:
        await http.close()


async def priced(
    http: Http, source: PriceSource | list[PriceSource], assets: Sequence[Asset], *blocks: Block
) -> list[Quotes]:
    """What the chain of sources makes of one source, at each block, in rounds that the blocks share."""
    sources = source if isinstance(source, list) else [source]
    plans = {str(at): query_sources(sources, assets, block) for at, block in enumerate(blocks or (BLOCK,))}
    reports = await run_batched(plans, http.read)
    for report in reports.values():
        assert report.error is None, report.reason
    return [report.result or Quotes() for report in reports.values()]
