"""Protocols of the engine as the API uses it, so that the engine does not depend on the API."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Protocol

from chainfolio.assets import Account
from chainfolio.contracts import VirtualUser
from chainfolio.engine.gains.pnl import PnlRequest
from chainfolio.engine.lake_tables import LakeTable
from chainfolio.engine.results import (
    ApprovalsPage,
    ChainFact,
    EventPosition,
    Readiness,
    SyncStatus,
    TransactionFilter,
    TransactionsPage,
)
from chainfolio.engine.validators.results import Validators
from chainfolio.indexer.registry import Registry
from chainfolio.portfolio.document import IssueDocument, Portfolio
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.metrics.report import PerformanceDocument
from chainfolio.portfolio.overview import Pictures
from chainfolio.portfolio.pnl.report import PnlDocument
from chainfolio.storage.sql_query import QueryResult
from chainfolio.storage.sql_task import Task


class LakeQueries(Protocol):
    """Queries in SQL over the lake."""

    async def run(self, task: Task) -> QueryResult:
        """Run the query of a task and return its result. The query ends if the call is cancelled.

        Raises:
            BadRequest: The query is wrong, needs too much time or memory, or reads a refused table.
            NothingIndexed: It reads a table into which nothing was indexed.
        """

    async def tables(self) -> list[LakeTable]:
        """Return the tables that a query may read."""


class Nav(Protocol):
    """An exact net asset value in one currency."""

    @property
    def nav(self) -> Decimal:
        """The value in `currency`."""

    @property
    def currency(self) -> str:
        """The requested currency."""

    @property
    def conversion_price(self) -> Decimal:
        """For fiat, units of the currency per USD; for crypto, USD per unit."""

    @property
    def unpriced_assets(self) -> int:
        """Number of assets without a price, which are not in the value."""

    @property
    def completeness(self) -> str:
        """`partial` if a read failed, else `complete`."""

    @property
    def issues(self) -> Sequence[IssueDocument]:
        """Failed reads, whose assets are not in the value."""

    @property
    def conversion_source(self) -> str:
        """Source of `conversion_price`; empty for USD."""


class Heads(Protocol):
    """The newest blocks of chains."""

    async def newest_of(self, account: Account) -> Mapping[str, int]:
        """Return the newest height of each chain that indexes new blocks for an account.

        Raises:
            BadRequest: No chain does.
        """


class Engine(Protocol):
    """Answers about accounts. Failures are typed errors; partial results list their issues in the answer.

    A call is cancelled when its client disconnects, so the engine must shield work that several callers share.
    """

    @property
    def heads(self) -> Heads:
        """The newest blocks of chains."""

    async def portfolios(
        self, accounts: Sequence[Account], options: Options, *, wait: bool, wallet_only: bool
    ) -> list[Portfolio]:
        """Return one portfolio per account, in their order.

        `wait` waits for fresh data; `wallet_only` reads only wallet balances, always live.
        """

    async def encoded_portfolios(self, accounts: Sequence[Account], options: Options, *, wait: bool) -> list[bytes]:
        """Return one portfolio per account as JSON, which may be cached for several requests."""

    async def nav(self, accounts: Sequence[Account], currency: str, *, wait: bool) -> Nav:
        """Return one value over all accounts; failed reads are left out and listed in its issues.

        Raises:
            NotSupported: There is no rate of the currency, or no configured chain has such accounts.
            ChainfolioError: Nothing could be read; it is the error of a chain.
        """

    async def at_block(self, accounts: Sequence[Account], chain: str, height: int, options: Options) -> list[Portfolio]:
        """Return portfolios at one block of one chain.

        Raises:
            BadRequest: The block is above the head of the chain.
            NotSupported: The chain is not configured.
            HistoryUnavailable: The node has pruned the state at that block.
        """

    async def historical(self, accounts: Sequence[Account], day: date) -> list[Portfolio]:
        """Return one portfolio per account, as of 00:00 UTC of `day`.

        Raises:
            HistoryUnavailable: No chain's node has the state of that time.
            NotSupported: No configured chain has such accounts.
        """

    async def performance(
        self, accounts: Sequence[Account], days: Sequence[date], currency: str
    ) -> PerformanceDocument:
        """Return values and returns of accounts over some days, as one owner's.

        Raises:
            NotSupported: No configured chain has such accounts, or there is no rate of the currency.
            ChainfolioError: No day is known; it is the error of a chain.
        """

    async def gains(self, accounts: Sequence[Account], request: PnlRequest) -> PnlDocument:
        """Return the gains of accounts, as those of one owner.

        Raises:
            NotSupported: No configured chain has such accounts.
            NotFound: An account has more transactions than gains are served for.
            NotIndexed: The index does not have the whole history.
        """

    async def approvals(
        self,
        chain: str,
        accounts: Sequence[Account],
        limit: int,
        start: EventPosition | None,
        include: Collection[str] = (),
    ) -> ApprovalsPage:
        """Return a page of approvals that accounts gave on a chain, newest first, after `start` if given.

        Raises:
            NotIndexed: The page needs blocks that are not indexed.
            NotSupported: The chain is not configured, or a part in `include` (`allowance`, `operators`, `permit2`)
                is not available.
            BadRequest: `start` no longer exists.
        """

    async def transactions(self, accounts: Sequence[Account], query: TransactionFilter) -> TransactionsPage:
        """Return a page of the accounts' transactions that match a filter.

        Raises:
            NotSupported: There is no source of transactions of such accounts.
            NotFound: An account has more transactions than are served.
            NotIndexed: The page needs blocks that are not indexed.
        """

    async def sync(self, accounts: Sequence[Account]) -> bool:
        """Start to read accounts again in the background; return False if all are already being read."""

    async def watch(self, owner: str, accounts: Sequence[Account]) -> None:
        """Start to index the accounts' histories for an owner, within the limits of the settings."""

    async def watch_subscribed(self, owner: str, subscribed: Mapping[Account, int]) -> None:
        """Start to index the histories of accounts for an owner, each until its end in Unix microseconds."""

    def pictures(self) -> Pictures:
        """Return the images of tokens and protocols."""

    def kinds(self) -> Collection[str]:
        """Return the kinds of address (`evm`, `solana`, …) of the configured chains."""

    def chains(self) -> Sequence[ChainFact]:
        """Return every configured chain."""

    async def status(self, accounts: Sequence[Account]) -> Sequence[SyncStatus]:
        """Return the last read times of each account, in their order, without starting any work."""

    async def readiness(self) -> Readiness:
        """Return the state of each chain without a request to a node, because it is polled without a key."""

    async def virtual(self, users: Sequence[VirtualUser], options: Options, *, wait: bool) -> list[Portfolio]:
        """Return one portfolio per virtual user, in order; `wait` waits for fresh data of groups."""

    def validators(self) -> Validators:
        """Return the validators of the beacon chain.

        Raises:
            NotSupported: No beacon chain is configured.
        """

    def protocols(self) -> Registry:
        """Return the registry of known protocols, also of chains that are not configured."""
