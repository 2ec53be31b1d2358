"""Limits of the files that a process makes at once."""

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
    """Slots of one process for exports. Statements are made one at a time, because they need memory."""

    def __init__(self) -> None:
        self._free, self._statement = asyncio.Semaphore(MAX_EXPORTS), asyncio.Lock()
        self._counts = Counter[str]()  # by account

    @asynccontextmanager
    async def slot(self, account_id: str, *, is_statement: bool) -> AsyncIterator[None]:
        """Hold a slot while a file is made, and not while it is sent.

        Raises:
            Unavailable: Too many exports of all accounts, or of this one, are made or wait for a slot.
        """
        if self._counts.total() >= MAX_EXPORTS + MAX_WAITING or self._counts[account_id] >= MAX_PER_ACCOUNT:
            raise Unavailable("exports", "too many are being made", retry_after_s=30)
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
