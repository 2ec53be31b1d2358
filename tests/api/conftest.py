"""The application over fakes, really listening; a client of it, with and without its key."""

from __future__ import annotations

import string
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import ClientResponse, ClientSession
from yarl import URL

from chainfolio.api import event_streams
from chainfolio.api.serve import listening
from chainfolio.settings import Server
from tests.api.fakes import KEY, FakeEngine, FakeKeys, an_app
from tests.api.sessions import client_session
from tests.storage.stores import Stores

Ask = Callable[..., Awaitable[ClientResponse]]


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.slow("the same requests over a store whose own tests are fast")),
    ]
)
def state_url(request: pytest.FixtureRequest, stores: Stores) -> str:
    """Return the URL of a new state store, of each kind (`tests/storage` compares the kinds)."""
    return stores.url(request.param)


@pytest.fixture(autouse=True)
def short_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """End each stream of events after its first one: tests over all routes read whole answers."""
    monkeypatch.setattr(event_streams, "LIFE_S", 0.0)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def keys() -> FakeKeys:
    return FakeKeys()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def port(engine: FakeEngine, keys: FakeKeys, server: Server) -> AsyncIterator[int]:
    async with listening(an_app(engine, keys, server), "127.0.0.1", 0, drain_s=0.1) as bound:
        yield bound


@pytest.fixture
async def client(port: int) -> AsyncIterator[ClientSession]:
    async with client_session(f"http://127.0.0.1:{port}") as session:
        yield session


@pytest.fixture
def ask(client: ClientSession, port: int) -> Ask:
    """GET, or another method, with the key; the path goes out as it is written here."""

    async def send_request(path: str, method: str = "GET", **options: Any) -> ClientResponse:
        headers = {"Authorization": f"Bearer {KEY}", **options.pop("headers", {})}
        url = URL(f"http://127.0.0.1:{port}{quote(path, safe=string.punctuation)}", encoded=True)
        return await client.request(method, url, headers=headers, allow_redirects=False, **options)

    return send_request
