"""What accounts have now, over all chains of their kinds, kept with its age.

A stale answer is given at once while a fresh one is made behind it, unless the caller wants to wait; a partial one is
given but never kept as whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from chainfolio.contracts import Snapshot
from chainfolio.errors import SourceError
from engine.answerable import unserved_issue
from engine.history import unreadable
from engine.shared_work import SharedWork
from portfolio.facts import Options
from portfolio.pnl.in_portfolio import AccountGains
from portfolio.valuation import Valuation, value

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.chains import Chain
    from engine.snapshot import Snapshotter
    from indexer.wiring import System

KEEP_S: Final = 3600.0
MAX_KEPT: Final = 20_000  # accounts
MAX_LATER: Final = 100  # accounts that are read though nobody waits for them


@dataclass(slots=True)
class KeptAccount:
    """What is known of one account, and since when. `error` is that of a chain if none of the account's chains could be
    read: then the valuation has only issues."""

    valuation: Valuation
    updated_us: int
    gains: AccountGains | None = None
    error: SourceError | None = None
    written: dict[Options, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class KeptAccounts:
    """The accounts that a server knows. `snapshotter` and `budget` are those of the engine, `gains` tells what is shown
    of an account's gains by the heights that were read, `noted` is told of failures that nobody waits for."""

    system: System
    snapshotter: Callable[[Chain], Snapshotter]
    budget: Callable[[Chain], AbstractAsyncContextManager[None]]
    gains: Callable[[Account, Mapping[str, int]], Awaitable[AccountGains | None]]
    noted: Callable[[BaseException], None]
    _kept: dict[str, KeptAccount] = field(default_factory=dict)
    _reads: SharedWork[KeptAccount] = field(init=False)

    def __post_init__(self) -> None:
        self._reads = SharedWork(self.noted)

    def age_of(self, account: Account) -> int | None:
        """When an account was read, in microseconds; None where nothing of it is kept."""
        kept = self._kept.get(account.address)
        return None if kept is None else kept.updated_us

    def is_being_read(self, account: Account) -> bool:
        """Whether somebody reads it just now."""
        return account.address in self._reads

    async def known(self, accounts: Sequence[Account], *, wait: bool) -> list[KeptAccount]:
        """What is known of each account: kept where that will do, read where it will not."""
        now_us = self.system.seams.clock.now_us()
        keep_us = self.system.settings.server.cache_s * 1_000_000
        known: dict[str, KeptAccount] = {}
        stale: list[Account] = []
        for account in accounts:
            kept = self._kept.get(account.address)
            fresh = kept is not None and now_us - kept.updated_us <= keep_us
            if kept is not None and (fresh or not wait):
                known[account.address] = kept
                if not fresh:
                    stale.append(account)
        self.refresh(stale)
        missing = [account for account in accounts if account.address not in known]
        read = await self._reads.results((account.address, partial(self.read, account)) for account in missing)
        known |= {account.address: kept for account, kept in zip(missing, read, strict=True)}
        return [known[account.address] for account in accounts]

    def refresh(self, accounts: Sequence[Account]) -> bool:
        """Begin to read accounts for later; False where so many are read already that they have to come again."""
        for account in accounts:
            if self._reads.later >= MAX_LATER:
                return False
            self._reads.begin(account.address, partial(self.read, account))
        return True

    async def read(self, account: Account, *, live: bool = False) -> KeptAccount:
        """A snapshot of one account on every chain of its kind: a chain that fails is an issue, and so is a kind
        without a chain. `live`: the loose tokens at the newest blocks, without what validators have."""
        chains = [chain for chain in self.system.account_chains if chain.kind == account.kind]
        taken = await asyncio.gather(*(self._snapshot(chain, account, live) for chain in chains))
        failed = [item for item in taken if isinstance(item, SourceError)]
        now_us = self.system.seams.clock.now_us()
        snapshots = [
            unreadable(chain, [account.address], item, now_us) if isinstance(item, SourceError) else item
            for chain, item in zip(chains, taken, strict=True)
        ]
        valuation = value(snapshots)
        if not chains:
            valuation = Valuation((), scope={account.address: ()}, unread={account.address: (unserved_issue(account),)})
        kept = KeptAccount(valuation, now_us, error=failed[0] if failed and len(failed) == len(chains) else None)
        if kept.error is not None and not live:
            self.noted(kept.error)
        if chains and not failed and not live:
            kept.gains = await self.gains(account, _heights(snapshots))
            self._keep(account.address, kept)
        return kept

    def _keep(self, address: str, kept: KeptAccount) -> None:
        self._kept.pop(address, None)  # so that the oldest come first
        self._kept[address] = kept
        oldest_us = kept.updated_us - int(KEEP_S * 1_000_000)
        while len(self._kept) > MAX_KEPT or next(iter(self._kept.values())).updated_us < oldest_us:
            del self._kept[next(iter(self._kept))]

    async def _snapshot(self, chain: Chain, account: Account, live: bool) -> Snapshot | SourceError:
        try:
            async with self.budget(chain):
                return await self.snapshotter(chain).take([account.address], live=live)
        except SourceError as error:
            return error


def _heights(snapshots: Sequence[Snapshot]) -> dict[str, int]:
    return {each.chain: each.head or each.block.height for each in snapshots}
