"""Server-sent events: streams of a process, their limits, and the bytes of an event."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from chainfolio.errors import ChainfolioError, Unavailable

MAX_STREAMS: Final = 512  # open at once in each process
MAX_PER_ACCOUNT: Final = 16
INTERVAL_S: Final = 1.0  # between two looks at the state
HEARTBEAT_S: Final = 15.0  # after which a quiet stream sends a comment, so that proxies keep the connection
LIFE_S: Final = 900.0  # after which a stream ends, so that clients spread over the processes again
RETRY: Final = b"retry: 2000\n\n"  # milliseconds after which a browser connects again
HEARTBEAT: Final = b":\n\n"
HEADERS: Final = {"X-Accel-Buffering": "no"}  # nginx passes each event on at once


class EventStreams:
    """The open streams of one process. `end` ends all of them."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self._counts = Counter[str]()  # by account

    def __len__(self) -> int:
        return self._counts.total()

    def open(self, account_id: str, state: Callable[[], Awaitable[bytes]], last_id: str) -> EventStream:
        """Return a new stream of an account, which holds a place until it is closed.

        Args:
            account_id: The account that the place counts for.
            state: Returns the current state as one line of JSON.
            last_id: Id of the last event that the client has; empty for none.

        Raises:
            Unavailable: Too many streams of all accounts, or of this one, are open.
        """
        if len(self) >= MAX_STREAMS or self._counts[account_id] >= MAX_PER_ACCOUNT:
            raise Unavailable("events", "too many streams are open", retry_after_s=30)
        self._counts[account_id] += 1
        return EventStream(self, account_id, state, last_id)

    def close(self, account_id: str) -> None:
        """Give a place of an account back."""
        self._counts[account_id] -= 1
        self._counts += Counter()  # forgets accounts without any

    def end(self) -> None:
        """End all streams, each after its next event; later ones end after their first."""
        self.ended.set()


class EventStream:
    """The events of one client: the state whenever it differs from the last one sent."""

    def __init__(
        self, streams: EventStreams, account_id: str, state: Callable[[], Awaitable[bytes]], last_id: str
    ) -> None:
        self._streams, self._account_id, self._state, self._last_id = streams, account_id, state, last_id
        self._is_open = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield bytes to send until `LIFE_S` are over or the process drains, and the state at least once.

        A state that cannot be read ends the stream; the client connects again and then gets the error as an answer.
        """
        loop = asyncio.get_running_loop()
        began_s = sent_s = loop.time()
        yield RETRY
        while True:
            try:
                state = await self._state()
            except ChainfolioError:
                return
            if (event_id := hashlib.sha256(state).hexdigest()[:16]) != self._last_id:
                self._last_id = event_id
                yield b"id: %s\nevent: status\ndata: %s\n\n" % (event_id.encode(), state)
                sent_s = loop.time()
            elif loop.time() - sent_s >= HEARTBEAT_S:
                yield HEARTBEAT
                sent_s = loop.time()
            if self._streams.ended.is_set() or loop.time() - began_s >= LIFE_S:
                return
            await self._wait()

    async def _wait(self) -> None:
        """Return after `INTERVAL_S`, or once the process drains."""
        try:
            async with asyncio.timeout(INTERVAL_S):
                await self._streams.ended.wait()
        except TimeoutError:
            return

    def close(self) -> None:
        """Give the place of the stream back; a second call does nothing."""
        if self._is_open:
            self._is_open = False
            self._streams.close(self._account_id)
