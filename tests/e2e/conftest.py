"""A whole system: a real local chain with trades on it, its index, and the API over it on a free port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession
from structlog.testing import capture_logs

from chainfolio.api.serve import listening
from chainfolio.cli.demo import WALLETS, prepare
from chainfolio.cli.serve import indexing
from chainfolio.cli.state_store import open_state
from chainfolio.engine.history.day_blocks import midnight_us
from chainfolio.environment import SystemClock
from chainfolio.localchain.deploy import Deployment, deploy
from chainfolio.localchain.evm import Tx
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import trade
from chainfolio.settings import Settings
from tests.api.sessions import client_session

BLOCKS = 40
PATIENCE_S = 60
HURRY = 20  # how much faster than the real ones the waits between two looks at the chain pass here


@dataclass(frozen=True)
class World:
    """A chain with a history."""

    node: LocalNode
    deployment: Deployment

    @property
    def wallets(self) -> dict[str, str]:
        """The wallets of the demo, by name, as answers write them."""
        return {name: self.deployment.accounts[name].lower() for name in WALLETS}


def history(node: LocalNode) -> World:
    """Make the same blocks each time, to the hash."""
    deployment = deploy(node)
    trade(node, deployment, BLOCKS)
    return World(node, deployment)


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    with LocalNode() as node:
        yield history(node)


@contextmanager
def paid_daily(days: Sequence[date]) -> Iterator[World]:
    """A chain that lives through some days: as each begins, Alice pays Carol. All of it is final."""
    with LocalNode(timestamp=midnight_us(days[0]) // 1_000_000 - 86_400) as node:
        days_world = history(node)
        alice, carol = (days_world.deployment.accounts[name] for name in ("alice", "carol"))
        for day in days:
            midnight_s = midnight_us(day) // 1_000_000
            node.rpc("evm_setNextBlockTimestamp", midnight_s - 1)
            node.mine()
            node.rpc("evm_setNextBlockTimestamp", midnight_s)
            node.settle([Tx(alice, carol, value=10**15 * day.day, gas=21_000)])
        node.mine(200)
        yield days_world


@dataclass(frozen=True)
class Server:
    """An API that listens, and a client that has a key to it."""

    url: str
    key: str
    client: ClientSession
    tick: asyncio.Event  # set whenever a task in the server has finished a step and pauses

    async def get(self, path: str, *, key: str | None = None) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers."""
        headers = {"Authorization": f"Bearer {self.key if key is None else key}"}
        async with self.client.get(self.url + path, headers=headers, allow_redirects=False) as answer:
            return answer.status, await answer.read(), dict(answer.headers)

    async def json(self, path: str) -> Any:
        """The document of an answer that is 200."""
        status, body, _ = await self.get(path)
        assert status == 200, body
        return msgspec.json.decode(body)

    async def portfolio(self, address: str, query: str = "") -> dict[str, Any]:
        """One portfolio."""
        (document,) = await self.json(f"/v1/portfolio?addresses={address}{query}")
        result: dict[str, Any] = document
        return result

    async def chain(self) -> dict[str, Any]:
        """Return the server's state of its chain; needs no key, and so no rate is spent."""
        _, body, _ = await self.get("/readyz", key="")
        chain_state: dict[str, Any] = msgspec.json.decode(body)["chains"][0]
        return chain_state

    async def until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Asks for the chain's state until it is the one that is waited for."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition(chain_state := await self.chain()):
                self.tick.clear()
                await self.tick.wait()
            return chain_state

    async def at(self, height: int) -> None:
        """Waits until that block is indexed."""
        await self.until(lambda chain: (chain["indexed"] or 0) >= height)


Serving = Callable[..., Any]


@pytest.fixture
def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serving:
    """Serve a world from a temporary folder while it is indexed, with short pauses."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    @asynccontextmanager
    async def served(world: World, cache_s: int = 60) -> AsyncIterator[Server]:
        tick = asyncio.Event()

        async def in_a_hurry(_: SystemClock, seconds: float) -> None:
            tick.set()
            await sleep(seconds / HURRY)

        monkeypatch.setattr(SystemClock, "sleep", in_a_hurry)
        settings = configured(world, tmp_path / "data", cache_s)
        state = open_state(settings)
        _, key = state.create_account("somebody", "PRO", 10_000, ("portfolio", "at-block"))
        state.close()
        with capture_logs():
            async with (
                listening(await indexing(settings), "127.0.0.1", 0, drain_s=1) as port,
                client_session() as client,
            ):
                yield Server(f"http://127.0.0.1:{port}", key, client, tick)

    return served


def configured(world: World, folder: Path, cache_s: int = 60) -> Settings:
    """The demo's own settings for a chain, in a folder."""
    settings = prepare(folder, world.node, world.deployment, 0)
    return msgspec.structs.replace(settings, server=msgspec.structs.replace(settings.server, cache_s=cache_s))
