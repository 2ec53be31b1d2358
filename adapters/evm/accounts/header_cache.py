"""Cache of final headers between two steps: reading the logs of accounts, then their transactions."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chainfolio.adapters.evm.node import Header

MAX_SIZE = 100_000  # transaction hashes in all headers
HEADER_SIZE = 5  # size of a header itself: its bloom takes as much memory as a few hashes


class HeaderCache:
    """Headers by height. The oldest entries are dropped first."""

    def __init__(self) -> None:
        self._headers: dict[int, Header] = {}
        self._size = 0

    def add(self, headers: Iterable[Header]) -> None:
        """Store headers, and drop the oldest entries above `MAX_SIZE`."""
        for header in headers:
            self.pop(header.height)
            hashes = [each.copy() for each in header.transactions]  # a slice of an answer keeps all of it in memory
            self._headers[header.height] = msgspec.structs.replace(header, transactions=hashes)
            self._size += _size(header)
        while self._size > MAX_SIZE:
            self.pop(next(iter(self._headers)))

    def pop(self, height: int) -> Header | None:
        """Remove and return the header at a height; None if there is none.

        A header that proves to be of another block is thus not used twice.
        """
        header = self._headers.pop(height, None)
        self._size -= _size(header) if header else 0
        return header


def _size(header: Header) -> int:
    return HEADER_SIZE + len(header.transactions)
