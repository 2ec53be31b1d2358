"""Cache of the current portfolios of accounts, over all chains of their kinds.

A stale entry is returned at once while a fresh read runs in the background, unless the caller waits. An answer to which
a chain is missing is returned and not cached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from chainfolio.contracts import Snapshot
from chainfolio.engine.account_support import unsupported_issue
from chainfolio.engine.shared_work import SharedWork
from chainfolio.engine.snapshots.build import unreadable
from chainfolio.errors import SourceError
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.pnl.in_portfolio import AccountGains
from chainfolio.portfolio.valuation import Valuation, valuate

if TYPE_CHECKING:
    from chainfolio.assets import Account, Asset
    from chainfolio.chains import Chain
    from chainfolio.engine.snapshots.snapshotter import Snapshotter
    from chainfolio.indexer.parts import Chains
    from chainfolio.portfolio.nft_metadata import NftMetadata

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
      metadata: What the metadata of its collectibles say; None until an answer shows them.
    """

    valuation: Valuation
    updated_us: int
    gains: AccountGains | None = None
    error: SourceError | None = None
    encoded: dict[Options, bytes] = field(default_factory=dict)
    metadata: Mapping[Asset, NftMetadata] | None = None


@dataclass(slots=True)
class AccountCache:
    """The cached accounts of one server.

    Attributes:
      snapshotter: Returns the snapshotter of a chain.
      budget: Limits the time and number of concurrent reads of a chain.
      gains: Returns the gains of an account at the block heights of its chains; None if the settings want none.
      on_failure: Is called with errors of background reads.
    """

    system: Chains
    snapshotter: Callable[[Chain], Snapshotter]
    budget: Callable[[Chain], AbstractAsyncContextManager[None]]
    gains: Callable[[Account, Mapping[str, int]], Awaitable[AccountGains | None]]
    on_failure: Callable[[BaseException], None]
    _entries: dict[str, CachedAccount] = field(default_factory=dict)
    _reads: SharedWork[CachedAccount] = field(init=False)

    def __post_init__(self) -> None:
        self._reads = SharedWork(self.on_failure)

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
        read = await self._reads.results((account.address, partial(self.read, account)) for account in missing)
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
        fail, the entry has the error of the first, and `on_failure` is called. With `live`, only the wallet is read, at
        the newest blocks and without validators, and nothing is cached or reported.
        """
        chains = [chain for chain in self.system.account_chains if chain.kind == account.kind]
        results = await asyncio.gather(*(self._snapshot(chain, account, live) for chain in chains))
        failed = [item for item in results if isinstance(item, SourceError)]
        now_us = self.system.environment.clock.now_us()
        snapshots = [
            unreadable(chain, [account.address], item, now_us) if isinstance(item, SourceError) else item
            for chain, item in zip(chains, results, strict=True)
        ]
        valuation = valuate(snapshots)
        if not chains:
            valuation = Valuation(
                (), scope={account.address: ()}, unread={account.address: (unsupported_issue(account),)}
            )
        entry = CachedAccount(valuation, now_us, error=failed[0] if failed and len(failed) == len(chains) else None)
        if entry.error is not None and not live:
            self.on_failure(entry.error)
        if chains and not failed and not live:
            entry.gains = await self.gains(account, _heights(snapshots))
            self._store(account.address, entry)
        return entry

    def _store(self, address: str, entry: CachedAccount) -> None:
        """Store an entry as the newest, and drop those that are too old or too many."""
        self._entries.pop(address, None)  # so that the oldest come first
        self._entries[address] = entry
        oldest_us = entry.updated_us - int(KEEP_S * 1_000_000)
        while len(self._entries) > MAX_ACCOUNTS or next(iter(self._entries.values())).updated_us < oldest_us:
            del self._entries[next(iter(self._entries))]

    async def _snapshot(self, chain: Chain, account: Account, live: bool) -> Snapshot | SourceError:
        """Take a snapshot of one account within the budget; return its SourceError in place of raising it."""
        try:
            async with self.budget(chain):
                return await self.snapshotter(chain).take([account.address], live=live)
        except SourceError as error:
            return error


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
