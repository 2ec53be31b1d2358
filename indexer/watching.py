"""Accounts whose histories are wanted: asked for by requests, and brought up to the newest block."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from chainfolio.addresses import nobody
from chainfolio.blocks import Span
from chainfolio.budgets import Budget
from chainfolio.chain_settings import EVERYTHING
from indexer import consistency, materialise
from indexer.collect import Collector
from indexer.progress import Progress
from indexer.rewind import check_anchor
from indexer.scopes import Scope, can_be_read, indexed_for
from indexer.work import heights, missing_of
from storage.watches import PlaceTerms, WatchPlace

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.chains import Chain
    from indexer.wiring import System

log = logging.getLogger("chainfolio.index")
DAY_US = 86_400_000_000


def sync(system: System, owner: str, accounts: Sequence[Account]) -> None:
    """Give accounts places of an owner, which end some days later, as far as the settings allow.

    None is given to an account that is watched without an end, nor on a chain that is indexed for everybody.
    """
    settings, now_us = system.settings.accounts, system.seams.clock.now_us()
    until_us = now_us + settings.watched_days * DAY_US
    terms = PlaceTerms(now_us, until_us, settings.max_watched, settings.max_watched_by_account)
    for chain in system.chains:
        places = {each.account for each in system.tail.places(chain.key, now_us)}
        endless = {each.account for each in system.scope(chain).watches} - places
        new = [each for each in _unindexed(system, chain, accounts) if each not in endless]
        if not new:
            continue
        refused = system.tail.add_synced_places(chain.key, chain.settings.start_block, owner, new, terms)
        if refused:
            log.warning(
                "%s: %d accounts are not watched: accounts.max_watched_by_account or accounts.max_watched is reached",
                chain.key, len(refused),
            )  # fmt: skip


def keep_sold(system: System, subscriptions: Iterable[tuple[str, Account, int]]) -> None:
    """Give the accounts of running subscriptions their places, whatever the settings allow to others; again: nothing
    changes.

    Args:
        subscriptions: Owner, account, and the end in microseconds.
    """
    sold = [(owner, account, until_us) for owner, account, until_us in subscriptions]
    for chain in system.chains:
        addresses = set(_unindexed(system, chain, [account for _, account, _ in sold]))
        places = [
            WatchPlace(account.address, owner, True, until_us)
            for owner, account, until_us in sold
            if account.kind == chain.kind and account.address in addresses
        ]
        if places:
            system.tail.add_sold_places(chain.key, chain.settings.start_block, places)


def _unindexed(system: System, chain: Chain, accounts: Sequence[Account]) -> list[str]:
    """Return the addresses of a chain's kind that are not of nobody, and that no index of everybody covers."""
    if not can_be_read(chain):
        return []
    own = [each.address for each in accounts if each.kind == chain.kind and each.address not in nobody()]
    everybody = chain.settings.index == EVERYTHING
    return [each for each in own if not (everybody and _is_known(system, chain, each))]


def read_until_us(system: System, account: Account) -> int | None:
    """Up to when what an account did is indexed on all chains of its kind; None where nothing is."""
    times = []
    for chain in system.chains:
        top = system.tail.top(chain.key) or system.tail.anchor(chain.key)
        if chain.kind == account.kind and top is not None:
            everybody = chain.settings.index == EVERYTHING
            times.append(top.time_us if everybody or _is_known(system, chain, account.address) else None)
    known = [each for each in times if each is not None]
    return min(known) if known and len(known) == len(times) else None


def is_being_read(system: System, account: Account) -> bool:
    """Whether an account is watched on a chain, and its history is not read up to the newest block yet."""
    return any(
        not _is_known(system, chain, account.address)
        for chain in system.chains
        if chain.kind == account.kind
        and account.address in {each.account for each in system.scope(chain).watches if each.last is None}
    )


def _is_known(system: System, chain: Chain, account: str) -> bool:
    """Whether all that answers cannot do without is indexed of an account, up to the newest block that is indexed."""
    top = system.tail.top(chain.key) or system.tail.anchor(chain.key)
    if top is None or top.height < chain.settings.start_block:
        return False
    wanted = Span(chain.settings.start_block, top.height)
    needed = [each.name for each in chain.datasets.values() if each.in_activity and not each.loss]
    return all(indexed_for(system.tail, chain.key, name, account).covers(wanted) for name in needed)


async def bring_up(
    system: System,
    chain: Chain,
    scope: Scope,
    *,
    budget: Budget | None = None,
    on_change: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Read what is missing of some accounts, also what no node could give before; how much there was to do.

    The caller holds the chain's lock. OverBudget where the budget ends; what was read by then is kept, and found by
    answers.
    """
    lake, tail = system.lake, system.tail
    consistency.check(lake, tail, chain.key)
    await asyncio.to_thread(system.follower(chain, alone=True).recover)
    await check_anchor(chain, tail)
    progress = Progress(system.seams.clock, 0, on_change=on_change)
    collector = Collector(chain, lake, tail, system.seams, progress, budget=budget)
    await collector.recover()
    await system.follower(chain, alone=True).settle()
    kept, final = tail.blocks(chain.key), (await chain.heads()).finalized
    work = missing_of(tail, chain, scope, min(final, kept[0].height - 1 if kept else final), again=True)
    progress.blocks_total, progress.heights = sum(len(item.spans) for item in work), heights(work)
    try:
        await collector.run(work)
        if scope.goes_on:
            await system.follower(chain, alone=True).step()
    finally:
        await asyncio.to_thread(materialise.recover, lake, tail, chain.key)
        await asyncio.to_thread(materialise.materialise, lake, tail, chain.key, tuple(materialise.HISTORIES))
    return progress
