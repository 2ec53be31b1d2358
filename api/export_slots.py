"""Limits of the files that a process makes at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from chainfolio.errors import Unavailable

MAX_EXPORTS: Final = 4  # at once in each process
MAX_WAITING: Final = 16


class ExportSlots:
    """Slots of one process for exports. Statements are made one at a time, because they need memory."""

    def __init__(self) -> None:
        self._free, self._statement = asyncio.Semaphore(MAX_EXPORTS), asyncio.Lock()
        self._count = 0

    @asynccontextmanager
    async def slot(self, *, is_statement: bool) -> AsyncIterator[None]:
        """Hold a slot while a file is made, and not while it is sent.

        Raises:
            Unavailable: Too many exports wait for a slot.
        """
        if self._count >= MAX_EXPORTS + MAX_WAITING:
            raise Unavailable("exports", "too many are being made", retry_after_s=30)
        self._count += 1
        try:
            async with AsyncExitStack() as stack:
                if is_statement:
                    await stack.enter_async_context(self._statement)
                await stack.enter_async_context(self._free)
                yield
        finally:
            self._count -= 1
