"""Limits of the files and queries that a process works on at once."""

from __future__ import annotations

import asyncio
import io
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, BinaryIO, Final, cast

from chainfolio.errors import Unavailable

MAX_EXPORTS: Final = 4  # at once in each process
MAX_WAITING: Final = 16
MAX_PER_ACCOUNT: Final = 4  # made, waiting or held, so that an account cannot take all places


class ExportSlots:
    """Slots of one process for exports, or for queries. Statements are made one at a time: they need memory.

    Args:
        name: What has the slots, in errors.
        at_once: Number of slots.
    """

    def __init__(self, name: str = "exports", at_once: int = MAX_EXPORTS) -> None:
        self._name, self._at_once = name, at_once
        self._free, self._statement = asyncio.Semaphore(at_once), asyncio.Lock()
        self._counts, self._sent = Counter[str](), Counter[str]()  # by account: made or waiting, and being sent

    def held(self, account_id: str, file: BinaryIO) -> BinaryIO:
        """Return a file to send, which counts as one of the account until it is closed."""
        self._sent[account_id] += 1

        def release() -> None:
            self._sent[account_id] -= 1
            self._sent += Counter()

        return CountedFile(file, release)

    @asynccontextmanager
    async def slot(self, account_id: str, *, is_statement: bool = False) -> AsyncIterator[None]:
        """Hold a slot while a file is made or a query runs, and not while it is sent.

        Raises:
            Unavailable: Too many of all accounts, or of this one, have a slot or wait for one.
        """
        of_account = self._counts[account_id] + self._sent[account_id]
        if self._counts.total() >= self._at_once + MAX_WAITING or of_account >= MAX_PER_ACCOUNT:
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


class CountedFile(io.BufferedReader):
    """A file that calls a function once when it is closed."""

    def __init__(self, file: BinaryIO, release: Callable[[], None]) -> None:
        super().__init__(cast("Any", file))
        self._release: Callable[[], None] | None = release

    def close(self) -> None:
        """Close the file."""
        release, self._release = self._release, None
        try:
            super().close()
        finally:
            if release is not None:
                release()
