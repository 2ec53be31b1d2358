"""The histories of some accounts brought up to the newest block, once; a worker goes on with them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from chainfolio.budgets import Budget
from indexer import consistency, materialise
from indexer.collect import Collector
from indexer.progress import Progress
from indexer.rewind import check_anchor
from indexer.scopes import Scope
from indexer.work import heights, missing_of

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from indexer.wiring import System


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
