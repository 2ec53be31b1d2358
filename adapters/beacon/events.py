"""Listen to announcements of nodes: new heads, reorganisations, finality.

An announcement only ends a wait. The chain is read afterwards, so that a wrong or missing one changes no row.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from chainfolio.adapters.beacon.node import Nodes
from chainfolio.errors import SourceError, UnsupportedMethod
from chainfolio.transport.sse import OPEN, events

# The parameter is repeated because some clients refuse a list with commas.
PATH: Final = "/eth/v1/events?topics=head&topics=chain_reorg&topics=finalized_checkpoint"
FIRST_WAIT_S, MAX_WAIT_S, UNSERVED_WAIT_S = 0.5, 60.0, 600.0  # before a new connection
MIN_PAUSE_S: Final = 0.2  # after an announcement
SILENT_SLOTS: Final = 64  # two epochs without an announcement: the connection is dead

log = logging.getLogger("chainfolio.node")


@dataclass(slots=True)
class Announcements:
    """Listens to one node at a time, and to the next one if the connection breaks.

    Attributes:
        connections: Number of connections so far.
        failures: Number of restarts after an error that is not a node's.
    """

    nodes: Nodes
    slot_s: float
    connections: int = 0
    failures: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    async def wait(self, within_s: float) -> bool:
        """Wait for an announcement, at most `within_s` seconds. Return True if there was one.

        A new or broken connection counts as one, too. Starts to listen if it does not yet; after an announcement it
        waits MIN_PAUSE_S so that later ones are joined.
        """
        if self._task is None or self._task.done():
            if self._task is not None and not self._task.cancelled():
                self.failures += 1
                log.error("listening to beacon events failed and is started again", exc_info=self._task.exception())
            self._task = asyncio.ensure_future(self._listen())
        try:
            async with asyncio.timeout(within_s):
                await self._news.wait()
        except TimeoutError:
            return False
        await self.nodes.environment.clock.sleep(min(MIN_PAUSE_S, within_s))
        self._news.clear()
        return True

    async def _listen(self) -> None:
        """Listen to events of one node after the other, for ever; errors are noted, with growing waits."""
        wait_s, attempt = FIRST_WAIT_S, 0
        while True:
            node = self.nodes.endpoints[attempt % len(self.nodes.endpoints)]
            try:
                await node.ensure_handshake()
                async with aclosing(events(node.name, node.url + PATH, SILENT_SLOTS * self.slot_s)) as stream:
                    async for each in stream:
                        if each.kind == OPEN:  # the chain may have changed before the connection
                            self.connections += 1
                        else:
                            wait_s = FIRST_WAIT_S
                        self._news.set()
            except SourceError as error:
                node.errors.note(error)
                attempt += 1
                if not isinstance(error, UnsupportedMethod):
                    self._news.set()  # announcements are missed from now on
                if isinstance(error, UnsupportedMethod) and attempt % len(self.nodes.endpoints) == 0:
                    wait_s = UNSERVED_WAIT_S
            await self.nodes.environment.clock.sleep(wait_s * (1 + self.nodes.environment.random.random() / 4))
            wait_s = min(2 * wait_s, MAX_WAIT_S)

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
