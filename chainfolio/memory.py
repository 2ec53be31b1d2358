"""The bytes of answers that a process holds at once, whichever node, chain or transport they come from."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from typing import Final

MIB: Final = 1024 * 1024


class ByteBudget:
    """A bound for all answers together. Each answer holds a `Lease` that grows as bytes arrive.

    The first `free` bytes of an answer need no room: small answers never wait for large ones. What follows comes out
    of the `common` bytes, first come, first served. Where these are used up, one answer at a time may grow by up to
    `alone` bytes of its own: that answer waits for nobody, so it ends, and answers that each hold a part of the common
    bytes do not wait for each other for ever.
    """

    def __init__(self, common: int = 64 * MIB, alone: int = 96 * MIB, free: int = MIB // 4) -> None:
        self.common, self.alone, self.free = common, alone, free
        self.held = 0  # of the common bytes
        self.held_alone = 0
        self.peak = 0  # the most that all leases held at once, without their free bytes
        self._only: Lease | None = None
        self._waiting: deque[tuple[Lease, int, Future[None]]] = deque()
        self._lock = threading.Lock()

    def lease(self) -> Lease:
        """Room for one answer: none yet."""
        return Lease(self)

    @property
    def waiting(self) -> int:
        """How many answers wait for room."""
        return len(self._waiting)

    def take(self, lease: Lease, size: int) -> Future[None] | None:
        """Room for so many more bytes: None if there is room now, else a future that ends when there is."""
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
        """Take back all that a lease holds, and give it to those who wait."""
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
    """What one answer holds of a budget."""

    __slots__ = ("alone", "budget", "common", "free", "is_over")

    def __init__(self, budget: ByteBudget) -> None:
        self.budget = budget
        self.free = budget.free
        self.common = self.alone = 0
        self.is_over = False

    def take(self, size: int) -> Future[None] | None:
        """Hold so many more bytes: None if there is room now, else what to wait for before they are kept."""
        free = min(size, self.free)
        self.free -= free
        return self.budget.take(self, size - free) if size > free else None

    def give_back(self) -> None:
        """Hold nothing any more, and wait for nothing."""
        self.budget.give_back(self)
