"""The application: routes behind their pipelines, inside the edge that sends every answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from chainfolio.api import dashboard, docs
from chainfolio.api.context import Answer, Context, Parts
from chainfolio.api.dispatch import Paths
from chainfolio.api.edge import edge, error_answer
from chainfolio.api.engine import Engine, LakeQueries
from chainfolio.api.errors import Problem
from chainfolio.api.export_slots import ExportSlots
from chainfolio.api.first_run import Setup
from chainfolio.api.keys import Keys
from chainfolio.api.metrics import Traffic
from chainfolio.api.pipeline import KEYED, PUBLIC, chain_steps
from chainfolio.api.request import MAX_BODY, Request
from chainfolio.api.response_headers import ResponseHeaders
from chainfolio.api.router import Route
from chainfolio.api.routes import ROUTES
from chainfolio.environment import Environment
from chainfolio.errors import Unavailable
from chainfolio.settings import Settings

CONTINUE: Final = "100-continue"
Endpoint = Callable[[Request], Awaitable[Answer]]


@dataclass(eq=False)
class App:
    """The HTTP application that `serve.listening` runs.

    Attributes:
        max_body: Maximum size of a request body in bytes.
        lifespan: Context managers, entered before the first request and left after the last answer.
        restart: Set to end the application, so that the process serves again with the settings as they are then.
    """

    parts: Parts
    routes: Iterable[Route]
    max_body: int = MAX_BODY
    lifespan: list[Callable[[], AbstractAsyncContextManager[object]]] = field(default_factory=list)
    paths: Paths[Endpoint] = field(default_factory=Paths)
    restart: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Register the routes (HEAD beside GET), and prepare the headers and the handler of all requests."""
        for route in self.routes:
            self.add(route)
        self.response_headers = ResponseHeaders(self.parts.settings.server, self.parts.signature)
        self.serve = edge(self.parts, self.response_headers, self.max_body, self.answer)

    def add(self, route: Route) -> None:
        """Add a route before the application serves."""
        target = endpoint(route, self.parts)
        for method in ("GET", "HEAD") if route.method == "GET" else (route.method,):
            self.paths.add(method, route.path, target)

    def unreadable(self) -> web.Response:
        """Return the answer to bytes that are not an HTTP request."""
        return self.response_headers.unreadable()

    def announce_stop(self) -> None:
        """Answer `/readyz` with 503, and close each connection after its next answer, from now on."""
        self.parts.stopping.set()
        self.response_headers.draining = True

    def drain(self) -> None:
        """Announce the stop, and end streams of events."""
        self.announce_stop()
        self.parts.streams.end()

    async def answer(self, request: Request) -> Answer:
        """Return the answer of the route at the request's path; OPTIONS is answered for every known path.

        Raises:
            Problem: 404 for an unknown path, 405 for a method that the path does not have.
        """
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
    setup: Setup | None = None,
    lake: LakeQueries | None = None,
) -> App:
    """Return the application over an engine and a state store, which the caller opens and closes.

    `signature` holds headers that every answer gets; `setup` adds chains for the dashboard; `lake` runs
    queries in SQL.
    """
    traffic = Traffic(state.meter.credit_totals)
    secret = state.secret("cursors")
    sql = ExportSlots("queries", settings.sql.at_once)
    parts = Parts(
        engine, state, settings, environment, traffic, secret, signature or {}, sql=sql, lake=lake, setup=setup
    )
    return App(parts, (*ROUTES, *docs.routes(ROUTES, settings), *dashboard.ROUTES))


def endpoint(route: Route, parts: Parts) -> Endpoint:
    """Return a function that runs a route's pipeline within its time limit; errors become answers."""
    run, limits = chain_steps(PUBLIC if route.public else KEYED), parts.settings.limits
    limit_s = limits.export_s if route.is_slow else limits.request_s

    async def answer(request: Request) -> Answer:
        """Run the pipeline; every error, also a Problem, becomes an answer."""
        request.operation, request.route = route.name, route.path
        try:
            if request.headers.get("Expect", CONTINUE).lower() != CONTINUE:
                raise Problem(417, f"only `Expect: {CONTINUE}` is met here")
            async with asyncio.timeout(limit_s):
                return await run(Context(request, route, parts))
        except TimeoutError:
            late = Unavailable("the server", f"the answer took longer than {limit_s} s", retry_after_s=5)
            return error_answer(late, request, route.envelope)
        except web.HTTPRequestEntityTooLarge:
            return error_answer(Problem(413, "the body is too long"), request)
        except Exception as error:  # every refusal and failure of the route, in the error format of its family
            return error_answer(error, request, route.envelope)

    return answer
