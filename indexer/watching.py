"""Accounts whose histories are wanted: asked for by requests, and brought up to the newest block."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
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
from storage.tail import Watch

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.chains import Chain
    from indexer.wiring import System

log = logging.getLogger("chainfolio.index")


def want(system: System, accounts: Sequence[Account]) -> None:
    """Have the histories of accounts read on every chain of their kind, as requests ask for it: no more of them than
    the operator lets requests ask for, and none of a chain that is indexed for everybody."""
    for chain in system.chains:
        watched = {each.account for each in system.scope(chain).watches}
        room = system.settings.accounts.max_watched - len(system.tail.watches(chain.key))
        new = [each.address for each in accounts if each.kind == chain.kind and each.address not in watched]
        new = [each for each in new if each not in nobody()]
        if not new or not can_be_read(chain) or all(_is_known(system, chain, each) for each in new):
            continue
        if len(new) > room:
            log.warning("%s: %d accounts are not watched: accounts.max_watched is reached", chain.key, len(new) - room)
        begin = chain.settings.start_block
        system.tail.watch(chain.key, [Watch(each, begin) for each in new[: max(0, room)]])


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
