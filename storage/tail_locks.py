"""The locks of the tail, among all processes that use it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chainfolio.storage.tail_database import TailDatabase


class TailLocks:
    """Locks of chains, and of parts of them. A process that ends loses its locks."""

    _database: TailDatabase

    def lock(self, chain: str) -> AbstractContextManager[None]:
        """Lock a chain for writing, in this process only.

        Raises:
            Locked: Another process has the lock; the message names it.
        """
        assert chain.replace("-", "").replace("_", "").isalnum(), f"not the key of a chain: {chain!r}"
        return self.hold(chain, f"chain {chain}")

    def hold(self, name: str, subject: str, *, store: str = "tail", wait: bool = False) -> AbstractContextManager[None]:
        """Hold a lock among all processes that use this tail, during the block.

        Args:
            name: The key of a chain, or `<chain>.<part>`.
            subject: What is locked, for errors.
            store: The store that the lock protects, for errors.
            wait: Wait for the lock instead of raising Locked.

        Raises:
            Locked: Another process has the lock; the message names it.
        """
        return self._database.hold(name, subject, store=store, wait=wait)

    def check_locks(self, chain: str) -> None:
        """Check that this process did not lose a chain's lock that it holds, as a frozen process does.

        A lock is lost if the database ended the connection and another process may have taken the lock.

        Raises:
            Locked: A lock of the chain is lost. Writes of the chain are refused too, until it is released.
        """
        self._database.check_locks(chain)
