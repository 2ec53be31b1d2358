"""An engine and a key store of dictionaries, and the application over them."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any, TypeVar

import msgspec

from chainfolio.api.app import App, make_app
from chainfolio.api.gains import EXAMPLE as GAINS_EXAMPLE
from chainfolio.assets import Account
from chainfolio.contracts import VirtualUser
from chainfolio.engine.gains.pnl import PnlRequest
from chainfolio.engine.lake_tables import LakeColumn, LakeTable
from chainfolio.engine.results import (
    Approval,
    ApprovalsPage,
    ChainFact,
    ChainReadiness,
    EventPosition,
    ListPosition,
    Readiness,
    SyncStatus,
    TransactionFilter,
    TransactionsPage,
)
from chainfolio.environment import Environment
from chainfolio.errors import NotSupported
from chainfolio.indexer.registry import Protocol, Registry
from chainfolio.portfolio.document import IssueDocument, Portfolio, ProtocolDocument, encode_one
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.metrics.report import DayDocument, ExposureDocument, PerformanceDocument
from chainfolio.portfolio.overview import Pictures
from chainfolio.portfolio.pnl.report import PnlDocument
from chainfolio.portfolio.transactions import Transactions
from chainfolio.portfolio.zeroed import zero_unknown
from chainfolio.settings import Limits, Server, Settings
from chainfolio.storage.sql_query import QueryResult
from chainfolio.storage.sql_task import JsonResult, ResultColumn, Summary, Task
from chainfolio.storage.state.database import Statement
from chainfolio.storage.state.ledger import Bill
from chainfolio.storage.state.meter_transaction import Admission, AdmissionRequest, Reservation
from tests.api.beacon import FakeValidators

T = TypeVar("T")
RICH = 1000
KEY = "cf_live_" + "A1b2C3d4E5" * 3 + "x7Yz90"
ALICE = "0x" + "a1" * 20
BOB = "0x" + "b0" * 20
SOL = "So11111111111111111111111111111111111111112"
TRON = "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t"
POOL = "0x" + "9a" * 20  # a contract of aave3 on both chains, and on one that is not configured
PROTOCOLS = Registry(
    [
        Protocol("aave3", "Aave V3", {chain: {"pool": [POOL]} for chain in ("ethereum", "optimism", "base")}),
        Protocol(
            "lido", "Lido", {"ethereum": {"steth": ["0x" + "5e" * 20]}}, {"small": "https://images.example/l.svg"}
        ),
        *(Protocol(f"p{n}", f"P {n:02}", {"optimism": {"pool": [f"0x{n:040x}"]}}) for n in range(1, 41)),
    ]
)
STARKNET = "0x" + "0" * 60 + "beef"


@dataclass(frozen=True)
class Caller:
    """A principal."""

    account_id: str = "acc_1"
    key_id: str = "key_1"
    plan: str = "PRO"
    grants: frozenset[str] = frozenset({"portfolio", "at-block", "enterprise", "sql"})
    plan_expires_us: int | None = None
    as_of: int = 0
    rated_id: str = ""


class FakeMeter:
    """Admits every request, and records the requests."""

    def __init__(self) -> None:
        self.requests: list[AdmissionRequest] = []
        self.settled: list[tuple[int, str]] = []
        self.credit_totals: dict[str, int] = {}

    async def admit(self, request: AdmissionRequest) -> Admission:
        self.requests.append(request)
        reservation = (
            Reservation(request.account_id, len(self.requests), request.cost) if request.cost and request.hold else None
        )
        return Admission(True, request.limit, request.limit - len(self.requests), 60_000_000, 0, reservation, RICH)

    async def settle_reservation(self, reservation: Reservation, kind: str) -> None:
        self.settled.append((reservation.call_id, kind))

    def settle_soon(self, reservation: Reservation, kind: str) -> None:
        self.settled.append((reservation.call_id, kind))

    def bill(self, account_id: str, key_id: str, amount: int, request_id: str) -> Bill:
        return Bill(account_id, amount, 0, str(len(self.requests)))

    def pay(self, tx: object, bill: Bill) -> None:
        return None

    def billed(self, bill: Bill) -> None:
        self.settled.append((int(bill.memo), "post"))


class FakeTransaction:
    """Answers every query with 1000, except for bookmarks: there are none."""

    def rows(self, statement: Statement, **_: object) -> list[tuple[int]]:
        return [] if "bookmarks" in statement.text("sqlite") else [(RICH,)]

    def now_us(self) -> int:
        return 0

    def run(self, statement: Statement, **_: object) -> int:
        assert "bookmarks" in statement.text("sqlite"), "nothing else is changed by fakes"
        return 0


@dataclass
class FakeKeys:
    """Keys by their text; what was looked up is remembered."""

    keys: dict[str, Caller] = field(default_factory=lambda: {KEY: Caller()})
    links: set[str] = field(default_factory=set)
    lookups: list[str] = field(default_factory=list)
    meter: FakeMeter = field(default_factory=FakeMeter)
    subscriptions: dict[str, set[str]] = field(default_factory=lambda: {"acc_1": {ALICE, BOB}})

    async def write(self, work: Any) -> Any:
        return work(FakeTransaction())

    def secret(self, purpose: str) -> bytes:
        return purpose.encode().ljust(32)

    def clear_cached_keys(self) -> None:
        raise AssertionError("the fake meter calls nobody stale")

    async def read(self, work: Any) -> Any:
        return work(FakeTransaction())

    async def caller(self, token: str) -> Caller | None:
        self.lookups.append(token)
        return self.keys.get(token)

    async def open_session(self, token: str, *, link: bool = False) -> str | None:
        return token if token in self.keys and (not link or token in self.links) else None

    async def close_session(self, token: str) -> None:
        self.keys.pop(token, None)

    async def subscribed(self, account_id: str, addresses: Collection[str]) -> set[str]:
        return self.subscriptions.get(account_id, set()) & set(addresses)


@dataclass(frozen=True)
class Value:
    """A net asset value."""

    nav: Decimal
    currency: str
    conversion_price: Decimal
    unpriced_assets: int = 0
    completeness: str = "complete"
    conversion_source: str = ""
    issues: tuple[IssueDocument, ...] = ()


@dataclass
class FakeLake:
    """Answers every query with one row, or raises `failure`; records the tasks. `bytes_read` decides the price."""

    bytes_read: int = 1000
    failure: Exception | None = None
    tasks: list[Task] = field(default_factory=list)

    async def run(self, task: Task) -> QueryResult:
        self.tasks.append(task)
        if self.failure:
            raise self.failure
        columns = [ResultColumn("n", "INTEGER")]
        document = msgspec.json.encode(JsonResult(columns, [[1]], more=False))
        return QueryResult(io.BytesIO(document), Summary(columns=columns, rows=1, bytes_read=self.bytes_read))

    async def tables(self) -> list[LakeTable]:
        return [LakeTable("blocks", "Blocks.", [LakeColumn("height", "BIGINT", "Height.")], ["ethereum"], 5, 100)]


class FakeHeads:
    """One chain."""

    async def newest_of(self, account: Account) -> dict[str, int]:
        return {"ethereum": 12}


@dataclass
class FakeEngine:
    """Returns fixed answers or raises `failure` while its `gate` is open; records every call."""

    failure: Exception | None = None
    delay_s: float = 0
    value_usd: Decimal = Decimal("1600.25")
    ready: bool = True
    page_end: ListPosition | None = None
    syncing: bool = False
    served: set[str] = field(default_factory=lambda: {"evm", "solana", "tron", "starknet"})
    page: ApprovalsPage = field(default_factory=lambda: ApprovalsPage((), None))
    images: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    called: asyncio.Event = field(default_factory=asyncio.Event)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    heads: FakeHeads = field(default_factory=FakeHeads)

    def __post_init__(self) -> None:
        self.gate.set()

    async def _record_call(self, name: str, *arguments: object) -> None:
        self.calls.append((name, arguments))
        self.called.set()
        try:
            await asyncio.sleep(self.delay_s)
            await self.gate.wait()
        finally:
            self.finished.set()
        if self.failure:
            raise self.failure

    async def portfolios(
        self, accounts: Sequence[Account], options: Options, *, wait: bool, wallet_only: bool
    ) -> list[Portfolio]:
        await self._record_call("portfolios", accounts, options, wait, wallet_only)
        return [a_portfolio(account.address) for account in accounts]

    async def encoded_portfolios(self, accounts: Sequence[Account], options: Options, *, wait: bool) -> list[bytes]:
        documents = await self.portfolios(accounts, options, wait=wait, wallet_only=False)
        return [encode_one(zero_unknown(each) if options.zero else each) for each in documents]

    async def nav(self, accounts: Sequence[Account], currency: str, *, wait: bool) -> Value:
        await self._record_call("nav", accounts, currency, wait)
        return Value(self.value_usd, currency, Decimal(1))

    async def at_block(self, accounts: Sequence[Account], chain: str, height: int, options: Options) -> list[Portfolio]:
        await self._record_call("at_block", accounts, chain, height, options)
        (account,) = accounts
        return [msgspec.structs.replace(a_portfolio(account.address), block_number=str(height))]

    async def historical(self, accounts: Sequence[Account], day: date) -> list[Portfolio]:
        await self._record_call("historical", accounts, day)
        return [a_portfolio(account.address) for account in accounts]

    async def performance(
        self, accounts: Sequence[Account], days: Sequence[date], currency: str
    ) -> PerformanceDocument:
        await self._record_call("performance", accounts, days, currency)
        return a_performance(currency)

    async def gains(self, accounts: Sequence[Account], request: PnlRequest) -> PnlDocument:
        await self._record_call("gains", accounts, request)
        return GAINS_EXAMPLE

    async def approvals(
        self,
        chain: str,
        accounts: Sequence[Account],
        limit: int,
        start: EventPosition | None,
        include: Collection[str] = (),
    ) -> ApprovalsPage:
        await self._record_call("approvals", accounts, chain, limit, start, include)
        return self.page

    async def transactions(self, accounts: Sequence[Account], request: TransactionFilter) -> TransactionsPage:
        await self._record_call("transactions", accounts, request)
        return TransactionsPage(Transactions(()), self.page_end)

    async def watch(self, owner: str, accounts: Sequence[Account]) -> None:
        await self._record_call("watch", owner, accounts)

    async def watch_subscribed(self, owner: str, subscribed: Mapping[Account, int]) -> None:
        await self._record_call("watch_subscribed", owner, dict(subscribed))

    async def sync(self, accounts: Sequence[Account]) -> bool:
        await self._record_call("sync", accounts)
        return not self.syncing

    @property
    def system(self) -> Any:
        raise NotSupported("the fake has no chain to export from")

    def pictures(self) -> Pictures:
        return Pictures(self.images)

    def kinds(self) -> set[str]:
        return self.served

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
        await self._record_call("status", accounts)
        return [SyncStatus(account.address, 1_700_000_000_123_456, None, False) for account in accounts]

    async def readiness(self) -> Readiness:
        await self._record_call("readiness")
        health = ChainReadiness(key="ethereum", healthy=self.ready, head=12, indexed=10, lag_blocks=2)
        return Readiness(ready=self.ready, chains=[health])

    async def virtual(self, users: Sequence[VirtualUser], options: Options, *, wait: bool) -> list[Portfolio]:
        await self._record_call("virtual", users, options, wait)
        return [a_portfolio(user.address) for user in users]

    def validators(self) -> FakeValidators:
        return FakeValidators(self)

    def protocols(self) -> Registry:
        return PROTOCOLS


def an_approval(height: int, raw: int = 5) -> Approval:
    """An approval that Alice gave to Bob."""
    position = EventPosition(height, 3, f"0x{height:064x}")
    return Approval(position, 1_700_000_000_123_456, "0x" + "70" * 20, ALICE, BOB, raw)


def a_portfolio(address: str) -> Portfolio:
    """Return an empty portfolio."""
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


def a_performance(currency: str) -> PerformanceDocument:
    """A performance of one day: too few to say anything."""
    return PerformanceDocument(
        addresses=(ALICE,),
        currency=currency,
        first_day="2026-02-01",
        last_day="2026-02-01",
        start_value="0",
        end_value="0",
        net_flows="0",
        gain="0",
        time_weighted_return="N/A",
        time_weighted_yearly="N/A",
        money_weighted_return="N/A",
        money_weighted_yearly="N/A",
        drawdown=None,
        exposure=ExposureDocument(chains=(), protocols=(), assets=(), unpriced=()),
        days=(DayDocument(day="2026-02-01", value="0", flow="0", growth="N/A"),),
        flows=(),
        reasons=("fewer than two days are known",),
        remarks=(),
    )


def an_app(
    engine: FakeEngine | None = None,
    keys: FakeKeys | None = None,
    server: Server | None = None,
    limits: Limits | None = None,
    rates: dict[str, str] | None = None,
    lake: FakeLake | None = None,
) -> App:
    """The application over fakes; its random numbers are the same each time."""
    settings = Settings(server=server or Server(), limits=limits or Limits(), rates=rates or {})
    environment = Environment(random=random.Random(1))
    return make_app(engine or FakeEngine(), keys or FakeKeys(), settings, environment, lake=lake or FakeLake())
