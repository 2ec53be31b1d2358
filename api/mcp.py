"""POST /mcp: the Model Context Protocol over streamable HTTP.

Keys, limits and credits are those of the API.

Each message is a request of its own and is answered with JSON: there are no sessions, so any process can answer. A call
of a tool costs what the route with the same answer costs. Other messages are free.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import msgspec

from chainfolio import __version__
from chainfolio.agents.server import HTTP_TOOLS, build_server
from chainfolio.agents.tools import Services, Tools
from chainfolio.api import approvals, at_block, gains, nav, performance, portfolio, protocols, transactions
from chainfolio.api.context import Answer, Context
from chainfolio.api.entitlement import missing
from chainfolio.api.errors import Problem
from chainfolio.api.historical import require_subscriptions
from chainfolio.api.router import Arguments, Route, write
from chainfolio.assets import account
from chainfolio.errors import NotSupported
from chainfolio.storage.state import ledger

if TYPE_CHECKING:
    from chainfolio.api.app import App
    from chainfolio.api.keys import Keys
    from chainfolio.engine.service import Engine

PATH: Final = "/mcp"
CALL: Final = "tools/call"
ROUTES_OF_TOOLS: Final[dict[str, Route]] = {
    "portfolio": portfolio.portfolio,
    "net_worth": nav.nav,
    "transactions": transactions.transactions,
    "approvals": approvals.approvals,
    "gains": gains.gains,
    "performance": performance.performance,
    "price": portfolio.portfolio,
    "validator": portfolio.portfolio,
    "token": portfolio.portfolio,
    "protocol": protocols.contract_protocol,
}
_ACCOUNT: ContextVar[str] = ContextVar("account of the MCP client")


class Message(msgspec.Struct, frozen=True):
    """A message of JSON-RPC: what decides its cost. The SDK reads the rest."""

    method: str = ""
    params: dict[str, Any] = {}

    @property
    def tool(self) -> str:
        """Name of the called tool; empty for other messages."""
        name = self.params.get("name")
        return name if self.method == CALL and isinstance(name, str) else ""

    @property
    def inputs(self) -> dict[str, Any]:
        """Arguments of the called tool."""
        inputs = self.params.get("arguments")
        return inputs if isinstance(inputs, dict) else {}

    @property
    def route(self) -> Route | None:
        """The route whose entitlement and cost count for the call; None if it is free."""
        if self.tool == "portfolio" and self.inputs.get("block") is not None:
            return at_block.portfolio_at_block
        return ROUTES_OF_TOOLS.get(self.tool)


def units(arguments: Arguments) -> int:
    """Return the credits of a message: of a tool, those of its route."""
    message: Message = arguments["body"]
    return 0 if message.route is None else message.route.cost


def check(request: Context, body: Message) -> None:
    """Raise a Problem if the account lacks the entitlement of a tool, or if its arguments are not valid.

    `addresses` have to be a list of texts, at most as many as one call may have. The tool for a portfolio at a block
    needs a known chain.
    """
    route, now_us = body.route, request.parts.environment.clock.now_us()
    if route is not None and (problem := missing(route, request.principal, now_us)):
        raise problem
    addresses, most = body.inputs.get("addresses", []), request.parts.settings.server.max_addresses
    if not isinstance(addresses, list) or not all(isinstance(each, str) for each in addresses):
        raise Problem(400, "`addresses` is no list of texts")  # the SDK would take a list inside a text
    if len(addresses) > most:
        raise Problem(400, f"{len(addresses)} addresses; at most {most} are answered in one call")
    if route is at_block.portfolio_at_block:
        at_block.check_chain(body.inputs.get("chain"), request.parts.settings)


async def allow(request: Context, body: Message) -> None:
    """Raise a 403 Problem if a tool about past days names an address without a historical subscription."""
    if body.tool == "performance":
        await require_subscriptions(request, [account(each) for each in body.inputs.get("addresses", [])])


class Manager(Protocol):
    """The session manager of the SDK, as it is used here."""

    def run(self) -> AbstractAsyncContextManager[None]:
        """Run the tasks of requests during the block."""

    async def handle_request(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request of ASGI."""


def add_mcp(app: App, engine: Engine, state: Keys) -> None:
    """Add the route to an application.

    Raises:
        MissingDependency: The SDK is not installed.
    """

    async def credits() -> int:
        owner = _ACCOUNT.get()
        return await state.read(lambda tx: ledger.available(tx, owner))

    server = build_server(Tools(engine, Services(_absent, _absent, credits)), __version__, HTTP_TOOLS)
    manager = _manager(server)

    @write(
        "POST",
        PATH,
        tag="Service",
        summary="Model Context Protocol",
        needs="portfolio",
        reads=True,
        units=units,
        check=check,
        allow=allow,
    )
    async def mcp(request: Context, body: Message) -> Answer:
        """Answers one message of a language model's client."""
        _ACCOUNT.set(request.principal.account_id)
        answer = await _exchange(manager, request, await request.http.read())
        if request.http.charge is not None and _is_error(answer.body):
            charge, request.http.charge = request.http.charge, None
            await charge.void()  # only answers cost credits
        return answer

    app.add(mcp)
    app.lifespan.append(manager.run)


def _manager(server: Any) -> Manager:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager  # 200 ms, and only with the extra

    return StreamableHTTPSessionManager(server._lowlevel_server, json_response=True, stateless=True)


async def _exchange(manager: Manager, request: Context, body: bytes) -> Answer:
    """Pass a request to the SDK, which speaks ASGI, and return its answer.

    The SDK does not get the headers Authorization and Cookie.
    """
    headers = [(name.lower().encode(), value.encode()) for name, value in request.http.headers.items()]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name, value) for name, value in headers if name not in (b"authorization", b"cookie")],
        "client": None,
        "server": None,
        "state": {},
    }
    status, sent_headers, parts = 500, dict[str, str](), list[bytes]()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status, sent_headers
        if message["type"] == "http.response.start":
            status = message["status"]
            sent_headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            parts.append(message.get("body", b""))

    await manager.handle_request(scope, receive, send)
    return Answer(b"".join(parts), status, sent_headers.get("content-type", "application/json"))


def _is_error(body: bytes) -> bool:
    """Return True if a tool failed: the protocol answers such a call with 200."""
    try:
        answer = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return True
    result = answer.get("result") if isinstance(answer, dict) else None
    return not isinstance(result, dict) or bool(result.get("isError"))


async def _absent(*_: object) -> NoReturn:
    raise NotSupported("this tool is not offered over HTTP")
