"""The indexer service: back-fills each configured chain to its final block, then follows its head."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from chainfolio.blocks import Span
from chainfolio.chain_settings import EVERYTHING
from chainfolio.errors import (
    ChainfolioError,
    DeepReorg,
    Locked,
    SourceError,
    StorageFull,
    StoreUnavailable,
    TooManyFiles,
)
from chainfolio.indexer import consistency, materialise
from chainfolio.indexer.collect import Collector, Limits
from chainfolio.indexer.follow import Follower, Status
from chainfolio.indexer.maintenance import Maintenance
from chainfolio.indexer.progress import Progress
from chainfolio.indexer.reorg_recovery import recover_reorg
from chainfolio.indexer.rewind import check_anchor
from chainfolio.indexer.schedule import JobSchedule
from chainfolio.indexer.scrub import Scrub
from chainfolio.indexer.wiring import System
from chainfolio.indexer.work import missing, missing_for_accounts
from chainfolio.supervisor import Supervisor, Task, described, in_thread

if TYPE_CHECKING:
    from chainfolio.chains import Chain

INDEXING = "indexing"  # the task of each chain, as logs and metrics name it
MATERIALISE, VACUUM, CHECK = "materialise", "vacuum", "check"  # the jobs of each chain
TEMPORARY_ERRORS = (SourceError, StorageFull, StoreUnavailable, Locked, TooManyFiles)  # waited out
RETRY_S = 5.0
# How long a chain stays halted, and its nodes must be consistent, before blocks are deleted.
RECOVER_AFTER_S = 30.0

log = logging.getLogger("chainfolio.index")


@dataclass(slots=True)
class Worker:
    """Indexes all chains of a system. `status` has the state of each.

    Each chain is a task of the supervisor: an error that ends its indexing is logged, and the chain is restarted after
    a delay. Recurring work of a chain is woken by `jobs`.
    """

    system: System
    jobs: JobSchedule = field(default_factory=JobSchedule)
    status: dict[str, Status] = field(default_factory=dict)

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor of the tasks and jobs."""
        return self.jobs.supervisor

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Index all chains for the duration of the block, and check their files at the times of the settings.

        An error of one chain does not affect the others.
        """
        chains = self.system.chains
        try:
            for chain in chains:
                self.status[chain.key] = Status()
                self.supervisor.start(INDEXING, partial(self._keep, chain), chain=chain.key)
                scrub = Scrub(self.system.lake, self.system.tail, self.system.environment.clock, chain.key)
                self.jobs.add(CHECK, scrub.run, chain=chain.key)
            yield
        finally:
            for chain in chains:
                await self.jobs.remove(CHECK, chain=chain.key)
                await self.supervisor.stop(INDEXING, chain=chain.key)

    async def run(self) -> None:
        """Run until cancelled."""
        async with self.running():
            await asyncio.Event().wait()

    async def _keep(self, chain: Chain, task: Task) -> None:
        """Index a chain for ever: wait for temporary errors, recover from reorganisations.

        Any other error halts the chain until the supervisor restarts it.
        """
        status = self.status[chain.key]
        try:
            while True:
                try:
                    await self._chain(chain, task)
                except DeepReorg as error:
                    status.halted = str(error)
                except TEMPORARY_ERRORS as error:
                    status.problem = str(error)
                    await self.system.environment.clock.sleep(RETRY_S)
                    continue
                await self._recovered_from_reorg(chain, status)
        except ChainfolioError as error:
            status.halted = str(error)
            raise
        except Exception as error:  # shown by `/readyz`; the supervisor handles it
            status.halted = f"{chain.key}: {described(error)}"
            raise

    async def _recovered_from_reorg(self, chain: Chain, status: Status) -> None:
        """Undo a reorganisation of final blocks, repeated until it succeeds, and clear `status.halted`.

        It stays halted for a while first, so that a node that is wrong for a moment deletes nothing.
        """
        system = self.system
        log.error("%s: halted: %s", chain.key, status.halted)
        while True:
            await system.environment.clock.sleep(RECOVER_AFTER_S)
            try:
                with system.tail.lock(chain.key):
                    first = await recover_reorg(chain, system.lake, system.tail)
            except TEMPORARY_ERRORS as error:
                status.problem = str(error)
                continue
            status.halted = status.problem = ""
            if first is not None:
                status.recovered_reorgs += 1
                status.problem = f"its final past changed; it is indexed again from block {first}"
                log.warning("%s: %s", chain.key, status.problem)
            return

    async def _chain(self, chain: Chain, task: Task) -> None:
        """Index a chain under its lock, until it halts; first recover from an interruption.

        Raises:
            Locked: Another process indexes it.
            SourceError: It could not be read.
            StoreError: Lake and tail do not belong together.
        """
        system, status = self.system, self.status[chain.key]
        with system.tail.lock(chain.key):
            consistency.check(system.lake, system.tail, chain.key)
            if not chain.settings.datasets:
                await chain.probe(chain.settings.start_block)
            await in_thread(system.follower(chain).recover)
            await check_anchor(chain, system.tail)
            await self._collector(chain, task).recover()
            while True:
                await self._index_scope(chain, status, task)
                if status.halted:
                    return

    async def _index_scope(self, chain: Chain, status: Status, task: Task) -> None:
        """Index a chain up to its head and follow it, until the watched accounts change."""
        system = self.system
        follower = await asyncio.to_thread(system.follower, chain)
        follower.status = status

        def accounts_changed() -> bool:
            return system.scope(chain) != follower.scope

        await follower.finalise_all()
        await self._back_fill(chain, self._collector(chain, task, accounts_changed), follower)
        status.halted = ""
        await self._follow(chain, follower, task, accounts_changed)

    def _collector(self, chain: Chain, task: Task, stops: Callable[[], bool] = lambda: False) -> Collector:
        system = self.system
        progress = Progress(system.environment.clock, 1, on_change=lambda _: task.progressed())
        return Collector(chain, system.lake, system.tail, system.environment, progress, limits=Limits(stops=stops))

    async def _back_fill(self, chain: Chain, collector: Collector, follower: Follower) -> None:
        """Index final blocks that are neither in lake nor tail, update derived tables and run maintenance."""
        system, status = self.system, follower.status
        heads = await chain.heads()
        status.head, status.finalized = heads.latest.height, heads.finalized
        blocks = system.tail.blocks(chain.key)
        last = min(heads.finalized, blocks[0].height - 1 if blocks else heads.finalized)
        # Accounts first: they take minutes, and the rest of a chain may take days.
        await collector.run(missing_for_accounts(system.tail, chain, follower.scope, last))
        if last >= chain.settings.start_block and chain.settings.index == EVERYTHING:
            span = Span(chain.settings.start_block, last)
            contracts = chain.settings.chosen
            await collector.run(missing(system.tail, chain.key, span, follower.datasets, contracts, follower.events))
            status.indexed = max(status.indexed, last)
        await in_thread(partial(materialise.recover, system.lake, system.tail, chain.key))
        await in_thread(self._maintenance(chain).run_once)

    def _maintenance(self, chain: Chain) -> Maintenance:
        system = self.system
        keep_h = system.settings.lake.keep_replaced_h
        return Maintenance(system.lake, system.tail, chain.key, chain.info.block_time_ms, keep_h)

    async def _follow(self, chain: Chain, follower: Follower, task: Task, stops: Callable[[], bool]) -> None:
        """Index new blocks of a chain and maintain its tables, until the follower is halted or `stops()`.

        If the chain's settings index no new blocks, only the maintenance runs.
        """
        system = self.system
        maintenance = self._maintenance(chain)
        async with AsyncExitStack() as stack:
            for name, work in ((MATERIALISE, maintenance.materialise_due), (VACUUM, maintenance.vacuum)):
                await stack.enter_async_context(self.jobs.scheduled(name, work, chain=chain.key))
            if chain.settings.index == EVERYTHING or follower.scope.goes_on:
                await follower.run(task.progressed, stops)
            while not (follower.status.halted or stops()):  # no new blocks to index
                await system.environment.clock.sleep(follower.pause_s)
                task.progressed()
