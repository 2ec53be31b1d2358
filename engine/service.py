"""The engine behind the API and the commands: it delegates each request to the part that answers it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

from chainfolio import currencies
from chainfolio.assets import Account
from chainfolio.blocks import Block
from chainfolio.capabilities import Capability, require_capability
from chainfolio.contracts import VirtualUser
from chainfolio.engine import virtual_users
from chainfolio.engine.account_support import split_supported
from chainfolio.engine.bounds import Bound, bounds_of
from chainfolio.engine.chain_blocks import checked_block, configured_chain
from chainfolio.engine.documents import Documents
from chainfolio.engine.gains.account_gains import GainsCache, add_gains
from chainfolio.engine.gains.limited import limited_report
from chainfolio.engine.history.day_blocks import midnight_us
from chainfolio.engine.history.past_days import History
from chainfolio.engine.history.performance import performance, read_values
from chainfolio.engine.nft_gateways import Gateways
from chainfolio.engine.nft_metadata import MetadataReader
from chainfolio.engine.prices.navs import check_fiat, joint_nav, navs_at
from chainfolio.engine.prices.quoter import Quoter
from chainfolio.engine.prices.reasons import PriceReasons, explain_price
from chainfolio.engine.prices.request_rates import RequestRates
from chainfolio.engine.readiness import readiness
from chainfolio.engine.results import (
    MAX_LOOKUPS,
    ApprovalsPage,
    ChainFact,
    EventPosition,
    Readiness,
    SyncStatus,
    TransactionFilter,
    TransactionsPage,
)
from chainfolio.engine.snapshots.account_cache import AccountCache, CachedAccount, require_any_read
from chainfolio.engine.snapshots.replay import has_past
from chainfolio.engine.snapshots.trust import is_coin
from chainfolio.engine.stored_heads import StoredHeads
from chainfolio.engine.sync_status import sync_statuses
from chainfolio.engine.time_limit import time_limit
from chainfolio.engine.validators.records import records
from chainfolio.engine.validators.results import Validators
from chainfolio.engine.virtual_users import read_group
from chainfolio.engine.wiring import chain_facts, functions, rates_of, shown_facts, snapshotter_of
from chainfolio.errors import MissingCapability, SourceError, Unavailable
from chainfolio.indexer import watching
from chainfolio.indexer.follow import Status
from chainfolio.indexer.registry import Registry
from chainfolio.indexer.wiring import System
from chainfolio.portfolio.document import Portfolio
from chainfolio.portfolio.facts import ChainFacts, Options
from chainfolio.portfolio.merge import merge
from chainfolio.portfolio.nav import Nav
from chainfolio.portfolio.overview import Pictures, pictures_of
from chainfolio.portfolio.pnl.in_portfolio import AccountGains
from chainfolio.portfolio.valuation import valuate
from chainfolio.pricing.rules import any_knows
from chainfolio.supervisor import Supervisor

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.engine.approvals.allowances import CurrentApprovals
    from chainfolio.engine.gains.pnl import PnlRequest
    from chainfolio.engine.snapshots.snapshotter import Snapshotter
    from chainfolio.portfolio.activity import Functions
    from chainfolio.portfolio.metrics.report import PerformanceDocument
    from chainfolio.portfolio.pnl.report import PnlDocument

CHAIN_SHARE = 0.75  # of a request's time
REFRESH = "refresh"  # the name of background reads in logs and metrics


@dataclass(slots=True)
class Engine:
    """Reads and computes everything about accounts.

    `indexing` is the status of each chain in the worker, if the process runs one; `supervisor` runs background tasks. A
    request reads at most `max_lookups` third-party transactions from nodes, any number if None; `progress` gets the
    number of records that were read for an answer, and of those that will be. `adds_gains` adds gains to portfolios.
    """

    system: System
    indexing: Mapping[str, Status] = field(default_factory=dict)
    supervisor: Supervisor = field(default_factory=Supervisor)
    max_lookups: int | None = MAX_LOOKUPS
    progress: Callable[[int, int], None] = lambda done, total: None
    adds_gains: bool = True
    _accounts: AccountCache = field(init=False)
    history: History = field(init=False)
    heads: StoredHeads = field(init=False)
    rates: RequestRates = field(init=False)
    _gains: GainsCache = field(init=False)
    _snapshotters: dict[str, Snapshotter] = field(default_factory=dict)
    _facts: dict[str, ChainFacts] = field(default_factory=dict)
    _pictures: Pictures | None = None
    _functions: Functions | None = None
    _validators: Validators | None = None
    _documents: Documents = field(init=False)

    def __post_init__(self) -> None:
        self.heads = StoredHeads(self.system)
        self._gains = GainsCache(self._record_failure)
        clock, keep_s = self.system.environment.clock, self.system.settings.server.cache_s
        build = partial(rates_of, self.system)
        self.rates = RequestRates(build, self.snapshotter, clock, keep_s, self._record_failure)
        parts = self.snapshotter, self._budget, self._gains_of, self._record_failure
        self._accounts = AccountCache(self.system, *parts)
        gateways = Gateways(self.system.settings.nfts, clock)
        metadata = MetadataReader(self.system.chain, self.snapshotter, self._budget, gateways)
        self._documents = Documents(clock, self.facts, self.protocols, self.rates, metadata)
        self.history = History(self.system, self.snapshotter, self.facts, self._budget)

    async def portfolios(
        self, accounts: Sequence[Account], options: Options, *, wait: bool, wallet_only: bool
    ) -> list[Portfolio]:
        """Return one portfolio per account, in their order. Unread data are issues; errors as of `_cached`.

        `wait` reads stale accounts again; `wallet_only` leaves protocols out, and reads at the newest blocks.
        """
        reading = self._read_live(accounts) if wallet_only else self._cached(accounts, wait=wait)
        cached, rates = await asyncio.gather(reading, self.rates.current(options))
        documents = (
            self._documents.cached(a.address, entry, options, rates, loose_only=wallet_only)
            for a, entry in zip(accounts, cached, strict=True)
        )
        return list(await asyncio.gather(*documents))

    async def _read_live(self, accounts: Sequence[Account]) -> list[CachedAccount]:
        """Read the accounts at the newest blocks; nothing is cached: the index may lack the blocks.

        Raises:
            NotSupported: No chain of the kind of any account is configured.
            ChainfolioError: No chain of any account could be read.
        """
        split_supported(accounts, self.kinds(), "the wallet")
        return require_any_read(
            await asyncio.gather(*(self._accounts.read(account, live=True) for account in accounts))
        )

    async def _cached(self, accounts: Sequence[Account], *, wait: bool) -> list[CachedAccount]:
        """Return the cached data of each account.

        Raises NotSupported if no chain of the kind of any account is configured, and a chain's error if no chain of any
        account could be read and nothing is cached.
        """
        split_supported(accounts, self.kinds(), "the portfolio")
        return require_any_read(await self._accounts.get(accounts, wait=wait))

    async def encoded_portfolios(self, accounts: Sequence[Account], options: Options, *, wait: bool) -> list[bytes]:
        """Return the portfolios as JSON. Each is encoded once per version of the cached account."""
        cached, rates = await asyncio.gather(self._cached(accounts, wait=wait), self.rates.current(options))
        documents = (
            self._documents.encoded(account.address, entry, options, rates)
            for account, entry in zip(accounts, cached, strict=True)
        )
        return list(await asyncio.gather(*documents))

    async def at_block(self, accounts: Sequence[Account], chain: str, height: int, options: Options) -> list[Portfolio]:
        """Return portfolios at one block of one chain, read anew. Errors as of `pinned` and `at_pinned`."""
        return await self.at_pinned(accounts, chain, await self.pinned(chain, height), options, past=True)

    async def pinned(self, chain: str, height: int | None = None) -> Block:
        """Return the block at a height; without one the newest indexed block, or the head if that is old.

        Raises BadRequest above the head, HistoryUnavailable if the node lacks the block, NotSupported without such a
        chain, MissingCapability if a height is given and the chain has no past balances.
        """
        configured = configured_chain(self.system, chain, "the portfolio at a block")
        if height is None:
            return await self.snapshotter(configured).newest_block()
        if not has_past(configured):
            raise MissingCapability(configured.key, Capability.PAST_BALANCES.value)
        return await checked_block(self.system.tail, configured, height)

    async def at_pinned(
        self, accounts: Sequence[Account], chain: str, block: Block, options: Options, *, past: bool
    ) -> list[Portfolio]:
        """Return portfolios at a block of `pinned`, in the order of the accounts; they are not cached.

        `past`: given by its height, so that movements may be replayed if nodes answer about now only. Raises Reorged if
        the block left the chain, HistoryUnavailable if its state or movements since are missing, other SourceErrors.
        """
        addresses = [each.address for each in accounts]
        snapshot = await self.snapshotter(self.system.chain(chain)).take(addresses, block, past=past)
        parts = valuate([snapshot]).by_account()
        height, rates = snapshot.block.height, await self.rates.at(options, snapshot.block.time_us)
        documents = (
            self._documents.at_block(each.address, parts[each.address], options, rates, height) for each in accounts
        )
        return list(await asyncio.gather(*documents))

    async def historical(self, accounts: Sequence[Account], day: date) -> list[Portfolio]:
        """Return portfolios at the last block before 00:00 UTC of a day, on every chain that existed then.

        Stored days are not read again. Errors as of `History.portfolios`.
        """
        documents = await self.history.portfolios(accounts, day)
        rates = await self.rates.at(Options(rates=True), midnight_us(day) - 1)
        return [self.rates.finish(each, rates) for each in documents]

    async def performance(
        self, accounts: Sequence[Account], days: Sequence[date], currency: str
    ) -> PerformanceDocument:
        """Return value and returns of accounts over some days, as those of one owner.

        Days that are not stored are read. An account without a chain that can tell past balances is an issue;
        NotSupported if all are, or the currency has no rate. A chain that cannot be read costs its days that are not
        stored; its error is raised if no day is known. Raises BadRequest if there are too many days.
        """
        chains = [chain for chain in self.system.account_chains if has_past(chain)]
        supported, unsupported = split_supported(accounts, {chain.kind for chain in chains}, "the performance")
        kinds = {account.kind for account in supported}
        chains = [chain for chain in chains if chain.kind in kinds]
        values = await read_values(self.history, supported, chains, days)
        return await performance(self, supported, chains, values, currency, list(unsupported.values()))

    async def gains(self, accounts: Sequence[Account], request: PnlRequest) -> PnlDocument:
        """Return the gains of accounts, as those of one owner. Errors as of `limited_report`."""
        return await limited_report(self, accounts, request)

    async def explain_price(self, asset_name: str, at: int | str | None, *, ask: bool) -> PriceReasons:
        """Return the price of an asset at a block, with its reasons. See `explain_price` of `prices.reasons`."""
        return await explain_price(self.system, self.snapshotter, asset_name, at, ask=ask)

    async def nav(self, accounts: Sequence[Account], currency: str, *, wait: bool) -> Nav:
        """Return one value over all accounts that could be read; what could not be read is an issue.

        Raises BadRequest if the currency cannot be converted to; others as of `_cached`.
        """
        currencies.checked(currency, self.system.settings.rates)
        cached = await self._cached(accounts, wait=wait)
        return await joint_nav(cached, currency, self.rates.conversions, self.system.environment.clock.now_us())

    async def navs_at(
        self, accounts: Sequence[Account], chain: str, block: Block, currency: str, *, past: bool
    ) -> list[Nav]:
        """Return the value of each account on a chain at a block of `pinned`, in their order.

        Fiat is converted by the rate of that day. Raises BadRequest for a coin as the currency; others as of
        `at_pinned`.
        """
        check_fiat(currency, self.system.settings.rates)
        addresses = [each.address for each in accounts]
        snapshotter, rates = self.snapshotter(self.system.chain(chain)), self.rates.conversions
        return await navs_at(snapshotter, addresses, block, currency, rates, past=past)

    def is_trusted_contract(self, chain_contract: str) -> bool:
        """Return True if a contract (`chain:contract`) is trusted otherwise than by its own word."""
        key, _, contract = chain_contract.partition(":")
        return self.snapshotter(self.system.chain(key)).is_trusted_contract(contract)

    def is_priced_contract(self, chain_contract: str) -> bool | None:
        """Return True if the settings price a contract, or it is the coin; None if only a read can tell."""
        key, _, contract = chain_contract.partition(":")
        chain = self.system.chain(key)
        asset, sources = chain.info.token_asset(contract), self.snapshotter(chain).sources
        return is_coin(chain.info, contract) or any_knows(sources, asset)

    async def approvals(
        self,
        chain: str,
        accounts: Sequence[Account],
        limit: int,
        start: EventPosition | None,
        include: Collection[str] = (),
    ) -> ApprovalsPage:
        """Return the approvals that accounts gave on a chain, newest first, from `start` on.

        Raises NotIndexed if the index does not reach that far, BadRequest if the position has left the chain,
        NotSupported if something cannot be included. `include` as of `read_page`.
        """
        from chainfolio.engine.approvals.allowances import read_page

        configured = configured_chain(self.system, chain, "approvals")
        require_capability(configured, Capability.APPROVALS)
        owners, head = [account.address for account in accounts], await self.heads.latest(configured)
        snapshotter = self.snapshotter(configured)
        return await read_page(snapshotter, head, owners, limit, start, include, self.system)

    async def allowances(self, chain: str, account: Account) -> CurrentApprovals:
        """Return all that an account's approvals on a chain still allow, the greatest risk first.

        If the node does not answer, return the stored approvals, newest first. Raises MissingCapability, BadAnswer if a
        read fails, NotIndexed if there may be approvals that are not indexed.
        """
        from chainfolio.engine.approvals.allowances import read_current_approvals, stored_approvals
        from chainfolio.engine.approvals.pages import check_complete
        from chainfolio.engine.snapshots.snapshotter import LIVE_LAG_S

        configured = configured_chain(self.system, chain, "approvals")
        require_capability(configured, Capability.APPROVALS)
        head, lag = await self.heads.latest(configured), configured.info.blocks_in(LIVE_LAG_S)
        check_complete(self.system.tail, configured.key, [account.address], head.block.height, lag)
        if head.issue is not None:
            return await stored_approvals(self.snapshotter(configured), [account.address], self.system.labels, head)
        return await read_current_approvals(self.snapshotter(configured), [account.address], self.system.labels)

    async def transactions(self, accounts: Sequence[Account], filters: TransactionFilter) -> TransactionsPage:
        """Return one page of activities over the requested chains, with costs and gains if known.

        A chain whose node does not answer is read from the store, and an issue says up to when. Errors as of `records`.
        """
        page, heights = await self.records(accounts, filters, stored_heads=self.heads)
        return await add_gains(self, self._gains, page, accounts, heights)

    async def records(
        self, accounts: Sequence[Account], filters: TransactionFilter, *, stored_heads: StoredHeads | None = None
    ) -> tuple[TransactionsPage, Mapping[str, int]]:
        """Return the page without costs and gains, and the heads of the chains by which it was read.

        Raises NotSupported if a requested chain is not configured, or no chain of any account's kind (if some have one,
        the others are issues), NotFound above `server.max_transactions`, NotIndexed if the index does not reach that
        far.
        """
        from chainfolio.engine.transactions.records import RecordReader

        self._functions = self._functions or functions(self.system)
        reader = RecordReader(
            self.system, self.snapshotter, self.facts(), self._functions, self.max_lookups, self.progress
        )
        return await reader.read(accounts, filters, stored_heads)

    async def sync(self, accounts: Sequence[Account]) -> bool:
        """Start to read accounts anew in the background; return False if all are being read already.

        Accounts without a chain of their kind are left out; NotSupported if all are. Raises Unavailable if too many are
        being read in the background.
        """
        accounts, _ = split_supported(accounts, self.kinds(), "fresh data")
        idle = [account for account in accounts if not self._accounts.is_being_read(account)]
        if idle and not self._accounts.refresh(idle):
            raise Unavailable("accounts", "too many are being read for later", retry_after_s=5)
        return bool(idle)

    async def watch(self, owner: str, accounts: Sequence[Account]) -> None:
        """Store watches of accounts for `accounts.watched_days`; accounts above the limits are logged."""
        await asyncio.to_thread(watching.watch_accounts, self.system, owner, accounts)

    async def watch_subscribed(self, owner: str, subscribed: Mapping[Account, int]) -> None:
        """Store watches of subscribed accounts for an owner, without limits, each until its end in µs."""
        watches = [(owner, account, until_us) for account, until_us in subscribed.items()]
        await asyncio.to_thread(watching.watch_subscriptions, self.system, watches)

    async def virtual(self, users: Sequence[VirtualUser], options: Options, *, wait: bool) -> list[Portfolio]:
        """Return one portfolio per virtual user, in their order.

        Entered balances are priced at the head, at one block per chain. A group is the sum of its accounts; `wait`
        reads stale ones again. Raises NotSupported if no user can be read, and a chain's error if all are groups and no
        chain of any account could be read.
        """
        groups = [read_group(user) for user in users]
        members = list(dict.fromkeys(member for group in groups for member in group))
        virtual_users.check_supported(users, self.kinds(), self.system.settings.chains)
        entries = await self._accounts.get(members, wait=wait)
        if all(groups):
            require_any_read(entries)
        documents_by_account = {
            member: await self._documents.unfinished(member.address, entry, options)
            for member, entry in zip(members, entries, strict=True)
        }
        quoter = Quoter(self.system, self.snapshotter, self._budget)
        contracts_by_chain = virtual_users.contracts_to_price(users)
        quotes, rates = await asyncio.gather(quoter.quotes(contracts_by_chain), self.rates.current(options))
        now_us = self.system.environment.clock.now_us()
        context = virtual_users.DocumentContext(self.facts(), self.system.registry.facts, options, now_us)
        documents = [
            merge([documents_by_account[member] for member in group], user.address)
            if group
            else virtual_users.document(user, quotes, context)
            for user, group in zip(users, groups, strict=True)
        ]
        return [self.rates.finish(document, rates) for document in documents]

    def facts(self) -> dict[str, ChainFacts]:
        """Return the facts of each configured chain that documents show."""
        for chain in self.system.account_chains:
            if chain.key not in self._facts:
                self._facts[chain.key] = shown_facts(self.system, chain)
        return self._facts

    def pictures(self) -> Pictures:
        """Return the images of tokens and protocols, for responses made of stored documents, which have none."""
        self._pictures = self._pictures or pictures_of(self.facts().values(), self.system.registry.facts.values())
        return self._pictures

    def kinds(self) -> set[str]:
        """Return the kinds of address of the configured chains."""
        return {chain.kind for chain in self.system.account_chains}

    def chains(self) -> list[ChainFact]:
        """Return every configured chain, by name."""
        return chain_facts(self.system.account_chains, self.facts())

    async def status(self, accounts: Sequence[Account]) -> list[SyncStatus]:
        """Return the freshness of each account's data, in their order; starts no work.

        Raises NotSupported if no chain of the kind of any account is configured.
        """
        return await asyncio.to_thread(sync_statuses, self.system, self._accounts, accounts)

    def bounds(self) -> list[Bound]:
        """Return use and maximum of each cache and resource of this process."""
        return bounds_of(self.system.lake, self.system.tail, self._gains, self._accounts, self._snapshotters)

    async def readiness(self) -> Readiness:
        """Return the readiness of chains and tasks, without asking a node."""
        return readiness(self.system, self.indexing, self.supervisor)

    async def settle_prices(self) -> None:
        """Move the used prices of final blocks to the lake. Unreadable chains are left for the next time."""
        for chain in self.system.chains:
            with contextlib.suppress(SourceError):
                await self.snapshotter(chain).settle_prices()

    def validators(self) -> Validators:
        """Return the records of validators. Errors as of `validators.records.records`."""
        if self._validators is None:
            self._validators = records(self.system)
        return self._validators

    def protocols(self) -> Registry:
        """Return the protocols of the configs, also on chains that are not configured."""
        return self.system.registry

    def _record_failure(self, error: BaseException) -> None:
        self.supervisor.task(REFRESH).record_failure(error)

    async def _gains_of(self, account: Account, heights: Mapping[str, int]) -> AccountGains | None:
        cached = await self._gains.get(self, account, heights) if self.adds_gains else None
        return None if cached is None else cached.in_portfolio

    def _budget(self, chain: Chain) -> contextlib.AbstractAsyncContextManager[None]:
        """Limit the time for one chain to a share of the request's: a hanging node leaves some for others."""
        return time_limit(chain.key, self.system.settings.limits.request_s * CHAIN_SHARE)

    def snapshotter(self, chain: Chain) -> Snapshotter:
        """Return the reader of a chain, built at the first call."""
        if chain.key not in self._snapshotters:
            self._snapshotters[chain.key] = snapshotter_of(self.system, chain)
        return self._snapshotters[chain.key]
