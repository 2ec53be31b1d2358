"""New heads, reorganisations and finality as nodes announce them. An announcement only ends a wait: what is true is
asked for afterwards, so that one that is wrong or missing changes no row."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from chainfolio.adapters.beacon.node import Nodes
from chainfolio.errors import SourceError, UnsupportedMethod
from chainfolio.transport.sse import OPEN, events

# Repeated, for some clients refuse a list with commas.
PATH: Final = "/eth/v1/events?topics=head&topics=chain_reorg&topics=finalized_checkpoint"
FIRST_WAIT_S, MAX_WAIT_S, UNSERVED_WAIT_S = 0.5, 60.0, 600.0  # before it connects again
MIN_PAUSE_S: Final = 0.2  # between two announcements, however many there are
SILENT_SLOTS: Final = 64  # two epochs without any news: nobody is there any more

log = logging.getLogger("chainfolio.node")


@dataclass(slots=True)
class Announcements:
    """Listens to one node at a time, and to the next one when it breaks off."""

    nodes: Nodes
    slot_s: float
    connections: int = 0  # made so far
    failures: int = 0  # times that it ended by an error of ours, which is no node's
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    async def wait(self, within_s: float) -> bool:
        """Until something is announced, or as long as that; whether it was."""
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
        wait_s, turn = FIRST_WAIT_S, 0
        while True:
            node = self.nodes.endpoints[turn % len(self.nodes.endpoints)]
            try:
                await node.greet()
                async with aclosing(events(node.name, node.url + PATH, SILENT_SLOTS * self.slot_s)) as stream:
                    async for each in stream:
                        if each.kind == OPEN:  # what happened while nobody listened is looked for now
                            self.connections += 1
                        else:
                            wait_s = FIRST_WAIT_S
                        self._news.set()
            except SourceError as error:
                node.errors.note(error)
                turn += 1
                if not isinstance(error, UnsupportedMethod):
                    self._news.set()  # what is missed from now on is looked for at once
                if isinstance(error, UnsupportedMethod) and turn % len(self.nodes.endpoints) == 0:
                    wait_s = UNSERVED_WAIT_S
            await self.nodes.environment.clock.sleep(wait_s * (1 + self.nodes.environment.random.random() / 4))
            wait_s = min(2 * wait_s, MAX_WAIT_S)

    async def close(self) -> None:
        """Listen no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
