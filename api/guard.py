"""Limits on the connections of a process: their number, and how long clients may keep them waiting.

All connections are checked once a second, so that requests need no timers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv6Address
from typing import Final, Protocol

from chainfolio.settings import Limits

RESERVE: Final = 256  # file descriptors reserved for nodes, stores and files
CHECK_INTERVAL_S: Final = 1.0


class GuardedConnection(Protocol):
    """A connection as the guard sees it.

    Attributes:
        answering: True while a request is being answered.
        since_s: When the connection was opened or its last request was answered.
        head_s: When the head of the next request began to arrive, else None.
        progress: Unsent bytes, and since when their number has not changed.
    """

    answering: bool
    since_s: float
    head_s: float | None
    progress: tuple[int, float]

    def unsent(self) -> int:
        """Return the number of bytes of an answer that the system has not taken yet."""

    def abort(self) -> None:
        """Close the connection at once."""


class Guard:
    """Admits connections and closes those that keep the server waiting; `ended` counts them by reason."""

    def __init__(self, limits: Limits, max_connections: int, now_s: Callable[[], float]) -> None:
        """Begin without connections; `now_s` is a monotonic clock."""
        self._limits, self._most, self.now_s = limits, max_connections, now_s
        self._open: dict[GuardedConnection, str] = {}
        self._by_address: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, connection: GuardedConnection, address: str) -> bool:
        """Register a connection and return True, or return False if there is no room.

        If there are too many connections, the one that has been idle longest is closed; requests in progress are not.
        """
        shared = self._by_address[address] >= self._limits.connections_per_address
        if (shared or len(self._open) >= self._most) and not self._make_room(address if shared else None):
            self.ended["refused"] += 1
            return False
        self._open[connection] = address
        self._by_address[address] += 1
        return True

    def leave(self, connection: GuardedConnection) -> None:
        """Remove a connection that has ended; unknown ones are ignored."""
        address = self._open.pop(connection, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def _make_room(self, address: str | None) -> bool:
        """Close the connection that has been idle longest, of an address if given; False if none is idle."""
        silent = [
            each for each, peer in self._open.items() if not each.answering and (address is None or peer == address)
        ]
        if not silent:
            return False
        self._end(min(silent, key=lambda each: each.since_s), "crowded out")
        return True

    def _end(self, connection: GuardedConnection, reason: str) -> None:
        self.ended[reason] += 1
        self.leave(connection)
        connection.abort()

    def close_slow(self) -> None:
        """Close connections whose clients take too long to send the head of a request or to read an answer.

        A client that reads some of an answer has the whole time again.
        """
        now_s, limits = self.now_s(), self._limits
        for connection in list(self._open):
            unsent, (before, since_s) = connection.unsent(), connection.progress
            if unsent != before or not unsent:
                connection.progress = (unsent, now_s)
            elif now_s - since_s >= limits.write_s:
                self._end(connection, "slow reader")
                continue
            if not connection.answering and connection.head_s and now_s - connection.head_s >= limits.head_s:
                self._end(connection, "slow head")

    def watch(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """Check the connections once a second; return a function that stops that."""
        handle: asyncio.TimerHandle

        def check_again() -> None:
            nonlocal handle
            handle = loop.call_later(CHECK_INTERVAL_S, check_again)  # first, so that an error does not stop the checks
            self.close_slow()

        handle = loop.call_later(CHECK_INTERVAL_S, check_again)
        return lambda: handle.cancel()


def room(limits: Limits) -> int:
    """Return the maximum number of connections: the setting, but at most what the open-file limit allows.

    Some files are reserved for the rest, at most half of the limit; at least one connection is allowed.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return limits.connections
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return limits.connections
    return max(1, min(limits.connections, files - min(RESERVE, files // 2)))


def address_of(peer: object) -> str:
    """Return the client that a connection counts for: its IPv4 address or the /64 of its IPv6 address.

    Empty for other transports, such as Unix sockets.
    """
    if not isinstance(peer, tuple) or not peer:
        return ""
    host = str(peer[0]).partition("%")[0]
    if ":" not in host:
        return host
    full = IPv6Address(host)
    return str(full.ipv4_mapped) if full.ipv4_mapped else full.exploded[:19]
