"""A web server of prices: one answer of each kind, and what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class Server:
    """A web server on a free port, with the requests that it received."""

    url: str = ""
    requests: list[web.Request] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Return the response of each path."""
        self.requests.append(request)
        match request.path:
            case "/price":
                return web.json_response({"asked": dict(request.query)})
            case "/usd":
                return web.Response(text="1234.5")
            case "/away":
                return web.Response(status=302, headers={"Location": f"{self.url}/price"})
            case "/long":
                return web.Response(body=b"x" * 5000)
            case "/slow":
                await asyncio.Event().wait()
        return web.Response(status=503)


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    """Run a server within the context."""
    server, app = Server(), web.Application()
    app.router.add_get("/{path}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()
