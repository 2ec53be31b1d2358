"""The bytes of answers that a process holds at once, over all nodes, chains and transports."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from typing import Final

MIB: Final = 1024 * 1024


class ByteBudget:
    """A limit on the bytes of all responses. Each response holds a `Lease` that grows as bytes arrive.

    The first `free` bytes of a response are not counted: small responses never wait for large ones. Further bytes
    come out of the `common` bytes, first come, first served. If these are used up, one response at a time may grow by
    up to `alone` additional bytes: it never waits, so it ends, and responses that each hold a part of the common
    bytes cannot deadlock.
    """

    def __init__(self, common: int = 64 * MIB, alone: int = 96 * MIB, free: int = MIB // 4) -> None:
        """Begin with nothing held.

        Args:
            common: Bytes for all leases.
            alone: Further bytes for one lease at a time.
            free: Bytes that each lease has without asking.
        """
        self.common, self.alone, self.free = common, alone, free
        self.held = 0  # of the common bytes
        self.held_alone = 0
        self.peak = 0  # the most that all leases held at once, without their free bytes
        self._only: Lease | None = None
        self._waiting: deque[tuple[Lease, int, Future[None]]] = deque()
        self._lock = threading.Lock()

    def lease(self) -> Lease:
        """Return an empty lease for one answer."""
        return Lease(self)

    @property
    def waiting(self) -> int:
        """The number of responses that wait."""
        return len(self._waiting)

    def take(self, lease: Lease, size: int) -> Future[None] | None:
        """Reserve bytes: None if there is room now, else a future that is done when there is.

        Requests are served in order. The future is cancelled if the lease has ended, or ends before.
        """
        with self._lock:
            if (lease is self._only or not self._waiting) and self._grant(lease, size):
                return None
            wait = Future[None]()
            if lease.is_over:
                wait.cancel()
            else:
                self._waiting.append((lease, size, wait))
            return wait

    def give_back(self, lease: Lease) -> None:
        """Release all bytes of a lease, end it, and grant them to waiting leases in order."""
        with self._lock:
            lease.is_over = True
            self.held -= lease.common
            self.held_alone -= lease.alone
            lease.common = lease.alone = 0
            if self._only is lease:
                self._only = None
            for entry in [entry for entry in self._waiting if entry[0] is lease]:
                self._waiting.remove(entry)
                entry[2].cancel()
            while self._waiting and self._grant(*self._waiting[0][:2]):
                wait = self._waiting.popleft()[2]
                if wait.set_running_or_notify_cancel():  # else who waited has left, and gives it back in a moment
                    wait.set_result(None)

    def _grant(self, lease: Lease, size: int) -> bool:
        """Reserve bytes if there is room, and return True; False also for a lease that has ended.

        If the common bytes are used up, one lease at a time gets all further ones.
        """
        if lease.is_over:
            return False
        if lease is not self._only and self.held + size > self.common:
            if self._only is not None:
                return False
            self._only = lease
        if lease is self._only:
            lease.alone += size
            self.held_alone += size
        else:
            lease.common += size
            self.held += size
        self.peak = max(self.peak, self.held + self.held_alone)
        return True


class Lease:
    """The bytes that one response holds of a budget."""

    __slots__ = ("alone", "budget", "common", "free", "is_over")

    def __init__(self, budget: ByteBudget) -> None:
        self.budget = budget
        self.free = budget.free
        self.common = self.alone = 0
        self.is_over = False

    def take(self, size: int) -> Future[None] | None:
        """Reserve bytes: None if there is room now, else a future to wait for before they are stored."""
        free = min(size, self.free)
        self.free -= free
        return self.budget.take(self, size - free) if size > free else None

    def give_back(self) -> None:
        """Release all bytes and cancel waiting."""
        self.budget.give_back(self)
