"""An engine and a key store of dictionaries, and the application over them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeVar

from aiohttp import web

from api.app import make_app
from chainfolio.assets import Account
from chainfolio.contracts import VirtualUser
from chainfolio.seams import Seams
from chainfolio.settings import Server, Settings
from indexer.answers import ChainFact, ChainReadiness, Readiness, SyncStatus
from portfolio.document import Portfolio, ProtocolDocument
from portfolio.facts import Options
from storage.state.database import Transaction

T = TypeVar("T")
KEY = "cf_live_" + "A1b2C3d4E5" * 3 + "x7Yz90"
OTHER_ENVIRONMENT = KEY.replace("cf_live_", "cf_test_")
ALICE = "0x" + "a1" * 20
BOB = "0x" + "b0" * 20
SOL = "So11111111111111111111111111111111111111112"
TRON = "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t"
STARKNET = "0x" + "0" * 60 + "beef"


@dataclass(frozen=True)
class Caller:
    """A principal."""

    account_id: str = "acc_1"
    key_id: str = "key_1"
    plan: str = "FREE"
    grants: frozenset[str] = frozenset({"portfolio"})


@dataclass
class FakeKeys:
    """Keys by their text; what was looked up is remembered."""

    keys: dict[str, Caller] = field(default_factory=lambda: {KEY: Caller()})
    asked: list[str] = field(default_factory=list)

    def authenticate(self, token: str) -> Caller | None:
        self.asked.append(token)
        return self.keys.get(token)

    async def run(self, work: Callable[[Transaction], T]) -> T:
        raise AssertionError("nothing is kept here: a test of what is kept has a real store")


@dataclass(frozen=True)
class Value:
    """A net asset value."""

    nav: Decimal
    currency: str
    conversion_price: Decimal


@dataclass
class FakeEngine:
    """Answers what it is told to, or raises; every call is remembered."""

    failure: Exception | None = None
    delay_s: float = 0
    worth: Decimal = Decimal("1600.25")
    ready: bool = True
    calls: list[tuple[str, Any]] = field(default_factory=list)
    called: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def _come(self, name: str, *arguments: object) -> None:
        self.calls.append((name, arguments))
        self.called.set()
        try:
            await asyncio.sleep(self.delay_s)
        finally:
            self.left.set()
        if self.failure:
            raise self.failure

    async def portfolios(
        self, accounts: Sequence[Account], options: Options, *, wait: bool, wallet_only: bool
    ) -> list[Portfolio]:
        await self._come("portfolios", accounts, options, wait, wallet_only)
        return [a_portfolio(account.address) for account in accounts]

    async def virtual(
        self, users: Sequence[VirtualUser], options: Options, *, wait: bool, aggregated: bool
    ) -> list[Portfolio]:
        await self._come("virtual", users, options, wait, aggregated)
        addresses = [f"virtual:{user.id}" for user in users]
        return [a_portfolio(address) for address in ([",".join(addresses)] if aggregated else addresses)]

    async def nav(self, accounts: Sequence[Account], currency: str, *, wait: bool) -> Value:
        await self._come("nav", accounts, currency, wait)
        return Value(self.worth, currency, Decimal(1))

    def chains(self) -> list[ChainFact]:
        if self.failure:
            raise self.failure
        facts = [(10, "optimism", "OP Mainnet", "ETH"), (1, "ethereum", "Ethereum", "ETH")]
        return [
            ChainFact(
                chain_id=chain_id,
                key=key,
                name=name,
                symbol=symbol,
                is_portfolio_supported=True,
                is_transactions_supported=False,
            )
            for chain_id, key, name, symbol in facts
        ]

    async def status(self, accounts: Sequence[Account]) -> list[SyncStatus]:
        await self._come("status", accounts)
        return [SyncStatus(account.address, 1_700_000_000_123_456, None, False) for account in accounts]

    async def readiness(self) -> Readiness:
        await self._come("readiness")
        health = ChainReadiness(key="ethereum", healthy=self.ready, head=12, indexed=10, lag_blocks=2)
        return Readiness(ready=self.ready, chains=[health])


def a_portfolio(address: str) -> Portfolio:
    """The portfolio of somebody who has nothing."""
    return Portfolio(
        address=address,
        networth="0",
        last_updated="1700000000000",
        asset_by_protocols={"wallet": ProtocolDocument(name="Wallet", key="wallet", value="0", chains={})},
        chains={},
        completeness="complete",
        issues=(),
        unpriced_assets=0,
        price_adapters=(),
        conversion_rates={},
    )


def an_app(
    engine: FakeEngine | None = None, keys: FakeKeys | None = None, server: Server | None = None
) -> web.Application:
    """The application over fakes; its random numbers are the same each time."""
    settings = Settings(server=server or Server())
    return make_app(engine or FakeEngine(), keys or FakeKeys(), settings, Seams(random=random.Random(1)))
