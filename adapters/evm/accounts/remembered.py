"""Headers of final blocks that were read for the logs of accounts: what the accounts sent there is asked for next."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from adapters.evm.node import Header

MOST = 100_000  # transactions that headers list, and what the headers take themselves in such parts
HEADER = 5  # of a header: its bloom has as many bytes as a few hashes of transactions


class Remembered:
    """Headers by height; those that were read first are forgotten first."""

    def __init__(self) -> None:
        self._at: dict[int, Header] = {}
        self._size = 0

    def keep(self, headers: Iterable[Header]) -> None:
        """Remember some."""
        for header in headers:
            self.take(header.height)
            listed = [each.copy() for each in header.transactions]  # a part of an answer keeps all of it
            self._at[header.height] = msgspec.structs.replace(header, transactions=listed)
            self._size += _size(header)
        while self._size > MOST:
            self.take(next(iter(self._at)))

    def take(self, height: int) -> Header | None:
        """The header at a height, given once: whoever finds that it is of another block reads it again."""
        header = self._at.pop(height, None)
        self._size -= _size(header) if header else 0
        return header


def _size(header: Header) -> int:
    return HEADER + len(header.transactions)
