"""Watch accounts on request, and index their histories up to the newest block."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from chainfolio.addresses import burn_addresses
from chainfolio.blocks import Span
from chainfolio.budgets import Budget
from chainfolio.chain_settings import EVERYTHING
from chainfolio.indexer import consistency, materialise
from chainfolio.indexer.collect import Collector, Limits
from chainfolio.indexer.progress import Progress
from chainfolio.indexer.rewind import check_anchor
from chainfolio.indexer.scopes import Scope, can_be_read, indexed_for
from chainfolio.indexer.work import heights, missing_for_accounts
from chainfolio.storage.watches import OwnedWatch, WatchLimits
from chainfolio.supervisor import in_thread

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.chains import Chain
    from chainfolio.indexer.parts import IndexedChains
    from chainfolio.indexer.wiring import System
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

log = logging.getLogger("chainfolio.index")
DAY_US = 86_400_000_000


def watch_accounts(system: IndexedChains, owner: str, accounts: Sequence[Account]) -> None:
    """Store watches of accounts for some days, within the limits of the settings; log those beyond.

    Accounts that are watched without an end are skipped, as are chains that are indexed for all accounts.
    """
    settings, now_us = system.settings.accounts, system.environment.clock.now_us()
    until_us = now_us + settings.watched_days * DAY_US
    terms = WatchLimits(now_us, until_us, settings.max_watched, settings.max_watched_by_account)
    for chain in system.chains:
        owned = {each.account for each in system.tail.owned_watches(chain.key, now_us)}
        endless = {each.account for each in system.scope(chain).watches} - owned
        new = [each for each in _unindexed(system, chain, accounts) if each not in endless]
        if not new:
            continue
        rejected = system.tail.add_synced_watches(chain.key, chain.settings.start_block, owner, new, terms)
        if rejected:
            log.warning(
                "%s: %d accounts are not watched: accounts.max_watched_by_account or accounts.max_watched is reached",
                chain.key,
                len(rejected),
            )


def watch_subscriptions(system: IndexedChains, subscriptions: Iterable[tuple[str, Account, int]]) -> None:
    """Store watches of subscribed accounts, without limits. Repeating the call changes nothing.

    Accounts that a chain indexes anyway, and burn addresses, are skipped.

    Args:
        subscriptions: Owner, account, and the end in microseconds.
    """
    sold = [(owner, account, until_us) for owner, account, until_us in subscriptions]
    for chain in system.chains:
        addresses = set(_unindexed(system, chain, [account for _, account, _ in sold]))
        watches = [
            OwnedWatch(account.address, owner, True, until_us)
            for owner, account, until_us in sold
            if account.kind == chain.kind and account.address in addresses
        ]
        if watches:
            system.tail.add_sold_watches(chain.key, chain.settings.start_block, watches)


def _unindexed(system: IndexedChains, chain: Chain, accounts: Sequence[Account]) -> list[str]:
    """Return addresses of the chain's kind that no index of all accounts includes, without burn addresses.

    Empty if the chain cannot be read by account.
    """
    if not can_be_read(chain):
        return []
    candidates = [each.address for each in accounts if each.kind == chain.kind and each.address not in burn_addresses()]
    indexes_all = chain.settings.index == EVERYTHING
    return [each for each in candidates if not (indexes_all and _is_indexed(system, chain, each))]


def indexed_until_us(system: IndexedChains, account: Account) -> int | None:
    """Return the time (microseconds) up to which an account is indexed on all chains of its kind.

    Chains without an indexed block do not count. None if the account is not indexed on one of the others, or if there
    are none.
    """
    times = []
    for chain in system.chains:
        top = system.tail.top(chain.key) or system.tail.anchor(chain.key)
        if chain.kind == account.kind and top is not None:
            indexes_all = chain.settings.index == EVERYTHING
            times.append(top.time_us if indexes_all or _is_indexed(system, chain, account.address) else None)
    indexed_times = [each for each in times if each is not None]
    return min(indexed_times) if indexed_times and len(indexed_times) == len(times) else None


def watched_accounts(system: IndexedChains) -> dict[str, frozenset[str]]:
    """Return the accounts that are watched without a last block, by the key of the chain."""
    return {
        chain.key: frozenset(each.account for each in system.scope(chain).watches if each.last is None)
        for chain in system.chains
    }


def is_being_read(system: IndexedChains, account: Account, watched: Mapping[str, Collection[str]]) -> bool:
    """Return True if an account is watched on a chain, but not indexed up to the newest block yet.

    `watched` is the result of `watched_accounts`, for all accounts of one question.
    """
    return any(
        not _is_indexed(system, chain, account.address)
        for chain in system.chains
        if chain.kind == account.kind and account.address in watched[chain.key]
    )


def _is_indexed(system: IndexedChains, chain: Chain, account: str) -> bool:
    """Return True if all required datasets of an account are indexed up to the newest indexed block.

    False if the chain has no indexed block from `start_block` on.
    """
    top = system.tail.top(chain.key) or system.tail.anchor(chain.key)
    if top is None or top.height < chain.settings.start_block:
        return False
    required_span = Span(chain.settings.start_block, top.height)
    needed = [each.name for each in chain.datasets.values() if each.in_activity and not each.loss]
    return all(indexed_for(system.tail, chain.key, name, account).covers(required_span) for name in needed)


async def index_accounts(
    system: System,
    chain: Chain,
    scope: Scope,
    *,
    budget: Budget | None = None,
    on_change: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Index the missing history of some accounts, also datasets that no node had before.

    The caller holds the chain's lock. Returns the progress, with the number of blocks to read.

    Raises:
        OverBudget: The budget is used up. Data read so far is stored and used by responses.
        DeepReorg: The last final block is not on the chain any more.
        SourceError: The chain cannot be read.
        StoreError: Lake and tail do not belong together.
    """
    lake, tail = system.lake, system.tail
    consistency.check(lake, tail, chain.key)
    await in_thread(system.follower(chain, accounts_only=True).recover)
    await check_anchor(chain, tail)
    progress = Progress(system.environment.clock, 0, on_change=on_change)
    collector = Collector(chain, lake, tail, system.environment, progress, limits=Limits(budget=budget))
    await collector.recover()
    await system.follower(chain, accounts_only=True).finalise_all()
    blocks, final = tail.blocks(chain.key), (await chain.heads()).finalized
    work = missing_for_accounts(
        tail, chain, scope, min(final, blocks[0].height - 1 if blocks else final), include_unread=True
    )
    progress.blocks_total, progress.heights = sum(len(item.spans) for item in work), heights(work)
    try:
        await collector.run(work)
        if scope.goes_on:
            await system.follower(chain, accounts_only=True).step()
    finally:
        await in_thread(partial(_update_histories, lake, tail, chain.key))
    return progress


def _update_histories(lake: Lake, tail: Tail, chain: str) -> None:
    """Finish interrupted updates of a chain's derived tables, and update its histories."""
    materialise.recover(lake, tail, chain)
    materialise.materialise(lake, tail, chain, tuple(materialise.HISTORIES))
