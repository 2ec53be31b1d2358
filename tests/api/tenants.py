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
from tests.api.fakes import FakeEngine
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
class Said:
    """An answer: what a client can tell answers apart by, but for the request's id, the time and how many are left."""

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
    """One account with its key, asking."""

    session: ClientSession
    base: str
    account: str
    key: str

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Said:
        """One request; a body of bytes goes out as it is."""
        more: dict[str, Any] = (
            {"data": io.BytesIO(body)} if isinstance(body, bytes) else {} if body is None else {"json": body}
        )
        sent = {"Authorization": f"Bearer {self.key}"} | {name.replace("_", "-"): v for name, v in headers.items()}
        if isinstance(body, bytes):
            sent.setdefault("Content-Type", "application/json")
        url = URL(f"{self.base}{path}", encoded=True)
        async with self.session.request(method, url, headers=sent, **more) as answer:
            told = {name: value for name, value in answer.headers.items() if not name.lower().startswith(UNTRACED)}
            return Said(answer.status, told, await answer.read())

    async def book(self, *addresses: str) -> None:
        """Put addresses into the address book."""
        said = await self.ask("POST", "/v1/addressbook", {"entries": [{"address": each} for each in addresses]})
        assert said.status == 200, said.body

    async def bundle(self, name: str, *addresses: str) -> str:
        """Make a bundle; its id."""
        said = await self.ask("POST", "/v1/bundles", {"name": name, "addresses": addresses})
        assert said.status == 200, said.body
        id: str = said.json["data"]["id"]
        return id

    async def read_all(self) -> list[bytes]:
        """All that the account has, as answered."""
        paths = "/v1/addressbook", "/v1/bundles", "/v1/virtual-users"
        return [(await self.ask("GET", path)).body for path in paths]


@dataclass
class World:
    """A state store, an engine, and who asks."""

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

    async def settled(self, tenant: Tenant) -> Balance:
        """The account's credits, once no running call holds any."""
        for _ in range(500):
            ((available, held, earned),) = self.state.database.read(lambda tx: tx.rows(_BALANCE, owner=tenant.account))
            if not held:
                return Balance(available, held, earned)
            await asyncio.sleep(0.01)
        raise AssertionError(f"{held} credits are still held")

    def held(self, tenant: Tenant) -> int:
        """What running calls of the account hold now."""
        ((_, held, _),) = self.state.database.read(lambda tx: tx.rows(_BALANCE, owner=tenant.account))
        return int(held)

    def counted(self) -> dict[tuple[str, str], int]:
        """How many requests every bucket has let in, by key and bucket."""
        found = self.state.database.read(lambda tx: tx.rows(_BUCKETS))
        return {(key, name): len(bytes(moments)) // 8 for key, name, moments in found}


@asynccontextmanager
async def a_world(store: Path | str, settings: Settings | None = None, engine: Any = None) -> AsyncIterator[World]:
    """The API over a state store: one at an address, or a new one in a folder. `engine`: default a fake."""
    clock = SystemClock()
    url = store if isinstance(store, str) else f"sqlite:///{store / 'state.db'}"
    settings = settings or Settings()
    state = State.open(url, b"p" * 32, clock, random.Random(1), settings.limits.hold_s)
    engine = engine or FakeEngine()
    app = make_app(engine, state, settings, Environment(clock=clock, random=random.Random(2)))
    try:
        # A failure is logged with its traceback, which structlog draws at length where nobody has set it up.
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
