"""Limits of the files and queries that a process works on at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from chainfolio.errors import Unavailable

MAX_EXPORTS: Final = 4  # at once in each process
MAX_WAITING: Final = 16
MAX_PER_ACCOUNT: Final = 4  # made or waiting, so that an account cannot take all places


class ExportSlots:
    """Slots of one process for exports, or for queries. Statements are made one at a time: they need memory.

    Args:
        name: What has the slots, in errors.
        at_once: Number of slots.
    """

    def __init__(self, name: str = "exports", at_once: int = MAX_EXPORTS) -> None:
        self._name, self._at_once = name, at_once
        self._free, self._statement = asyncio.Semaphore(at_once), asyncio.Lock()
        self._counts = Counter[str]()  # by account

    @asynccontextmanager
    async def slot(self, account_id: str, *, is_statement: bool = False) -> AsyncIterator[None]:
        """Hold a slot while a file is made or a query runs, and not while it is sent.

        Raises:
            Unavailable: Too many of all accounts, or of this one, have a slot or wait for one.
        """
        if self._counts.total() >= self._at_once + MAX_WAITING or self._counts[account_id] >= MAX_PER_ACCOUNT:
            raise Unavailable(self._name, "too many are being made", retry_after_s=30)
        self._counts[account_id] += 1
        try:
            async with AsyncExitStack() as stack:
                if is_statement:
                    await stack.enter_async_context(self._statement)
                await stack.enter_async_context(self._free)
                yield
        finally:
            self._counts[account_id] -= 1
            self._counts += Counter()  # forgets accounts without any
