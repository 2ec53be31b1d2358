"""The engine behind the API: what is asked, and who answers it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from chainfolio import currencies
from chainfolio.assets import Account
from chainfolio.blocks import Block
from chainfolio.chains import Capability, require_capability
from chainfolio.contracts import Issue, QuotedTokens, Token, VirtualUser
from chainfolio.engine import virtual_users
from chainfolio.engine.account_support import split_supported
from chainfolio.engine.answers import (
    MAX_LOOKUPS,
    ApprovalsPage,
    ChainFact,
    EventPosition,
    Readiness,
    SyncStatus,
    TransactionFilter,
    TransactionsPage,
)
from chainfolio.engine.gains.account_gains import GainsCache, add_gains
from chainfolio.engine.history.day_blocks import midnight_us
from chainfolio.engine.history.past_days import History, addresses_of
from chainfolio.engine.history.performance import performance, read_values
from chainfolio.engine.prices.rates import Rates
from chainfolio.engine.prices.shown_rates import ShownRates
from chainfolio.engine.readiness import readiness
from chainfolio.engine.reconcile import results as reconciled
from chainfolio.engine.snapshots import account_index
from chainfolio.engine.snapshots.account_cache import AccountCache, CachedAccount
from chainfolio.engine.snapshots.replay import has_past
from chainfolio.engine.stored_heads import StoredHeads
from chainfolio.engine.validators.answers import Validators
from chainfolio.engine.validators.records import records
from chainfolio.engine.virtual_users import read_group
from chainfolio.engine.wiring import functions, rates_of, shown_facts, snapshotter_of
from chainfolio.errors import (
    BadRequest,
    HistoryUnavailable,
    MissingCapability,
    NoBlock,
    NodeBehind,
    NotSupported,
    SourceError,
    Unavailable,
)
from chainfolio.indexer import watching
from chainfolio.indexer.follow import Status
from chainfolio.indexer.registry import Registry
from chainfolio.indexer.wiring import System
from chainfolio.portfolio.compose import issue_documents, portfolio
from chainfolio.portfolio.document import Portfolio, encode_one
from chainfolio.portfolio.document import wallet_only as only_wallet
from chainfolio.portfolio.facts import PLACEHOLDER, ChainFacts, Options
from chainfolio.portfolio.finished import finish
from chainfolio.portfolio.merge import merge
from chainfolio.portfolio.nav import Nav, converted, nav
from chainfolio.portfolio.nfts import with_nfts
from chainfolio.portfolio.overview import Pictures, pictures_of
from chainfolio.portfolio.pnl.in_portfolio import AccountGains, with_gains
from chainfolio.portfolio.transactions import Transactions
from chainfolio.portfolio.valuation import Valuation, valuate
from chainfolio.portfolio.worths import net_worths
from chainfolio.portfolio.zeroed import zero_unknown
from chainfolio.supervisor import Supervisor
from chainfolio.validators import HasValidators

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.engine.approvals.allowances import CurrentApprovals
    from chainfolio.engine.snapshots.snapshotter import Snapshotter
    from chainfolio.portfolio.activity import Functions
    from chainfolio.portfolio.metrics.report import PerformanceDocument

log = logging.getLogger("chainfolio.engine")
CHAIN_SHARE = 0.75  # of the time that a request has
REFRESH = "refresh"  # the reads of accounts, as logs and metrics name them
GREY = "#808080"  # a chain without a colour of its own


@dataclass(slots=True)
class Engine:
    """Answers about accounts. `indexing` is what the worker knows, where one runs beside it, `supervisor` what runs the
    background tasks of the process. An answer that needs more than `max_lookups` transactions of others is refused."""

    system: System
    indexing: Mapping[str, Status] = field(default_factory=dict)
    supervisor: Supervisor = field(default_factory=Supervisor)
    max_lookups: int = MAX_LOOKUPS
    _accounts: AccountCache = field(init=False)
    history: History = field(init=False)
    heads: StoredHeads = field(init=False)
    _gains: GainsCache = field(init=False)
    _snapshotters: dict[str, Snapshotter] = field(default_factory=dict)
    _facts: dict[str, ChainFacts] = field(default_factory=dict)
    _pictures: Pictures | None = None
    _functions: Functions | None = None
    _validators: Validators | None = None
    _rates: Rates | None = None
    _shown_rates: ShownRates | None = None

    def __post_init__(self) -> None:
        self.heads = StoredHeads(self.system)
        self._gains = GainsCache(self._noted)
        self._accounts = AccountCache(self.system, self._snapshotter, self._budget, self._gains_of, self._noted)
        self.history = History(self.system, self._snapshotter, self.facts, self._budget)

    async def portfolios(
        self, accounts: Sequence[Account], options: Options, *, wait: bool, wallet_only: bool
    ) -> list[Portfolio]:
        """One portfolio per account, in their order. `wait` wants fresh data; `wallet_only` is always read live. What
        could not be read is an issue of its portfolio; errors as of `_known`."""
        read = self._live(accounts) if wallet_only else self._known(accounts, wait=wait)
        known, rates = await asyncio.gather(read, self._rates_of_now(options))
        return [
            self._finished(self._known_document(a.address, kept, options, wallet_only=wallet_only), rates)
            for a, kept in zip(accounts, known, strict=True)
        ]

    async def _live(self, accounts: Sequence[Account]) -> list[CachedAccount]:
        """What each account has at the newest blocks of its chains, whatever is kept or indexed; nothing of it is kept,
        for the index has less to say about so new a block."""
        split_supported(accounts, self.kinds(), "the wallet")
        return _some_read(await asyncio.gather(*(self._accounts.read(account, live=True) for account in accounts)))

    async def _known(self, accounts: Sequence[Account], *, wait: bool) -> list[CachedAccount]:
        """What is known of each account. Unserved if no chain of the kind of any of them is configured; the error of a
        chain if no chain of any of them could be read and nothing is kept."""
        split_supported(accounts, self.kinds(), "the portfolio")
        return _some_read(await self._accounts.get(accounts, wait=wait))

    async def written(self, accounts: Sequence[Account], options: Options, *, wait: bool) -> list[bytes]:
        """The same portfolios as JSON, each written once for as long as what is kept of its account stays the same."""
        known, rates = await asyncio.gather(self._known(accounts, wait=wait), self._rates_of_now(options))
        return [self._written(account, kept, options, rates) for account, kept in zip(accounts, known, strict=True)]

    def _written(
        self, account: Account, kept: CachedAccount, options: Options, rates: Mapping[str, Decimal] | None
    ) -> bytes:
        found = kept.encoded.get(options)
        if found is None:
            document = self._finished(self._known_document(account.address, kept, options), rates)
            found = kept.encoded[options] = encode_one(zero_unknown(document) if options.zero else document)
        return found

    async def at_block(self, accounts: Sequence[Account], chain: str, height: int, options: Options) -> list[Portfolio]:
        """Portfolios at one block of one chain, which is read anew. Errors as of `pinned`."""
        return await self.at_pinned(accounts, chain, await self.pinned(chain, height), options, past=True)

    async def pinned(self, chain: str, height: int | None = None) -> Block:
        """The block of a chain at a height; without one the newest that is indexed, where indexing keeps up. BadRequest
        above the head, HistoryUnavailable where the node has forgotten it, NotSupported without such a chain."""
        evm = self._configured(chain, "the portfolio at a block")
        if height is None:
            return await self._snapshotter(evm).newest_block()
        if not has_past(evm):
            raise MissingCapability(evm.key, Capability.PAST_BALANCES.value)
        await self._check_height(evm, height)
        return await self._block(evm, height)

    async def at_pinned(
        self, accounts: Sequence[Account], chain: str, block: Block, options: Options, *, past: bool
    ) -> list[Portfolio]:
        """Portfolios at a block that `pinned` gave, in the order of the accounts; nothing of them is kept. `past`: by
        its height. Reorged where the block has left the chain since, HistoryUnavailable where its state is gone."""
        addresses = [each.address for each in accounts]
        snapshot = await self._snapshotter(self.system.chain(chain)).take(addresses, block, past=past)
        parts, now_us = valuate([snapshot]).by_account(), self.system.environment.clock.now_us()
        height, rates = snapshot.block.height, await self._rates_at(options, snapshot.block.time_us)
        return [
            self._finished(self._document(each.address, parts[each.address], now_us, options, height), rates)
            for each in accounts
        ]

    async def _block(self, chain: Chain, height: int) -> Block:
        """A block that the chain has: who does not have it though the chain has gone on has forgotten it."""
        try:
            return await chain.block(height)
        except NoBlock as error:
            raise BadRequest("blockNumber", error.reason, remedy=error.remedy) from None
        except NodeBehind as error:
            if (await chain.heads()).latest.height < height:
                raise
            raise HistoryUnavailable(error.source, height, error.reason) from error

    async def historical(self, accounts: Sequence[Account], day: date) -> list[Portfolio]:
        """Portfolios at the last block before 00:00 UTC of a day, on every chain there was by then: as they are kept,
        else read. Errors as of `History.portfolios`."""
        found = await self.history.portfolios(accounts, day)
        rates = await self._rates_at(Options(rates=True), midnight_us(day) - 1)
        return [self._finished(each, rates) for each in found]

    async def performance(
        self, accounts: Sequence[Account], days: Sequence[date], currency: str
    ) -> PerformanceDocument:
        """What accounts were worth over some days and what they earned, as those of one owner; what is not kept of it
        is read. An account without a chain of its kind that can tell the past is an issue; Unserved where all are, or
        the currency has no rate. A chain that cannot be read costs the days that are not kept of it; its error is
        raised if no day is known."""
        chains = [chain for chain in self.system.account_chains if has_past(chain)]
        served, unserved = split_supported(accounts, {chain.kind for chain in chains}, "the performance")
        wanted = {account.kind for account in served}
        chains = [chain for chain in chains if chain.kind in wanted]
        values = await read_values(self.history, served, chains, days)
        return await performance(self, served, chains, values, currency, list(unserved.values()))

    def _configured(self, chain: str, what: str) -> Chain:
        if chain not in self.system.settings.chains:
            remedy = f"the operator adds [chains.{chain}] to the settings"
            raise NotSupported(f"{what} of {chain}", f"No chain {chain} is configured", remedy=remedy)
        found = self.system.chain(chain)
        if isinstance(found, HasValidators):
            raise NotSupported(f"{what} of {chain}", f"The chain {chain} has validators, and no accounts")
        return found

    async def _check_height(self, chain: Chain, height: int) -> None:
        """Whether the chain is that far; the head is only asked for where the index does not reach so high."""
        top = self.system.tail.top(chain.key)
        if top is not None and height <= top.height:
            return
        head = (await chain.heads()).latest.height
        if height > head:
            raise BadRequest("blockNumber", f"block {height} is above the head of {chain.key}, which is block {head}")

    async def nav(self, accounts: Sequence[Account], currency: str, *, wait: bool) -> Nav:
        """One value over all accounts, of what could be read; what could not is among its issues. A currency nobody can
        convert to is a typed error; others as of `_known`."""
        currencies.checked(currency, self.system.settings.rates)
        known = await self._known(accounts, wait=wait)
        holdings = tuple(valued for kept in known for valued in kept.valuation.holdings)
        positions = tuple(position for kept in known for position in kept.valuation.positions)
        unread = {address: issues for kept in known for address, issues in kept.valuation.unread.items()}
        whole = Valuation(holdings, positions, unread=unread)
        if currency == "USD":
            return nav(whole)
        found = await self._conversions().of(currency, whole, self.system.environment.clock.now_us())
        return nav(whole, currency, found.value, found.source)

    async def navs_at(
        self, accounts: Sequence[Account], chain: str, block: Block, currency: str, *, past: bool
    ) -> list[Nav]:
        """One value for each account, of what it has on a chain at a block that `pinned` gave, in their order; fiat by
        the rate of that day. BadRequest for a coin as the currency; `past` and errors as of `at_pinned`."""
        rates = self.system.settings.rates
        if currencies.is_coin(currencies.checked(currency, rates)):
            fiat = ", ".join(each for each in currencies.served(rates) if not currencies.is_coin(each))
            raise BadRequest("currency", f"many values at one block are in one of [{fiat}]")
        rate = None
        if currency != "USD":
            rate = await self._conversions().of(currency, Valuation(()), block.time_us)
        addresses = [each.address for each in accounts]
        snapshot = await self._snapshotter(self.system.chain(chain)).take(addresses, block, past=past)
        found = await asyncio.to_thread(net_worths, [snapshot])
        told = (currency, rate.value, rate.source) if rate else (currency,)
        return [converted(found[each.address], *told) for each in accounts]

    def _conversions(self) -> Rates:
        if self._rates is None:
            self._rates = rates_of(self.system, lambda chain, assets: self._snapshotter(chain).current_prices(assets))
        return self._rates

    def _rates_shown(self) -> ShownRates:
        if self._shown_rates is None:
            system = self.system
            keep_s = system.settings.server.cache_s
            self._shown_rates = ShownRates(self._conversions(), system.environment.clock, keep_s, self._noted)
        return self._shown_rates

    async def _rates_of_now(self, options: Options) -> Mapping[str, Decimal] | None:
        return await self._rates_shown().current() if options.rates else None

    async def _rates_at(self, options: Options, moment_us: int) -> Mapping[str, Decimal] | None:
        return await self._rates_shown().at(moment_us) if options.rates else None

    def _finished(self, document: Portfolio, rates: Mapping[str, Decimal] | None) -> Portfolio:
        """A portfolio as it is answered; without rates where nobody asked for them."""
        return finish(document) if rates is None else self._rates_shown().with_rates(document, rates)

    def is_trusted_contract(self, chain_contract: str) -> bool:
        """Whether somebody vouches for what a contract is (`chain:contract`), beside the contract itself."""
        key, _, contract = chain_contract.partition(":")
        return self._snapshotter(self.system.chain(key)).is_trusted_contract(contract)

    async def approvals(
        self,
        chain: str,
        accounts: Sequence[Account],
        limit: int,
        start: EventPosition | None,
        include: Collection[str] = (),
    ) -> ApprovalsPage:
        """Return the approvals that accounts gave on a chain, newest first, from a place on.

        Raises:
            NotIndexed: The index does not reach that far.
            BadRequest: The place has left the chain.
            NotSupported: The options ask for something that cannot be included.
        """
        from chainfolio.engine.approvals.allowances import with_state
        from chainfolio.engine.approvals.pages import approvals_page, assets
        from chainfolio.engine.snapshots.snapshotter import LIVE_LAG_S

        evm = self._configured(chain, "approvals")
        require_capability(evm, Capability.APPROVALS)
        owners = [account.address for account in accounts]
        head = await self.heads.latest(evm)
        begin = start or head.block.height
        system = self.system
        lag = evm.info.blocks_in(LIVE_LAG_S)
        items, more = await asyncio.to_thread(
            approvals_page, system.lake, system.tail, evm.key, owners, limit, begin, lag
        )
        if head.issue is not None:
            unread = (Issue(evm.key, each, f"the node does not answer: `{each}` is left out") for each in include)
            return ApprovalsPage(tuple(items), more, issues=(head.issue, *unread))
        known = await assets(self._snapshotter(evm), {(item.owner, item.token) for item in items})
        found = ApprovalsPage(tuple(items), more, known)
        if not include:
            return found
        return await with_state(
            found,
            self._snapshotter(evm),
            owners,
            include,
            system.labels,
            first=start is None,
            permit2=system.permit2(evm.key),
        )

    async def allowances(self, chain: str, account: Account) -> CurrentApprovals:
        """All that an account's approvals on a chain still allow, the greatest risk first. NotIndexed where there may
        be approvals that nobody indexed."""
        from chainfolio.engine.approvals.allowances import read_current_approvals, stored_approvals
        from chainfolio.engine.approvals.pages import check_complete
        from chainfolio.engine.snapshots.snapshotter import LIVE_LAG_S

        evm = self._configured(chain, "approvals")
        require_capability(evm, Capability.APPROVALS)
        head, lag = await self.heads.latest(evm), evm.info.blocks_in(LIVE_LAG_S)
        check_complete(self.system.tail, evm.key, [account.address], head.block.height, lag)
        if head.issue is not None:
            return await stored_approvals(self._snapshotter(evm), [account.address], self.system.labels, head)
        return await read_current_approvals(self._snapshotter(evm), [account.address], self.system.labels)

    async def transactions(self, accounts: Sequence[Account], wanted: TransactionFilter) -> TransactionsPage:
        """One page of what accounts did, over the chains asked for, with what it cost and gained where that is known.
        Chains whose nodes do not answer are answered from what is stored, and an issue says up to when. Errors as of
        `records`."""
        page, heights = await self.records(accounts, wanted, stored_heads=self.heads)
        return await add_gains(self, self._gains, page, accounts, heights)

    async def records(
        self, accounts: Sequence[Account], wanted: TransactionFilter, *, stored_heads: StoredHeads | None = None
    ) -> tuple[TransactionsPage, Mapping[str, int]]:
        """The same page without costs and gains, and the heads of the chains by which it was read. Unserved where there
        is no such chain, or none of the kind of any account; if there is one for some, the others are issues. NotFound
        above the ceiling, NotIndexed where the index does not reach."""
        from chainfolio.engine.transactions.pages import Statement, Subject

        system = self.system
        chains = [self._configured(key, "transactions") for key in wanted.networks] or system.account_chains
        accounts, unserved = split_supported(accounts, self.kinds(), "the transactions")
        addresses = {chain.key: tuple(addresses_of(chain, accounts)) for chain in chains}
        chains = [chain for chain in chains if addresses[chain.key]]
        subjects = [
            Subject(self._snapshotter(chain), self.facts()[chain.key], system.response_datasets(chain, own), own)
            for chain in chains
            for own in (addresses[chain.key],)
        ]
        self._functions = self._functions or functions(system)
        most = system.settings.server.max_transactions
        statement = Statement(
            system.registry, self._functions, most, wanted, stored_heads=stored_heads, max_lookups=self.max_lookups
        )
        found, reached = await statement.page(subjects)
        unknown = [*unserved.values(), *(issue for subject in subjects for issue in subject.issues)]
        unknown += statement.reward_issues
        for chain in chains:
            unknown += account_index.unexplained_issues(system.tail, chain, addresses[chain.key])
            unknown += reconciled.issues(system.tail, chain.key, addresses[chain.key], natives=True)
        is_partial = any(issue.makes_partial for issue in (*unknown, *statement.issues))
        completeness: Literal["complete", "partial"] = "partial" if is_partial else "complete"
        issues = issue_documents([*unknown, *statement.issues])
        return TransactionsPage(Transactions(tuple(found), completeness, issues), reached), statement.heads

    async def sync(self, accounts: Sequence[Account]) -> bool:
        """Begin to read accounts anew, behind the caller's back; False where every one is being read already. Accounts
        without a chain of their kind are left out; Unserved if all are."""
        accounts, _ = split_supported(accounts, self.kinds(), "fresh data")
        idle = [account for account in accounts if not self._accounts.is_being_read(account)]
        if idle and not self._accounts.refresh(idle):
            raise Unavailable("accounts", "too many are being read for later", retry_after_s=5)
        return bool(idle)

    async def watch(self, owner: str, accounts: Sequence[Account]) -> None:
        """Have the histories of accounts read for an owner, for some days, as far as the settings allow."""
        await asyncio.to_thread(watching.watch_accounts, self.system, owner, accounts)

    async def watch_subscribed(self, owner: str, subscribed: Mapping[Account, int]) -> None:
        """Have the histories of subscribed accounts read for an owner, each until its end in microseconds."""
        places = [(owner, account, until_us) for account, until_us in subscribed.items()]
        await asyncio.to_thread(watching.watch_subscriptions, self.system, places)

    def _known_document(
        self, address: str, kept: CachedAccount, options: Options, *, wallet_only: bool = False
    ) -> Portfolio:
        document = self._document(address, kept.valuation, kept.updated_us, options)
        whole = document if kept.gains is None else with_gains(document, kept.gains, spam=options.spam)
        return only_wallet(whole) if wallet_only else whole

    def _document(
        self, address: str, valuation: Valuation, updated_us: int, options: Options, height: int | None = None
    ) -> Portfolio:
        facts = self.facts()
        shown = portfolio(
            address,
            valuation,
            facts,
            updated_ms=updated_us // 1000,
            options=options,
            block_number=height,
            protocols=self.system.registry.facts,
        )
        return with_nfts(shown, valuation.for_account(address).collectibles, facts, options)

    async def virtual(self, users: Sequence[VirtualUser], options: Options, *, wait: bool) -> list[Portfolio]:
        """One portfolio per virtual user, in their order. Written balances are priced now, at one block per chain; a
        group is its accounts, and fresh where `wait` says so. Unserved if nothing of any of them can be answered; the
        error of a chain if all are groups and no chain of any account could be read."""
        groups = [read_group(user) for user in users]
        members = list(dict.fromkeys(member for group in groups for member in group))
        virtual_users.check_supported(users, self.kinds(), self.system.settings.chains)
        read = await self._accounts.get(members, wait=wait)
        if all(groups):
            _some_read(read)
        known = {
            member: self._known_document(member.address, kept, options)
            for member, kept in zip(members, read, strict=True)
        }
        wanted = virtual_users.contracts_to_price(users)
        asked = asyncio.gather(*(self._quoted(key, contracts) for key, contracts in wanted.items()))
        quotes, rates = await asyncio.gather(asked, self._rates_of_now(options))
        now_us = self.system.environment.clock.now_us()
        shown = virtual_users.DocumentContext(self.facts(), self.system.registry.facts, options, now_us)
        found = {key: quoted for key, quoted in zip(wanted, quotes, strict=True) if quoted is not None}
        documents = [
            merge([known[member] for member in group], user.address)
            if group
            else virtual_users.document(user, found, shown)
            for user, group in zip(users, groups, strict=True)
        ]
        return [self._finished(document, rates) for document in documents]

    async def _quoted(self, key: str, contracts: Sequence[str]) -> QuotedTokens | None:
        """Tokens and prices at a chain's head; None where the chain is not configured."""
        if key not in self.system.settings.chains:
            return None
        chain = self.system.chain(key)
        reader, assets = self._snapshotter(chain), [chain.info.token_asset(contract) for contract in contracts]
        try:
            async with self._budget(chain):
                return await reader.quote(assets)
        except SourceError as error:
            log.warning("%s could not be read: %s", key, error.message)
            issue = Issue(key, key, f"the chain could not be read: {error.reason}")
            block = Block(0, "", "", self.system.environment.clock.now_us())
            unknown = {asset: Token(asset, "", "", None) for asset in assets}
            tokens = unknown | reader.book.described_at(assets, block) | {reader.native.asset: reader.native}
            return QuotedTokens(block, tokens, {}, (issue,))

    def facts(self) -> dict[str, ChainFacts]:
        """What documents show of each configured chain."""
        for chain in self.system.account_chains:
            if chain.key not in self._facts:
                self._facts[chain.key] = shown_facts(self.system, chain)
        return self._facts

    def pictures(self) -> Pictures:
        """The pictures of tokens and protocols, for answers that are made of kept documents, which have none."""
        self._pictures = self._pictures or pictures_of(self.facts().values(), self.system.registry.facts.values())
        return self._pictures

    def kinds(self) -> set[str]:
        """The kinds of address that some configured chain has."""
        return {chain.kind for chain in self.system.account_chains}

    def chains(self) -> list[ChainFact]:
        """Every configured chain, by name."""
        return sorted((_fact(chain) for chain in self.system.account_chains), key=lambda fact: fact.name)

    async def status(self, accounts: Sequence[Account]) -> list[SyncStatus]:
        """How fresh each account's data is, in their order; starts no work. Unserved if no chain of the kind of any of
        them is configured."""
        _, unserved = split_supported(accounts, self.kinds(), "the status")
        result = []
        for account in accounts:
            running = self._accounts.is_being_read(account) or watching.is_being_read(self.system, account)
            read_us, indexed_us = self._accounts.updated_us_of(account), watching.indexed_until_us(self.system, account)
            known_us = None if indexed_us is None else max(indexed_us, read_us or 0)
            issue = unserved.get(account.address)
            result.append(
                SyncStatus(account.address, read_us, known_us, running, issue_documents([issue] if issue else []))
            )
        return result

    async def readiness(self) -> Readiness:
        """How far each chain is, from what the worker and the tail know: no node is asked."""
        return readiness(self.system, self.indexing, self.supervisor)

    async def settle_prices(self) -> None:
        """Move the prices that answers used to the lake, as their blocks become final. A chain that cannot be read now
        is left for the next time."""
        for chain in self.system.chains:
            with contextlib.suppress(SourceError):
                await self._snapshotter(chain).settle_prices()

    def validators(self) -> Validators:
        """The validators of the configured beacon chain; Unserved without one."""
        if self._validators is None:
            self._validators = records(self.system)
        return self._validators

    def protocols(self) -> Registry:
        """The protocols of the configs, also on chains that are not configured."""
        return self.system.registry

    # --- what the parts share ----------------------------------------------------------------------------------------

    def _noted(self, error: BaseException) -> None:
        self.supervisor.task(REFRESH).record_failure(error)

    async def _gains_of(self, account: Account, heights: Mapping[str, int]) -> AccountGains | None:
        known = await self._gains.get(self, account, heights)
        return None if known is None else known.in_portfolio

    @contextlib.asynccontextmanager
    async def _budget(self, chain: Chain) -> AsyncIterator[None]:
        """Time for one chain: most of a request's, so that a node that never answers leaves some for the others."""
        limit_s = self.system.settings.limits.request_s * CHAIN_SHARE
        try:
            async with asyncio.timeout(limit_s):
                yield
        except TimeoutError:
            raise Unavailable(chain.key, f"it could not be read within {limit_s:g} s", retry_after_s=5) from None

    def _snapshotter(self, chain: Chain) -> Snapshotter:
        if chain.key not in self._snapshotters:
            self._snapshotters[chain.key] = snapshotter_of(self.system, chain)
        return self._snapshotters[chain.key]


def _some_read(known: Sequence[CachedAccount]) -> list[CachedAccount]:
    """The same accounts. If no chain of any of them could be read, the first error is raised."""
    errors = [kept.error for kept in known if kept.error is not None]
    is_read = any(kept.error is None and any(kept.valuation.scope.values()) for kept in known)
    if errors and not is_read:
        raise errors[0]
    return list(known)


def _fact(chain: Chain) -> ChainFact:
    info = chain.info
    return ChainFact(
        chain_id=info.chain_id,
        key=chain.key,
        name=info.name,
        symbol=info.native.symbol,
        color=info.color or GREY,
        img_small=info.images.get("small", PLACEHOLDER),
        img_large=info.images.get("large", PLACEHOLDER),
        explorer_token_url=info.explorer.get("token"),
        explorer_transaction_url=info.explorer.get("transaction"),
        explorer_address_url=info.explorer.get("address"),
        is_portfolio_supported=True,
        is_transactions_supported=True,
    )
