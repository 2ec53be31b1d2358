"""The application: the routes of `api.routes`, each behind its pipeline, and what every answer has around them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from api import docs
from api.context import Context, Parts
from api.edge import ALWAYS, CALLER, OPERATION, REQUEST_ID, edge, refused, sent
from api.engine import Engine
from api.errors import Problem, refusal
from api.keys import Keys
from api.metrics import Traffic
from api.pipeline import KEYED, PUBLIC, chained
from api.router import Route
from api.routes import ROUTES
from api.schema import MAX_BODY
from chainfolio.seams import Seams
from chainfolio.settings import Settings

PARTS: Final = web.AppKey("parts", Parts)


def make_app(engine: Engine, state: Keys, settings: Settings, seams: Seams) -> web.Application:
    """Everything the API serves, over an engine and a state store that somebody else opened and closes."""
    traffic = Traffic(state.meter.moved)
    parts = Parts(engine, state, settings, seams, traffic, state.secret("cursors"))
    app = web.Application(middlewares=[edge(parts)], client_max_size=MAX_BODY)
    app[PARTS] = parts
    for route in (*ROUTES, *docs.routes(ROUTES, settings)):
        for method in ("GET", "HEAD") if route.method == "GET" else (route.method,):
            app.router.add_route(method, route.path, endpoint(route, parts), expect_handler=expected)
    return app


def endpoint(route: Route, parts: Parts) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A route behind its pipeline, as the web server calls it."""
    run = chained(PUBLIC if route.public else KEYED)

    async def answer(request: web.Request) -> web.Response:
        request[OPERATION] = route.name
        context = Context(request, route, parts, request[REQUEST_ID])
        try:
            response = sent(await run(context))
        except web.HTTPException:
            raise  # the server's own, such as a body that is too long
        except Exception as error:  # every refusal and failure of the route, in its family's words
            response = refused(error, request, route.envelope)
        response.headers.update(context.headers)
        if context.principal is not None:
            request[CALLER].update(account=context.principal.account_id, key=context.principal.key_id)
        return response

    return answer


async def expected(request: web.Request) -> web.Response | None:
    """What a client waits for before it sends its body: to be told to go on, and nothing else."""
    if request.headers.get("Expect", "").lower() != "100-continue":
        told = refusal("whole", Problem(417, "only `Expect: 100-continue` is met here"))
        headers = {**ALWAYS, "Cache-Control": "no-store"}
        return web.Response(body=told.body, status=told.status, content_type=told.content_type, headers=headers)
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # the answer itself has not begun
    return None
