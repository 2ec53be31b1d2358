"""What the API needs from the engine and from the state store: structural, so that neither has to know the API."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Protocol

from chainfolio.assets import Account
from chainfolio.contracts import VirtualUser
from chainfolio.engine.answers import (
    ApprovalsPage,
    ChainFact,
    EventPosition,
    Readiness,
    SyncStatus,
    TransactionFilter,
    TransactionsPage,
)
from chainfolio.engine.validators.answers import Validators
from chainfolio.indexer.registry import Registry
from chainfolio.portfolio.document import IssueDocument, Portfolio
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.metrics.report import PerformanceDocument
from chainfolio.portfolio.overview import Pictures


class Nav(Protocol):
    """A net asset value in one currency; exact, shown as JSON numbers."""

    @property
    def nav(self) -> Decimal:
        """The value in `currency`."""

    @property
    def currency(self) -> str:
        """The currency that was asked for."""

    @property
    def conversion_price(self) -> Decimal:
        """Fiat: units of it per USD. Crypto: USD per unit."""

    @property
    def unpriced_assets(self) -> int:
        """How many assets have no price: they are not in the value."""

    @property
    def completeness(self) -> str:
        """`partial` where a read failed, else `complete`."""

    @property
    def issues(self) -> Sequence[IssueDocument]:
        """What could not be read and is not in the value."""

    @property
    def conversion_source(self) -> str:
        """Where `conversion_price` is from; empty for USD."""


class Engine(Protocol):
    """Answers about accounts. What fails is raised, typed; what is known in part is said in the answer.

    A call is cancelled when its client goes away, so work that several callers wait for is the engine's to shield.
    """

    async def portfolios(
        self, accounts: Sequence[Account], options: Options, *, wait: bool, wallet_only: bool
    ) -> list[Portfolio]:
        """One portfolio per account, in their order. `wait` wants fresh data; `wallet_only` is always read live."""

    async def written(self, accounts: Sequence[Account], options: Options, *, wait: bool) -> list[bytes]:
        """The same portfolios as JSON, which is made once for many requests."""

    async def nav(self, accounts: Sequence[Account], currency: str, *, wait: bool) -> Nav:
        """One value over all accounts, of what could be read. A currency nobody can convert to is a typed error, and so
        is it that nothing could be read; Unserved if no account is of a kind that a configured chain has."""

    async def at_block(self, accounts: Sequence[Account], chain: str, height: int, options: Options) -> list[Portfolio]:
        """Return portfolios at one block of one chain.

        Raises:
            BadRequest: The block is above the head of the chain.
            NotSupported: The chain is not configured.
            HistoryUnavailable: The node has pruned the state at that block.
        """

    async def historical(self, accounts: Sequence[Account], day: date) -> list[Portfolio]:
        """Portfolios as a day (UTC) began. HistoryUnavailable where no chain's node remembers it, NotSupported as of
        `nav`."""

    async def performance(
        self, accounts: Sequence[Account], days: Sequence[date], currency: str
    ) -> PerformanceDocument:
        """What accounts were worth over some days and earned, as those of one owner. Unserved where no chain can say,
        or without a rate of the currency."""

    async def approvals(
        self,
        chain: str,
        accounts: Sequence[Account],
        limit: int,
        start: EventPosition | None,
        include: Collection[str] = (),
    ) -> ApprovalsPage:
        """Approvals that accounts gave on a chain, the newest first, from where an earlier page ended. NotIndexed where
        the index does not reach, NotSupported where the chain is not configured or what to `include` (`allowance`,
        `operators`, `permit2`) is not known, BadRequest for a place that is gone."""

    async def transactions(self, accounts: Sequence[Account], query: TransactionFilter) -> TransactionsPage:
        """The transactions of accounts that a filter lets through; Unserved without a source of them."""

    async def sync(self, accounts: Sequence[Account]) -> bool:
        """Begin to read accounts anew in the background; False where every one is being read already."""

    async def watch(self, owner: str, accounts: Sequence[Account]) -> None:
        """Have the histories of accounts read for an owner, for some days, as far as the settings allow."""

    async def watch_subscribed(self, owner: str, subscribed: Mapping[Account, int]) -> None:
        """Have the histories of subscribed accounts read for an owner, each until its end in microseconds."""

    def pictures(self) -> Pictures:
        """The pictures of tokens and protocols."""

    def kinds(self) -> Collection[str]:
        """The kinds of address (`evm`, `solana`…) that some configured chain has."""

    def chains(self) -> Sequence[ChainFact]:
        """Every configured chain."""

    async def status(self, accounts: Sequence[Account]) -> Sequence[SyncStatus]:
        """How fresh each account's data is, in their order; starts no work."""

    async def readiness(self) -> Readiness:
        """How far each chain is, without asking any node: it is called every few seconds, by anybody."""

    async def virtual(self, users: Sequence[VirtualUser], options: Options, *, wait: bool) -> list[Portfolio]:
        """One portfolio per virtual user, in their order; `wait` wants fresh data of the accounts of a group."""

    def validators(self) -> Validators:
        """The validators of the beacon chain; Unserved where there is none."""

    def protocols(self) -> Registry:
        """The protocols that are known, also on chains that are not configured."""
