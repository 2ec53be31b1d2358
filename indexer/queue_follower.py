"""Follow heads by workers of the queue: one worker follows each chain, others index older ranges.

The one that has the lock `<chain>.follow` follows. It takes the chain's lock for each step, as a job does for each
commit. If it ends or is frozen, another worker gets the lock. A worker that was frozen notices that in its next step,
before it reads the chain.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from chainfolio.chain_settings import EVERYTHING
from chainfolio.errors import DeepReorg, Locked
from chainfolio.indexer.collect import Collector
from chainfolio.indexer.follow import FINALISE_BLOCKS, Status
from chainfolio.indexer.progress import Progress
from chainfolio.indexer.reorg_recovery import recover_reorg
from chainfolio.indexer.shared_chain import open_batches
from chainfolio.indexer.worker import RECOVER_AFTER_S
from chainfolio.supervisor import Supervisor, Task

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.indexer.scopes import Scope
    from chainfolio.indexer.wiring import System

FOLLOWING: Final = "following"  # the task of each chain, as logs name it
TAKE_EVERY_S: Final = 5.0  # between two attempts to follow a chain

log = logging.getLogger("chainfolio.jobs")


@dataclass(slots=True)
class QueueFollower:
    """Follows the chains of a system that no other worker follows.

    Attributes:
        locked: Waits for the lock of a chain, and holds it during the block. Raises Locked if it is not free for long.
        prepare: Checks the stores and the last final block of a chain, and finishes interrupted commits.
        warn: Logs an error or a problem of a subject once, until it changes or ends (None).
    """

    system: System
    locked: Callable[[str], AbstractAsyncContextManager[None]]
    prepare: Callable[[Chain], Awaitable[object]]
    warn: Callable[[str, Exception | str | None], None]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow all chains for the duration of the block.

        An error of one chain is logged, and does not affect the others.
        """
        supervisor = Supervisor(self.system.environment.clock, self.system.environment.random)
        try:
            for chain in self.system.chains:
                supervisor.start(FOLLOWING, partial(self._keep, chain), chain=chain.key)
            yield
        finally:
            await supervisor.close()

    async def _keep(self, chain: Chain, task: Task) -> None:
        """Follow a chain whenever no other worker does, until cancelled. Undo reorganisations of final blocks."""
        system, subject = self.system, f"{chain.key}: not followed"
        while True:
            is_held = False
            try:
                with system.tail.hold(f"{chain.key}.follow", f"the head of {chain.key}"):
                    is_held = True
                    await self._follow_until_halted(chain, task)
            except Locked as error:
                has_follower = not is_held and error.holder  # another worker
                self.warn(subject, None if has_follower else error)
            await system.environment.clock.sleep(TAKE_EVERY_S)

    async def _follow_until_halted(self, chain: Chain, task: Task) -> None:
        """Follow a chain; if its final blocks changed, delete those that left the chain, and return.

        Raises as `_follow`.
        """
        system = self.system
        try:
            await self._follow(chain, task)
        except DeepReorg as error:
            log.error("%s: halted: %s", chain.key, error)
            await system.environment.clock.sleep(RECOVER_AFTER_S)  # a node that is wrong for a moment deletes nothing
            async with self.locked(chain.key):
                system.tail.check_locks(chain.key)
                first = await recover_reorg(chain, system.lake, system.tail)
            if first is not None:
                log.warning("%s: its final past changed; blocks from %s on are deleted", chain.key, first)

    async def _follow(self, chain: Chain, task: Task) -> None:
        """Follow a chain until its settings and accounts have nothing to follow.

        Raises:
            DeepReorg: Its final blocks changed.
            Locked: The chain's lock was not free for long, or another process took a lock of this one.
            SourceError: The chain could not be read at the beginning.
        """
        system = self.system
        while chain.settings.index == EVERYTHING or system.scope(chain).goes_on:
            if not chain.settings.datasets:
                await chain.probe(chain.settings.start_block)
            await self.prepare(chain)
            follower = await asyncio.to_thread(system.follower, chain)
            follower.guard, follower.max_gap = partial(self._step, chain, follower.status), FINALISE_BLOCKS
            async with follower.guard():
                await follower.finalise_all()
            log.info("%s: this worker follows it", chain.key)
            await follower.run(task.progressed, partial(self._has_other_accounts, chain, follower.scope))

    def _has_other_accounts(self, chain: Chain, scope: Scope) -> bool:
        return self.system.scope(chain) != scope

    @asynccontextmanager
    async def _step(self, chain: Chain, status: Status) -> AsyncIterator[None]:
        """Hold the chain's lock during the block, after finishing commits of dead processes. Log new problems.

        Raises:
            Locked: The chain's lock was not free for long, the store is away, or this process was frozen, and another
                one may follow the chain.
        """
        system = self.system
        self.warn(chain.key, status.problem or None)
        async with self.locked(chain.key):
            system.tail.check_locks(chain.key)
            self.warn(f"{chain.key}: not followed", None)
            if open_batches(system.tail, chain):
                progress = Progress(system.environment.clock, 0)
                await Collector(chain, system.lake, system.tail, system.environment, progress).recover()
            yield
