"""Serve the dashboard's page *Start*: check an endpoint, show a portfolio, keep the chain.

The routes are below /dashboard/start. They belong to the page, and only answer the session that began with the one-time
link of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Protocol, cast

import msgspec

from chainfolio.api.auth import caller, session_of
from chainfolio.api.context import Answer, Context
from chainfolio.api.errors import Problem
from chainfolio.api.keys import Principal
from chainfolio.api.router import Route, get, write
from chainfolio.errors import BadRequest, ChainfolioError

TAG: Final = "Dashboard"
ONLY_OWNER: Final = "only the session that began with the link of `chainfolio serve` on this machine may add chains"
NO_SETUP: Final = "this server cannot add chains: that needs `chainfolio serve` with one process on a loopback address"


class KnownChain(msgspec.Struct, frozen=True):
    """A chain that can be added, or that the settings have already."""

    key: str
    kind: str
    name: str
    configured: bool


class Start(msgspec.Struct, frozen=True):
    """The first data of the page: whether this session may add chains, else why not; known chains.

    `nodes` has the address where a node of each kind listens on this machine by default.
    """

    allowed: bool
    reason: str = ""
    settings: str = ""
    chains: list[KnownChain] = []
    nodes: Mapping[str, str] = {}


class CheckedAccount(msgspec.Struct, frozen=True):
    """An address or name of the form, and its account on the endpoint's chain, or the problem with it."""

    text: str
    address: str = ""
    notes: list[str] = []
    problem: str = ""


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """An endpoint and its chain as `chainfolio doctor` reports them; `ok` is True if it can be used.

    A `problem` of an endpoint that can be used is a warning.
    """

    endpoint: str
    ok: bool = False
    problem: str = ""
    remedy: str = ""
    chain: KnownChain | None = None
    row: dict[str, Any] = {}
    lacks: list[str] = []
    accounts: list[CheckedAccount] = []


class Preview(msgspec.Struct, frozen=True):
    """The settings file as it is, with masked secrets, and the lines that would be added.

    `seen` identifies the content of the file; empty if there is none.
    """

    path: str
    before: str
    added: str
    seen: str


class Endpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An endpoint, as a URL or `env:NAME`, and the key of the chain that it has to serve; empty for any."""

    rpc: Annotated[str, msgspec.Meta(min_length=1, max_length=2048)]
    chain: Annotated[str, msgspec.Meta(max_length=64)] = ""


class Request(Endpoint, frozen=True, forbid_unknown_fields=True):
    """An endpoint, and addresses or names of the accounts to show."""

    addresses: Annotated[list[Annotated[str, msgspec.Meta(max_length=256)]], msgspec.Meta(max_length=100)] = []


class Change(Endpoint, frozen=True, forbid_unknown_fields=True):
    """An endpoint to keep; `seen` is that of the preview which the user has confirmed."""

    seen: Annotated[str, msgspec.Meta(max_length=64)] = ""


class Setup(Protocol):
    """Checks endpoints of chains that are not configured yet, and adds chains to the settings file."""

    async def is_owner(self, principal: Principal) -> bool:
        """Return True for a valid session of the machine's owner that began with a link."""

    def start(self) -> Start:
        """Return what the page begins with."""

    async def check(self, request: Request) -> Report:
        """Read an endpoint as `doctor` does. Its errors are in the report."""

    async def portfolios(self, request: Request) -> bytes:
        """Return the portfolios of the accounts as JSON, and store nothing. Raises ChainfolioError."""

    async def preview(self, endpoint: Endpoint) -> Preview:
        """Return what `keep` would write. Raises ChainfolioError, or Problem if it cannot be written."""

    async def keep(self, change: Change) -> Preview:
        """Write the chain into the settings file, and serve it from now on. Raises as `preview` does."""


@get("/dashboard/start", tag=TAG, summary="Whether chains can be added", public=True)
async def start(request: Context) -> Start:
    """Returns the known chains, or why this session may not add one."""
    try:
        return (await _setup(request)).start()
    except Problem as refusal:
        if refusal.status != 403:
            raise
        return Start(allowed=False, reason=refusal.message)


@write("POST", "/dashboard/start/check", tag=TAG, summary="Check an endpoint", public=True)
async def check_endpoint(request: Context, body: Request) -> Report:
    """Returns the chain of an endpoint, and what `chainfolio doctor` reports of it."""
    return await (await _setup(request)).check(body)


@write("POST", "/dashboard/start/portfolio", tag=TAG, summary="Portfolios at an endpoint", public=True)
async def first_portfolio(request: Context, body: Request) -> Answer:
    """Returns portfolios as `/v1/portfolio` does, read at an endpoint that is not configured."""
    setup = await _setup(request)
    try:
        return Answer(await setup.portfolios(body))
    except ChainfolioError as error:
        raise _problem(error) from None


@write("POST", "/dashboard/start/preview", tag=TAG, summary="The settings with a new chain", public=True)
async def preview_settings(request: Context, body: Endpoint) -> Preview:
    """Returns the settings file as it is, and the lines that `keep` would add."""
    setup = await _setup(request)
    try:
        return await setup.preview(body)
    except ChainfolioError as error:
        raise _problem(error) from None


@write("POST", "/dashboard/start/keep", tag=TAG, summary="Add a chain to the settings", public=True)
async def keep_chain(request: Context, body: Change) -> Preview:
    """Writes the chain into the settings file, and serves it. 409 if the file has changed since."""
    setup = await _setup(request)
    try:
        return await setup.keep(body)
    except ChainfolioError as error:
        raise _problem(error) from None


ROUTES: Final[tuple[Route, ...]] = (start, check_endpoint, first_portfolio, preview_settings, keep_chain)


async def _setup(request: Context) -> Setup:
    """Return the setup of the process; a 401 Problem without a session, 403 if it is not the owner's."""
    principal = request.http.principal = await caller(request)
    setup = cast(Setup | None, request.parts.setup)
    if setup is None:
        raise Problem(403, NO_SETUP)
    if session_of(request.http) is None or not await setup.is_owner(principal):
        raise Problem(403, ONLY_OWNER)
    return setup


def _problem(error: ChainfolioError) -> Problem:
    """Return the refusal with the error's own text: it is for the owner, and has no URL of an endpoint."""
    return Problem(400 if isinstance(error, BadRequest) else 502, error.message)
