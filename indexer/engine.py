"""The engine behind the API: portfolios and net asset values of accounts over all configured chains.

An answer is kept with its age. A stale one is given at once while a fresh one is made behind it, unless the caller
wants to wait; a partial one is given but never kept as whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chainfolio.assets import Account
from chainfolio.blocks import Block
from chainfolio.contracts import Issue, Snapshot, VirtualUser
from chainfolio.errors import SourceError, Unavailable, Unserved
from indexer import candidates
from indexer.answers import ChainFact, ChainReadiness, Readiness, SyncStatus
from indexer.follow import Status
from indexer.wiring import System
from portfolio.compose import portfolio
from portfolio.document import Portfolio, wallet_only
from portfolio.facts import ChainFacts, Options
from portfolio.nav import Nav, check, nav
from portfolio.valuation import Valuation, value

if TYPE_CHECKING:
    from adapters.evm.chain import EvmChain
    from indexer.snapshot import Snapshotter

KEEP_S = 3600.0
NO_FAMILY = "no chain for this kind of address is configured"


@dataclass(slots=True)
class _Kept:
    """What is known of one account, and since when."""

    valuation: Valuation
    updated_us: int


@dataclass(slots=True)
class Engine:
    """Answers about accounts. `indexing` is what the worker knows, where one runs beside it."""

    system: System
    indexing: Mapping[str, Status] = field(default_factory=dict)
    _kept: dict[str, _Kept] = field(default_factory=dict)
    _running: dict[str, asyncio.Task[_Kept]] = field(default_factory=dict)
    _snapshotters: dict[str, Snapshotter] = field(default_factory=dict)

    async def portfolios(
        self, accounts: Sequence[Account], options: Options, *, wait: bool, wallet_only: bool
    ) -> list[Portfolio]:
        """One portfolio per account, in their order. `wait` wants fresh data; `wallet_only` is always read live."""
        known = await self._known(accounts, wait=wait or wallet_only, live=wallet_only)
        facts = self.facts()
        documents = [
            portfolio(a.address, kept.valuation, facts, updated_ms=kept.updated_us // 1000, options=options)
            for a, kept in zip(accounts, known, strict=True)
        ]
        return [_wallet(document) for document in documents] if wallet_only else documents

    async def virtual(
        self, users: Sequence[VirtualUser], options: Options, *, wait: bool, aggregated: bool
    ) -> list[Portfolio]:
        """One portfolio per virtual user, in their order; `aggregated` gives one over all of them."""
        raise Unserved("the portfolio of a virtual user")

    async def at_block(self, accounts: Sequence[Account], chain: str, height: int, options: Options) -> list[Portfolio]:
        """Portfolios at one block of one chain: nothing is taken from what was kept."""
        evm = self.system.chain(chain)
        block = await evm.block(height)
        snapshot = await self._snapshotter(evm).take([account.address for account in accounts], block)
        now_ms = self.system.seams.clock.now_us() // 1000
        return [
            portfolio(
                a.address, value([snapshot]), self.facts(), updated_ms=now_ms, options=options, block_number=height
            )
            for a in accounts
        ]

    async def nav(self, accounts: Sequence[Account], currency: str, *, wait: bool) -> Nav:
        """One value over all accounts; a currency nobody can convert to is a typed error."""
        check(currency)
        known = await self._known(accounts, wait=wait, live=False)
        for kept in known:
            _refuse_unread(kept.valuation)
        holdings = tuple(valued for kept in known for valued in kept.valuation.holdings)
        positions = tuple(position for kept in known for position in kept.valuation.positions)
        return nav(Valuation(holdings, positions), currency)

    def facts(self) -> dict[str, ChainFacts]:
        """What documents show of each configured chain."""
        return {
            chain.key: ChainFacts(
                chain.key, chain.facts.name, chain.facts.chain_id, chain.facts.explorer, chain.facts.images
            )
            for chain in self.system.chains
        }

    def chains(self) -> list[ChainFact]:
        """Every configured chain, by name."""
        return sorted((_fact(chain) for chain in self.system.chains), key=lambda fact: fact.name)

    async def status(self, accounts: Sequence[Account]) -> list[SyncStatus]:
        """How fresh each account's data is, in their order; starts no work."""
        result = []
        for account in accounts:
            kept = self._kept.get(account.address)
            running = account.address in self._running
            result.append(SyncStatus(account.address, kept.updated_us if kept else None, None, running))
        return result

    async def readiness(self) -> Readiness:
        """How far each chain is, from what the worker and the tail know: no node is asked."""
        chains = [self._ready(chain) for chain in self.system.chains]
        return Readiness(ready=not chains or any(chain.healthy for chain in chains), chains=chains)

    def _ready(self, chain: EvmChain) -> ChainReadiness:
        status, tail = self.indexing.get(chain.key), self.system.tail
        top = tail.top(chain.key) or tail.anchor(chain.key)
        indexed = top.height if top else None
        if status is None:
            return ChainReadiness(key=chain.key, healthy=True, indexed=indexed)
        reason = status.halted or status.trouble or None
        lag = max(0, status.head - (indexed or 0)) if status.head else None
        return ChainReadiness(
            key=chain.key,
            healthy=not status.halted,
            head=status.head or None,
            indexed=indexed,
            lag_blocks=lag,
            reason=reason,
        )

    # --- what is kept ------------------------------------------------------------------------------------------------

    async def _known(self, accounts: Sequence[Account], *, wait: bool, live: bool) -> list[_Kept]:
        """What is known of each account: kept where that will do, read where it will not."""
        now_us = self.system.seams.clock.now_us()
        tasks: list[_Kept | asyncio.Task[_Kept]] = []
        for account in accounts:
            kept = self._kept.get(account.address)
            fresh = kept is not None and now_us - kept.updated_us <= self.system.settings.server.cache_s * 1_000_000
            if kept is not None and (fresh or not wait) and not live:
                if not fresh:
                    self._read_soon(account)
                tasks.append(kept)
            else:
                tasks.append(self._read_soon(account))
        return [await asyncio.shield(task) if isinstance(task, asyncio.Task) else task for task in tasks]

    def _read_soon(self, account: Account) -> asyncio.Task[_Kept]:
        """The read of an account that is on its way, or a new one: callers at the same time share it."""
        running = self._running.get(account.address)
        if running is None:
            running = asyncio.create_task(self._read(account))
            self._running[account.address] = running
            running.add_done_callback(lambda task: self._done(account.address, task))
        return running

    def _done(self, address: str, task: asyncio.Task[_Kept]) -> None:
        self._running.pop(address, None)
        if not task.cancelled():
            task.exception()  # seen here, so that a refresh nobody waits for is not reported as lost

    async def _read(self, account: Account) -> _Kept:
        """A snapshot of one account on every chain of its kind. A chain that fails is an issue, all are an error."""
        chains = [chain for chain in self.system.chains if chain.facts.family == account.family]
        taken = await asyncio.gather(*(self._snapshot(chain, account) for chain in chains))
        failed = [item for item in taken if isinstance(item, SourceError)]
        if chains and len(failed) == len(chains):
            raise failed[0]
        now_us = self.system.seams.clock.now_us()
        snapshots = [
            _unreadable(chain, account, item, now_us) if isinstance(item, SourceError) else item
            for chain, item in zip(chains, taken, strict=True)
        ]
        valuation = value(snapshots)
        if not chains:
            valuation = Valuation((), scope={account.address: ()}, unread={account.address: (_no_family(account),)})
        kept = _Kept(valuation, now_us)
        if not failed:
            self._keep(account.address, kept)
        return kept

    def _keep(self, address: str, kept: _Kept) -> None:
        self._kept[address] = kept
        oldest_us = kept.updated_us - int(KEEP_S * 1_000_000)
        for old in [key for key, item in self._kept.items() if item.updated_us < oldest_us]:
            del self._kept[old]

    async def _snapshot(self, chain: EvmChain, account: Account) -> Snapshot | SourceError:
        try:
            return await self._snapshotter(chain).take([account.address])
        except SourceError as error:
            return error

    def _snapshotter(self, chain: EvmChain) -> Snapshotter:
        if chain.key not in self._snapshotters:
            self._snapshotters[chain.key] = self.system.snapshotter(chain)
        return self._snapshotters[chain.key]


def _refuse_unread(valuation: Valuation) -> None:
    """A net asset value has no room for what is not known: a chain that was not read makes it no value at all."""
    for issues in valuation.unread.values():
        for issue in issues:
            if issue.spoils and issue.adapter != candidates.ADAPTER:
                raise Unavailable(issue.adapter, issue.reason)


def _wallet(document: Portfolio) -> Portfolio:
    return wallet_only(document)


def _no_family(account: Account) -> Issue:
    return Issue(account.family, account.address, NO_FAMILY)


def _unreadable(chain: EvmChain, account: Account, error: SourceError, now_us: int) -> Snapshot:
    """A snapshot that says only why there is none."""
    issue = Issue(chain.key, account.address, f"the chain could not be read: {error.reason}")
    return Snapshot(chain.key, Block(0, "", "", now_us), (account.address,), (), (), (issue,))


def _fact(chain: EvmChain) -> ChainFact:
    facts = chain.facts
    return ChainFact(
        chain_id=facts.chain_id, key=facts.key, name=facts.name, symbol=facts.native.symbol, color=facts.color or None,
        img_small=facts.images.get("small"), img_large=facts.images.get("large"),
        explorer_token_url=facts.explorer.get("token"), explorer_transaction_url=facts.explorer.get("transaction"),
        explorer_address_url=facts.explorer.get("address"),
        is_portfolio_supported=True, is_transactions_supported=False,
    )  # fmt: skip
