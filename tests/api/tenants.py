"""Two accounts over a real state store, and the API in front of it, really listening."""

from __future__ import annotations

import asyncio
import io
import json
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from aiohttp import ClientSession
from structlog.testing import capture_logs
from yarl import URL

from chainfolio.api.app import make_app
from chainfolio.api.serve import listening
from chainfolio.environment import Environment, SystemClock
from chainfolio.settings import Settings
from chainfolio.storage.state import State, ledger, schema
from chainfolio.storage.state.database import Statement, argument
from chainfolio.storage.state.ledger import Balance
from tests.api.fakes import FakeEngine, FakeLake
from tests.api.sessions import client_session

_BALANCES, _OF_KEYS = schema.balances, schema.buckets
_BALANCE = Statement(
    sa.select(_BALANCES.c.available, _BALANCES.c.held, _BALANCES.c.earned).where(
        _BALANCES.c.account_id == argument("owner")
    )
)
_BUCKETS = Statement(sa.select(_OF_KEYS.c.key_id, _OF_KEYS.c.name, _OF_KEYS.c.moments))
UNTRACED = ("x-request-id", "date", "x-ratelimit", "ratelimit")


@dataclass(frozen=True)
class ApiResponse:
    """An answer without its request id, time and rate-limit headers, for comparisons."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, read."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of a refusal."""
        code: str = self.json["error"]["code"]
        return code


@dataclass
class Tenant:
    """One account with its key."""

    session: ClientSession
    base: str
    account: str
    key: str

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> ApiResponse:
        """One request; a body of bytes goes out as it is."""
        content: dict[str, Any] = (
            {"data": io.BytesIO(body)} if isinstance(body, bytes) else {} if body is None else {"json": body}
        )
        request_headers = {"Authorization": f"Bearer {self.key}"} | {
            name.replace("_", "-"): v for name, v in headers.items()
        }
        if isinstance(body, bytes):
            request_headers.setdefault("Content-Type", "application/json")
        url = URL(f"{self.base}{path}", encoded=True)
        async with self.session.request(method, url, headers=request_headers, **content) as answer:
            response_headers = {
                name: value for name, value in answer.headers.items() if not name.lower().startswith(UNTRACED)
            }
            return ApiResponse(answer.status, response_headers, await answer.read())

    async def book(self, *addresses: str) -> None:
        """Put addresses into the address book."""
        response = await self.ask("POST", "/v1/addressbook", {"entries": [{"address": each} for each in addresses]})
        assert response.status == 200, response.body

    async def bundle(self, name: str, *addresses: str) -> str:
        """Make a bundle; its id."""
        response = await self.ask("POST", "/v1/bundles", {"name": name, "addresses": addresses})
        assert response.status == 200, response.body
        id: str = response.json["data"]["id"]
        return id

    async def read_all(self) -> list[bytes]:
        """Return the answers that list all objects of the account."""
        paths = "/v1/addressbook", "/v1/bundles", "/v1/virtual-users"
        return [(await self.ask("GET", path)).body for path in paths]


@dataclass
class World:
    """A state store, an engine, and a client."""

    state: State
    engine: FakeEngine
    session: ClientSession
    base: str

    def tenant(
        self,
        name: str,
        plan: str = "PRO",
        expires: int | None = None,
        *,
        grants: Iterable[str] = ("portfolio",),
        credits: int = 1_000_000,
    ) -> Tenant:
        """One more account."""
        account, key = self.state.create_account(name, plan, credits, grants, expires)
        return Tenant(self.session, self.base, account.id, key)

    async def settled_balance(self, tenant: Tenant) -> Balance:
        """The account's credits, once no running call holds any."""
        for _ in range(500):
            ((available, reserved, spent),) = self.state.database.read(
                lambda tx: tx.rows(_BALANCE, owner=tenant.account)
            )
            if not reserved:
                return Balance(available, reserved, spent)
            await asyncio.sleep(0.01)
        raise AssertionError(f"{reserved} credits are still held")

    def held_credits(self, tenant: Tenant) -> int:
        """Return the credits that running calls of the account hold."""
        ((_, reserved, _),) = self.state.database.read(lambda tx: tx.rows(_BALANCE, owner=tenant.account))
        return int(reserved)

    def request_counts(self) -> dict[tuple[str, str], int]:
        """Return the number of admitted requests by key and bucket."""
        rows = self.state.database.read(lambda tx: tx.rows(_BUCKETS))
        return {(key, name): len(bytes(moments)) // 8 for key, name, moments in rows}


@asynccontextmanager
async def a_world(
    store: Path | str, settings: Settings | None = None, engine: Any = None, lake: Any = None
) -> AsyncIterator[World]:
    """The API over a state store: one at an address, or a new one in a folder. `engine`, `lake`: default fakes."""
    clock = SystemClock()
    url = store if isinstance(store, str) else f"sqlite:///{store / 'state.db'}"
    settings = settings or Settings()
    state = State.open(url, b"p" * 32, clock, random.Random(1), settings.limits.hold_s)
    engine = engine or FakeEngine()
    environment = Environment(clock=clock, random=random.Random(2))
    app = make_app(engine, state, settings, environment, lake=lake or FakeLake())
    try:
        # Without a configured log, structlog prints long tracebacks of failures.
        with capture_logs():
            async with listening(app, "127.0.0.1", 0, drain_s=0.1) as port, client_session() as session:
                yield World(state, engine, session, f"http://127.0.0.1:{port}")
    finally:
        await state.meter.close()
        unsound = state.database.read(ledger.check)
        state.close()
    assert unsound == []


def wallet(number: int) -> str:
    """An EVM address."""
    return f"0x{number:040x}"


def encoded(text: str) -> str:
    """A segment of a path, as clients write it."""
    return quote(text, safe="")
