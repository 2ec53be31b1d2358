"""Cache of the current portfolios of accounts, over all chains of their kinds.

A stale entry is returned at once while a fresh read runs in the background, unless the caller waits. An answer to which
a chain is missing is returned and not cached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from chainfolio.capabilities import Capability
from chainfolio.contracts import Snapshot
from chainfolio.engine.account_support import unsupported_issue
from chainfolio.engine.history.past_days import unreadable
from chainfolio.engine.shared_work import SharedWork
from chainfolio.engine.snapshots.account_index import MAX_NAMED
from chainfolio.errors import SourceError
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.pnl.in_portfolio import AccountGains
from chainfolio.portfolio.valuation import Valuation, valuate

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.chains import Chain
    from chainfolio.engine.snapshots.snapshotter import Snapshotter
    from chainfolio.indexer.wiring import System

KEEP_S: Final = 3600.0
MAX_ACCOUNTS: Final = 20_000  # accounts
MAX_BACKGROUND_READS: Final = 100  # accounts read in the background at once


@dataclass(slots=True)
class CachedAccount:
    """The cached answer about one account.

    Attributes:
      updated_us: The time of the read, in microseconds.
      gains: None if they were not computed.
      error: The error of a chain if none of the account's chains could be read: then the valuation has only issues.
      encoded: The JSON of the portfolio, by its options.
    """

    valuation: Valuation
    updated_us: int
    gains: AccountGains | None = None
    error: SourceError | None = None
    encoded: dict[Options, bytes] = field(default_factory=dict)


GroupEntry = tuple[CachedAccount, Mapping[str, int] | None]  # heights of the chains; None if one was not read


@dataclass(slots=True)
class AccountCache:
    """The cached accounts of one server.

    Attributes:
      snapshotter: Returns the snapshotter of a chain.
      budget: Limits the time and number of concurrent reads of a chain.
      gains: Returns the gains of an account at the block heights of its chains; None if the settings want none.
      on_failure: Is called with errors of background reads.
    """

    system: System
    snapshotter: Callable[[Chain], Snapshotter]
    budget: Callable[[Chain], AbstractAsyncContextManager[None]]
    gains: Callable[[Account, Mapping[str, int]], Awaitable[AccountGains | None]]
    on_failure: Callable[[BaseException], None]
    _entries: dict[str, CachedAccount] = field(default_factory=dict)
    _reads: SharedWork[CachedAccount] = field(init=False)
    _groups: SharedWork[dict[str, GroupEntry]] = field(init=False)

    def __post_init__(self) -> None:
        self._reads = SharedWork(self.on_failure)
        self._groups = SharedWork(self.on_failure)

    @property
    def size(self) -> int:
        """Number of cached accounts."""
        return len(self._entries)

    def updated_us_of(self, account: Account) -> int | None:
        """Return the time at which an account was read, in microseconds; None if it is not cached."""
        entry = self._entries.get(account.address)
        return None if entry is None else entry.updated_us

    def is_being_read(self, account: Account) -> bool:
        """Return True if a read of the account is running."""
        return account.address in self._reads

    async def get(self, accounts: Sequence[Account], *, wait: bool) -> list[CachedAccount]:
        """Return the entry of each account, in order, and read those that are not cached.

        Stale entries are refreshed in the background; with `wait` they are read before the function returns. A chain
        that fails is an issue of its entries, which are not cached then.
        """
        now_us = self.system.environment.clock.now_us()
        keep_us = self.system.settings.server.cache_s * 1_000_000
        entries: dict[str, CachedAccount] = {}
        stale: list[Account] = []
        for account in accounts:
            entry = self._entries.get(account.address)
            fresh = entry is not None and now_us - entry.updated_us <= keep_us
            if entry is not None and (fresh or not wait):
                entries[account.address] = entry
                if not fresh:
                    stale.append(account)
        self.refresh(stale)
        missing = [account for account in accounts if account.address not in entries]
        new = [account for account in dict.fromkeys(missing) if account.address not in self._reads]
        groups = {each.address: group for group in self._groups_of(new) for each in group}
        read = await self._reads.results(
            (account.address, partial(self._read_with, account, groups.get(account.address, [account])))
            for account in missing
        )
        entries |= {account.address: entry for account, entry in zip(missing, read, strict=True)}
        return [entries[account.address] for account in accounts]

    def refresh(self, accounts: Sequence[Account]) -> bool:
        """Start background reads of accounts; return False if there are too many, then some were not started."""
        for account in accounts:
            if self._reads.background_count >= MAX_BACKGROUND_READS:
                return False
            self._reads.begin(account.address, partial(self.read, account))
        return True

    async def read(self, account: Account, *, live: bool = False) -> CachedAccount:
        """Read one account on every chain of its kind, and cache the result if all chains answered.

        Its gains are added then. A chain that fails becomes an issue, and so does a kind without a chain; if all chains
        fail, the entry has the error of the first. With `live`, only the wallet is read, at the newest blocks and
        without validators, and nothing is cached.
        """
        if live:
            return (await self._read_group([account], live=True))[account.address][0]
        return await self._read_with(account, [account])

    async def _read_with(self, account: Account, group: Sequence[Account]) -> CachedAccount:
        """Read one account together with a group that it belongs to, as of `read`. A group is read once."""
        key = " ".join(each.address for each in group)
        (entries,) = await self._groups.results([(key, partial(self._read_group, group, live=False))])
        entry, heights = entries[account.address]
        if entry.error is not None:
            self.on_failure(entry.error)
        if heights is not None:
            entry.gains = await self.gains(account, heights)
            self._store(account.address, entry)
        return entry

    async def _read_group(self, group: Sequence[Account], *, live: bool) -> dict[str, GroupEntry]:
        """Read accounts of one kind, with one snapshot for each chain.

        Returns:
            By account, its entry without gains, and the heights of its chains; None if not all chains were read.
        """
        addresses = [each.address for each in group]
        chains = [chain for chain in self.system.account_chains if chain.kind == group[0].kind]
        results = await asyncio.gather(*(self._snapshot(chain, addresses, live) for chain in chains))
        failed = [item for item in results if isinstance(item, SourceError)]
        now_us = self.system.environment.clock.now_us()
        snapshots = [
            unreadable(chain, addresses, item, now_us) if isinstance(item, SourceError) else item
            for chain, item in zip(chains, results, strict=True)
        ]
        valuations = valuate(snapshots).by_account() if chains else {each.address: _unsupported(each) for each in group}
        error = failed[0] if failed and len(failed) == len(chains) else None
        heights = _heights(snapshots) if chains and not failed else None
        return {each: (CachedAccount(valuations[each], now_us, error=error), heights) for each in addresses}

    def _groups_of(self, accounts: Sequence[Account]) -> Iterator[list[Account]]:
        """Yield groups of accounts that are read together: of one kind, and at most MAX_NAMED.

        Accounts are read alone if nodes answer about now only: many busy accounts may never agree on one block.
        """
        for kind in dict.fromkeys(account.kind for account in accounts):
            of_kind = [account for account in accounts if account.kind == kind]
            chains = [chain for chain in self.system.account_chains if chain.kind == kind]
            size = MAX_NAMED if all(Capability.PAST_BALANCES in chain.capabilities for chain in chains) else 1
            yield from (of_kind[start : start + size] for start in range(0, len(of_kind), size))

    def _store(self, address: str, entry: CachedAccount) -> None:
        """Store an entry as the newest, and drop those that are too old or too many."""
        self._entries.pop(address, None)  # so that the oldest come first
        self._entries[address] = entry
        oldest_us = entry.updated_us - int(KEEP_S * 1_000_000)
        while len(self._entries) > MAX_ACCOUNTS or next(iter(self._entries.values())).updated_us < oldest_us:
            del self._entries[next(iter(self._entries))]

    async def _snapshot(self, chain: Chain, addresses: Sequence[str], live: bool) -> Snapshot | SourceError:
        """Take a snapshot of accounts within the budget; return its SourceError in place of raising it."""
        try:
            async with self.budget(chain):
                return await self.snapshotter(chain).take(addresses, live=live)
        except SourceError as error:
            return error


def _unsupported(account: Account) -> Valuation:
    """Return the valuation of an account without a chain of its kind: it has an issue alone."""
    return Valuation((), scope={account.address: ()}, unread={account.address: (unsupported_issue(account),)})


def _heights(snapshots: Sequence[Snapshot]) -> dict[str, int]:
    return {each.chain: each.head or each.block.height for each in snapshots}


def require_any_read(entries: Sequence[CachedAccount]) -> list[CachedAccount]:
    """Return the same entries; if no chain of any account could be read, raise the first error.

    Raises:
        ChainfolioError: The first error of an account.
    """
    errors = [entry.error for entry in entries if entry.error is not None]
    is_read = any(entry.error is None and any(entry.valuation.scope.values()) for entry in entries)
    if errors and not is_read:
        raise errors[0]
    return list(entries)
