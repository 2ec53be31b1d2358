"""The work that never ends: each configured chain is back-filled to its final block, then followed at its head."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from chainfolio.blocks import Span
from chainfolio.chain_settings import EVERYTHING
from chainfolio.errors import Busy, ChainfolioError, DeepReorg, SourceError, StorageFull, TooManyFiles
from chainfolio.supervisor import Supervisor, Task, described
from indexer import consistency, materialise
from indexer.collect import Collector
from indexer.follow import Follower, Status
from indexer.maintenance import Maintenance
from indexer.progress import Progress
from indexer.reorg_recovery import recover_reorg
from indexer.rewind import check_anchor
from indexer.scrub import Scrub
from indexer.wiring import System
from indexer.work import missing, missing_of

if TYPE_CHECKING:
    from chainfolio.chains import Chain

# The tasks of each chain, as logs and metrics name them.
INDEXING, MAINTENANCE, SCRUB = "indexing", "derivation", "scrub"
PASSING = (SourceError, StorageFull, Busy, TooManyFiles)  # waited out
RETRY_S = 5.0
# For so long a chain stays halted, and its nodes have to stay with what they say, before its past is forgotten.
RECOVER_AFTER_S = 30.0

log = logging.getLogger("chainfolio.index")


@dataclass(slots=True)
class Worker:
    """Indexes every chain of a system for as long as it runs; `status` is what it knows about each.

    Each chain is a task of the supervisor: whatever ends its indexing is logged and marked, and the chain is taken up
    again after a back-off.
    """

    system: System
    supervisor: Supervisor = field(default_factory=Supervisor)
    status: dict[str, Status] = field(default_factory=dict)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Work on every chain for as long as the block lasts. One chain's trouble is no other chain's."""
        chains = self.system.chains
        try:
            for chain in chains:
                self.status[chain.key] = Status()
                self.supervisor.start(INDEXING, partial(self._keep, chain), chain=chain.key)
                scrub = Scrub(self.system.lake, self.system.seams.clock, chain.key)
                self.supervisor.start(SCRUB, scrub.run, chain=chain.key)
            yield
        finally:
            for chain in chains:
                await self.supervisor.stop(SCRUB, chain=chain.key)
                await self.supervisor.stop(INDEXING, chain=chain.key)

    async def run(self) -> None:
        """Until cancelled."""
        async with self.running():
            await asyncio.Event().wait()

    async def _keep(self, chain: Chain, task: Task) -> None:
        """A chain, again and again: what may pass is waited out, what can be repaired is repaired; any other error
        halts the chain until the supervisor's next try succeeds."""
        status = self.status[chain.key]
        try:
            while True:
                try:
                    await self._chain(chain, task)
                except DeepReorg as error:
                    status.halted = str(error)
                except PASSING as error:
                    status.problem = str(error)
                    await self.system.seams.clock.sleep(RETRY_S)
                    continue
                await self._recovered_from_reorg(chain, status)
        except ChainfolioError as error:
            status.halted = str(error)
            raise
        except Exception as error:  # noted for `/readyz`; the supervisor judges it
            status.halted = f"{chain.key}: {described(error)}"
            raise

    async def _recovered_from_reorg(self, chain: Chain, status: Status) -> None:
        """Return once a chain that left its final past can go on. It stays halted for a while first, lest a node that
        is wrong for a moment costs anything."""
        system = self.system
        log.error("%s: halted: %s", chain.key, status.halted)
        while True:
            await system.seams.clock.sleep(RECOVER_AFTER_S)
            try:
                with system.tail.lock(chain.key):
                    first = await recover_reorg(chain, system.lake, system.tail)
            except PASSING as error:
                status.problem = str(error)
                continue
            status.halted = status.problem = ""
            if first is not None:
                status.recovered_reorgs += 1
                status.problem = f"its final past changed; it is indexed again from block {first}"
                log.warning("%s: %s", chain.key, status.problem)
            return

    async def _chain(self, chain: Chain, task: Task) -> None:
        system, status = self.system, self.status[chain.key]
        with system.tail.lock(chain.key):
            consistency.check(system.lake, system.tail, chain.key)
            if not chain.settings.datasets:
                await chain.probe(chain.settings.start_block)
            await asyncio.to_thread(system.follower(chain).recover)
            await check_anchor(chain, system.tail)
            await self._collector(chain, task).recover()
            while True:
                await self._until_others_are_watched(chain, status, task)
                if status.halted:
                    return

    async def _until_others_are_watched(self, chain: Chain, status: Status, task: Task) -> None:
        """Bring a chain up to its head and follow it, for as long as the same accounts are watched."""
        system = self.system
        follower = await asyncio.to_thread(system.follower, chain)
        follower.status = status

        def others() -> bool:
            return system.scope(chain) != follower.scope

        await follower.settle()
        await self._back_fill(chain, self._collector(chain, task, others), follower)
        status.halted = ""
        await self._follow(chain, follower, task, others)

    def _collector(self, chain: Chain, task: Task, stops: Callable[[], bool] = lambda: False) -> Collector:
        system = self.system
        progress = Progress(system.seams.clock, 1, on_change=lambda _: task.progressed())
        return Collector(chain, system.lake, system.tail, system.seams, progress, stops=stops)

    async def _back_fill(self, chain: Chain, collector: Collector, follower: Follower) -> None:
        """Everything final that is not in the lake and not in the tail either."""
        system, status = self.system, follower.status
        heads = await chain.heads()
        status.head, status.finalized = heads.latest.height, heads.finalized
        kept = system.tail.blocks(chain.key)
        last = min(heads.finalized, kept[0].height - 1 if kept else heads.finalized)
        # Accounts first: they take minutes, and the rest of a chain may take days.
        await collector.run(missing_of(system.tail, chain, follower.scope, last))
        if last >= chain.settings.start_block and chain.settings.index == EVERYTHING:
            span = Span(chain.settings.start_block, last)
            contracts = chain.settings.chosen
            await collector.run(missing(system.tail, chain.key, span, follower.datasets, contracts, follower.events))
            status.indexed = max(status.indexed, last)
        await asyncio.to_thread(materialise.recover, system.lake, system.tail, chain.key)
        await asyncio.to_thread(
            materialise.materialise, system.lake, system.tail, chain.key, tuple(materialise.HISTORIES)
        )

    async def _follow(self, chain: Chain, follower: Follower, task: Task, stops: Callable[[], bool]) -> None:
        system = self.system
        maintenance = Maintenance(system.lake, system.tail, chain.key, system.seams.clock)
        async with self.supervisor.running(MAINTENANCE, maintenance.run, chain=chain.key):
            if chain.settings.index == EVERYTHING or follower.scope.goes_on:
                await follower.run(task.progressed, stops)
            while not (follower.status.halted or stops()):  # nobody wants new blocks
                await system.seams.clock.sleep(follower.pause_s)
                task.progressed()
