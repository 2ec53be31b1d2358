"""Receivers of webhooks that listen for real, each with its own conduct; and a store with a rule."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from chainfolio.alerts.delivery import Deliverer
from chainfolio.alerts.events import event
from chainfolio.alerts.sending import Sender
from chainfolio.settings import Alerts
from chainfolio.storage.state import State, alerts, deliveries
from chainfolio.transport.reachable import Reachable
from tests.indexer.clock import ManualClock

Conduct = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


async def ok(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response()


@dataclass
class Receiver:
    """The requests to a receiver, and its responses."""

    conduct: Conduct = ok
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append((dict(request.headers), await request.read()))
        return await self.conduct(request)

    @property
    def ids(self) -> list[str]:
        """The ids in the order in which they came."""
        return [headers["webhook-id"] for headers, _ in self.requests]


@asynccontextmanager
async def receiver(conduct: Conduct = ok) -> AsyncIterator[Receiver]:
    """A receiver on this machine."""
    receiving = Receiver(conduct)
    runner = web.ServerRunner(web.Server(receiving.answer), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        receiving.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
        yield receiving
    finally:
        await runner.cleanup()


@dataclass
class Desk:
    """A state store with rules, and a deliverer whose clock stands still until a test moves it."""

    state: State
    clock: ManualClock
    deliverer: Deliverer
    numbers: int = 0

    def rule(self, address: str, kind: str = "webhook", account: str = "") -> alerts.Rule:
        """One more rule of an account, whose events go to an address."""
        owner = account or self.state.create_account("team")[0].id
        ids = self.state.new_id("alr"), self.state.new_id("tgt")
        target = alerts.Target(ids[1], owner, kind, address)

        def work(tx: object) -> alerts.Rule:
            shared = alerts.shared_target(tx, target)  # type: ignore[arg-type]
            rule = alerts.Rule(ids[0], owner, "credits", "", "under 5", shared.id, "{}", self.clock.now_us())
            alerts.add_rule(tx, rule, 100)  # type: ignore[arg-type]
            return rule

        return self.state.database.write(work)

    def add_events(self, rule: alerts.Rule, count: int = 1) -> list[str]:
        """Store events of a rule; their ids."""
        self.numbers += count
        now_us = self.clock.now_us()
        new = [event(rule, str(each), now_us, {"number": each}) for each in range(self.numbers - count, self.numbers)]
        self.state.database.write(lambda tx: deliveries.add(tx, new, now_us))
        return [each.id for each in new]

    def replay(self, account: str, id: str) -> None:
        """Make an event pending again."""
        now_us = self.clock.now_us()
        self.state.database.write(lambda tx: deliveries.replay(tx, account, id, now_us))

    def remove(self, account: str, rule: str) -> None:
        """Remove a rule."""
        self.state.database.write(lambda tx: alerts.remove_rule(tx, account, rule))

    def deliveries_of(self, rule: alerts.Rule, state: str = "") -> list[deliveries.Delivery]:
        """The deliveries of the rule's account, the oldest first."""
        newest_first = self.state.database.read(lambda tx: deliveries.listing(tx, rule.account_id, state, 1000))
        return newest_first[::-1]


@asynccontextmanager
async def desk(
    url: str | Path, allowed: tuple[str, ...] = ("127.0.0.0/8",), timeout_s: float = 5, config: Alerts | None = None
) -> AsyncIterator[Desk]:
    """A desk over a new store: a file in a folder, or one at a URL."""
    clock = ManualClock()
    state_url = f"sqlite:///{url / 'state.db'}" if isinstance(url, Path) else url
    state = State.open(state_url, b"p" * 32, clock, random.Random(1))
    sender = Sender(Reachable(allowed), clock, timeout_s)
    try:
        yield Desk(state, clock, Deliverer(state, sender, config or Alerts()))
    finally:
        await sender.close()
        await asyncio.sleep(0)
        state.close()
