"""The application: the routes of api/routes.py, each behind its pipeline, and what every answer has around them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from chainfolio.api import docs
from chainfolio.api.context import Answer, Context, Parts
from chainfolio.api.dispatch import Paths
from chainfolio.api.edge import edge, error_answer
from chainfolio.api.engine import Engine
from chainfolio.api.errors import Problem
from chainfolio.api.keys import Keys
from chainfolio.api.metrics import Traffic
from chainfolio.api.pipeline import KEYED, PUBLIC, chained
from chainfolio.api.request import MAX_BODY, Request
from chainfolio.api.response_headers import ResponseHeaders
from chainfolio.api.router import Route
from chainfolio.api.routes import ROUTES
from chainfolio.environment import Environment
from chainfolio.errors import Unavailable
from chainfolio.settings import Settings

GO_ON: Final = "100-continue"
Endpoint = Callable[[Request], Awaitable[Answer]]


@dataclass(eq=False)
class App:
    """What is served, as `serve.listening` takes it. `max_body` is in bytes.

    `lifespan` is entered before the first request is taken, and left after the last one is answered.
    """

    parts: Parts
    routes: Iterable[Route]
    max_body: int = MAX_BODY
    lifespan: list[Callable[[], AbstractAsyncContextManager[object]]] = field(default_factory=list)
    paths: Paths[Endpoint] = field(default_factory=Paths)

    def __post_init__(self) -> None:
        for route in self.routes:
            target = endpoint(route, self.parts)
            for method in ("GET", "HEAD") if route.method == "GET" else (route.method,):
                self.paths.add(method, route.path, target)
        self.heads = ResponseHeaders(self.parts.settings.server, self.parts.signature)
        self.serve = edge(self.parts, self.heads, self.max_body, self.answer)

    def unreadable(self) -> web.Response:
        """What is answered to bytes that are no HTTP request."""
        return self.heads.unreadable()

    def drain(self) -> None:
        """Tell every client from now on that its answer is the last one on its connection."""
        self.heads.draining = True

    async def answer(self, request: Request) -> Answer:
        """What is answered at a request's path. Every path there is answers OPTIONS, and refuses what it has not."""
        target, request.match, allowed = self.paths.find(request.method, request.rel_url.path_safe)
        if target is not None:
            return await target(request)
        if not allowed:
            raise Problem(404, "there is nothing at this path; /docs lists what there is")
        allow = ", ".join(sorted({*allowed, "OPTIONS"}))
        if request.method == "OPTIONS":
            return Answer(b"", 204, headers={"Allow": allow})
        raise Problem(405, f"this path takes {allow}", headers={"Allow": allow})


def make_app(
    engine: Engine,
    state: Keys,
    settings: Settings,
    environment: Environment,
    signature: Mapping[str, str] | None = None,
) -> App:
    """Everything the API serves, over an engine and a state store that somebody else opened and closes."""
    traffic = Traffic(state.meter.credit_totals)
    parts = Parts(engine, state, settings, environment, traffic, state.secret("cursors"), signature or {})
    return App(parts, (*ROUTES, *docs.routes(ROUTES, settings)))


def endpoint(route: Route, parts: Parts) -> Endpoint:
    """A route behind its pipeline."""
    run, limit_s = chained(PUBLIC if route.public else KEYED), parts.settings.limits.request_s

    async def answer(request: Request) -> Answer:
        request.operation, request.route = route.name, route.path
        try:
            if request.headers.get("Expect", GO_ON).lower() != GO_ON:
                raise Problem(417, f"only `Expect: {GO_ON}` is met here")
            async with asyncio.timeout(limit_s):
                return await run(Context(request, route, parts))
        except TimeoutError:
            late = Unavailable("the server", f"the answer took longer than {limit_s} s", retry_after_s=5)
            return error_answer(late, request, route.envelope)
        except web.HTTPRequestEntityTooLarge:
            return error_answer(Problem(413, "the body is too long"), request)
        except Exception as error:  # every refusal and failure of the route, in its family's words
            return error_answer(error, request, route.envelope)

    return answer
