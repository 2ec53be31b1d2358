"""Server-sent events: streams of a process, their limits, and the bytes of an event."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import structlog

from chainfolio.errors import Unavailable

MAX_STREAMS: Final = 512  # open at once in each process
MAX_PER_ACCOUNT: Final = 16
INTERVAL_S: Final = 1.0  # between two reads of the state
MAX_SHARE: Final = 0.05  # of the time of a process that reads for all streams may take
HEARTBEAT_S: Final = 15.0  # after which a quiet stream sends a comment, so that proxies keep the connection
LIFE_S: Final = 900.0  # after which a stream ends, so that clients spread over the processes again
RETRY: Final = b"retry: 2000\n\n"  # milliseconds after which a browser connects again
HEARTBEAT: Final = b":\n\n"
HEADERS: Final = {"X-Accel-Buffering": "no"}  # nginx passes each event on at once
State = Callable[[], Awaitable[bytes]]
log = structlog.stdlib.get_logger("chainfolio.api")


class EventStreams:
    """The open streams of one process, those of each account from the oldest to the newest."""

    def __init__(self) -> None:
        self._open: dict[str, list[EventStream]] = {}
        self._is_ended = False

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def open(self, account_id: str, state: State, first: bytes, last_id: str) -> EventStream:
        """Return a new stream of an account, which holds a place until it is closed.

        If the account has no place left, its oldest stream is ended: that client may be gone.

        Args:
            account_id: The account that the place counts for.
            state: Returns the current state as one line of JSON.
            first: The state now.
            last_id: Id of the last event that the client has; empty for none.

        Raises:
            Unavailable: Too many streams of other accounts are open.
        """
        streams = self._open.get(account_id, [])
        if len(streams) >= MAX_PER_ACCOUNT:
            streams[0].end()
            self.close(account_id, streams[0])
        elif len(self) >= MAX_STREAMS:
            raise Unavailable("events", "too many streams are open", retry_after_s=30)
        stream = EventStream(self, account_id, state, first, last_id)
        self._open.setdefault(account_id, []).append(stream)
        if self._is_ended:
            stream.end()
        return stream

    def close(self, account_id: str, stream: EventStream) -> None:
        """Give the place of a stream back; nothing happens if it has none."""
        streams = self._open.get(account_id, [])
        if stream in streams:
            streams.remove(stream)
        if not streams:
            self._open.pop(account_id, None)

    def end(self) -> None:
        """End all streams, each after its next event; later ones end after their first."""
        self._is_ended = True
        for streams in self._open.values():
            for stream in streams:
                stream.end()


class EventStream:
    """The events of one client: the state whenever it differs from the last one sent."""

    def __init__(self, streams: EventStreams, account_id: str, state: State, first: bytes, last_id: str) -> None:
        self._streams, self._account_id, self._state, self._last_id = streams, account_id, state, last_id
        self._first = first
        self._ended = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield bytes to send until `LIFE_S` are over or the stream is ended: `RETRY`, states and heartbeats.

        The first state is sent even if the stream is ended already, but not if it is the client's last event.
        A state that cannot be read ends the stream; the client connects again and then gets the error as an answer.
        """
        loop = asyncio.get_running_loop()
        began_s = sent_s = loop.time()
        state, took_s = self._first, 0.0
        yield RETRY
        while True:
            if (event_id := hashlib.sha256(state).hexdigest()[:16]) != self._last_id:
                self._last_id = event_id
                yield b"id: %s\nevent: status\ndata: %s\n\n" % (event_id.encode(), state)
                sent_s = loop.time()
            elif loop.time() - sent_s >= HEARTBEAT_S:
                yield HEARTBEAT
                sent_s = loop.time()
            if self._ended.is_set() or loop.time() - began_s >= LIFE_S:
                return
            await self._wait(min(max(INTERVAL_S, took_s * len(self._streams) / MAX_SHARE), HEARTBEAT_S))
            asked_s = loop.time()
            try:
                state = await self._state()
            except Exception as error:  # the head is sent, so that no answer can say it
                log.warning("event stream failed", account=self._account_id, exc_info=error)
                return
            took_s = loop.time() - asked_s

    async def _wait(self, seconds: float) -> None:
        """Return after some seconds, or once the stream is ended."""
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return

    def end(self) -> None:
        """End the stream after its next event."""
        self._ended.set()

    def close(self) -> None:
        """Give the place of the stream back; a second call does nothing."""
        self._streams.close(self._account_id, self)
