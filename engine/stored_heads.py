"""Heads of chains for reads of the index: the node's newest block, else the newest stored one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from chainfolio.chain_settings import EVERYTHING
from chainfolio.contracts import Issue
from chainfolio.errors import BadRequest, SourceError

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.blocks import Block
    from chainfolio.chain_results import Heads
    from chainfolio.chains import Chain
    from chainfolio.indexer.parts import IndexedChains

HEAD_WAIT_S: Final = 2.0  # a node that takes longer to name its newest block counts as one that does not answer


@dataclass(frozen=True, slots=True)
class StoredHead:
    """The block up to which a response goes. `issue` is None if the node named it, else tells its age."""

    block: Block
    issue: Issue | None = None


@dataclass(slots=True)
class StoredHeads:
    """Reads the newest blocks of chains.

    A node that did not answer is asked in the background; no caller waits for it until it answers again.
    """

    system: IndexedChains
    _probes: dict[str, asyncio.Task[Heads]] = field(default_factory=dict)
    _silent: dict[str, str] = field(default_factory=dict)  # why, by chain

    def is_silent(self, key: str) -> bool:
        """Return True if the node of a chain did not answer the last time."""
        return key in self._silent

    async def latest(self, chain: Chain) -> StoredHead:
        """Return the node's newest block; the newest stored one, with an issue, if the node does not answer.

        Without stored blocks the node is always awaited. Otherwise it has HEAD_WAIT_S, and no time if it was silent the
        last time: the read continues and its answer counts for later calls.

        Raises:
            SourceError: The node does not answer, and nothing of the chain is stored.
        """
        stored = self.system.tail.top(chain.key) or self.system.tail.anchor(chain.key)
        if stored is None:
            return StoredHead((await chain.heads()).latest)
        probe = self._probe(chain)
        if not self.is_silent(chain.key):
            await asyncio.wait({probe}, timeout=HEAD_WAIT_S)
            if not probe.done():
                self._silent[chain.key] = f"no answer within {HEAD_WAIT_S:g} s"
        if probe.done() and not (probe.cancelled() or isinstance(probe.exception(), SourceError)):
            return StoredHead(probe.result().latest)
        reason = self._silent.get(chain.key, "it did not answer the last time")
        return StoredHead(stored, _issue(chain.key, stored, reason))

    async def newest_of(self, account: Account, keys: Collection[str] = ()) -> dict[str, int]:
        """Return the newest heights of the chains (of `keys`, or all) that index new blocks of an account.

        Raises:
            BadRequest: There is no such chain.
            SourceError: A node does not answer, and nothing of its chain is stored.
        """
        system, heights = self.system, {}
        for chain in [system.chain(key) for key in keys] or system.account_chains:
            is_watched = any(each.account == account.address for each in system.scope(chain).watches)
            if chain.kind == account.kind and (chain.settings.index == EVERYTHING or is_watched):
                heights[chain.key] = (await self.latest(chain)).block.height
        if not heights:
            remedy = f"chainfolio watch {account.address}"
            raise BadRequest("subject", f"no new blocks are indexed for {account.address}", remedy=remedy)
        return heights

    def _probe(self, chain: Chain) -> asyncio.Task[Heads]:
        """Return the running request for the newest block, or start one."""
        probe = self._probes.get(chain.key)
        if probe is None or probe.done():
            probe = self._probes[chain.key] = asyncio.create_task(_heads(chain))
            probe.add_done_callback(lambda done: self._note(chain.key, done))
        return probe

    def _note(self, key: str, probe: asyncio.Task[Heads]) -> None:
        """Mark a chain's node as silent with the reason if a read of its heads failed, else as answering.

        A cancelled read changes nothing.
        """
        if probe.cancelled():
            return
        error = probe.exception()
        if isinstance(error, SourceError):
            self._silent[key] = error.reason
        else:
            self._silent.pop(key, None)


async def _heads(chain: Chain) -> Heads:
    return await chain.heads()


def _issue(key: str, block: Block, reason: str) -> Issue:
    time = datetime.fromtimestamp(block.time_us // 1_000_000, UTC)
    age = f"this is what is stored up to block {block.height} of {time:%Y-%m-%dT%H:%M:%SZ}"
    return Issue(key, "node", f"the node does not answer ({reason}): {age}")
