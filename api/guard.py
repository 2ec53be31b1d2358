"""What bounds the connections of a process: how many there may be, and for how long a client may keep one waiting.

Everything is judged by one look at all connections a second, so that a request costs no timer of its own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv6Address
from typing import Final, Protocol

from chainfolio.settings import Limits

RESERVE: Final = 256  # descriptors that are kept for nodes, stores and files
LOOK_S: Final = 1.0


class Guarded(Protocol):
    """A connection as the guard sees it. `since_s` is when its client was last owed nothing: it opened the connection,
    or its last request was answered; `head_s` is when the head of a request began to come."""

    answering: bool
    since_s: float
    head_s: float | None
    progress: tuple[int, float]

    def unsent(self) -> int:
        """How many bytes of an answer the system has not taken yet."""

    def abort(self) -> None:
        """End it at once."""


class Guard:
    """Lets connections in and ends those that keep the server waiting; `ended` counts them by reason."""

    def __init__(self, limits: Limits, max_connections: int, now_s: Callable[[], float]) -> None:
        self._limits, self._most, self.now_s = limits, max_connections, now_s
        self._open: dict[Guarded, str] = {}
        self._by_address: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, connection: Guarded, address: str) -> bool:
        """Let a connection in. Where there are too many, the one whose client is silent for the longest gives way; if
        every other one is being answered, there is no room."""
        shared = self._by_address[address] >= self._limits.connections_per_address
        if (shared or len(self._open) >= self._most) and not self._make_room(address if shared else None):
            self.ended["refused"] += 1
            return False
        self._open[connection] = address
        self._by_address[address] += 1
        return True

    def leave(self, connection: Guarded) -> None:
        """A connection has ended."""
        address = self._open.pop(connection, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def _make_room(self, address: str | None) -> bool:
        silent = [
            each for each, peer in self._open.items() if not each.answering and (address is None or peer == address)
        ]
        if not silent:
            return False
        self._end(min(silent, key=lambda each: each.since_s), "crowded out")
        return True

    def _end(self, connection: Guarded, reason: str) -> None:
        self.ended[reason] += 1
        self.leave(connection)
        connection.abort()

    def look(self) -> None:
        """End every connection whose client takes too long to send the head of a request or to read an answer."""
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
        """Look once a second from now on, until what is returned is called."""
        handle: asyncio.TimerHandle

        def look_again() -> None:
            nonlocal handle
            handle = loop.call_later(LOOK_S, look_again)  # first: a look that fails is not the last one
            self.look()

        handle = loop.call_later(LOOK_S, look_again)
        return lambda: handle.cancel()


def room(limits: Limits) -> int:
    """How many connections a process may have: those of the settings, where it may open so many files."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return limits.connections
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return limits.connections
    return max(1, min(limits.connections, files - min(RESERVE, files // 2)))


def address_of(peer: object) -> str:
    """Whom a connection counts for: an IPv4 address, or the network of an IPv6 one, of which a client has the whole."""
    if not isinstance(peer, tuple) or not peer:
        return ""
    host = str(peer[0]).partition("%")[0]
    if ":" not in host:
        return host
    full = IPv6Address(host)
    return str(full.ipv4_mapped) if full.ipv4_mapped else full.exploded[:19]
