"""Which logs of accounts were given, in short: receipts that are read later are compared with them.

The logs of a window are read first, the transactions of the accounts afterwards, in other calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adapters.evm.accounts.receipt_logs import ReceiptLogs, at_heights
from adapters.evm.logs import Logs
from adapters.evm.proven import written
from adapters.evm.spans import Chunk, LeftOut
from chainfolio.blocks import Span

MAX_LOGS = 200_000  # that are remembered, by one number each


@dataclass(frozen=True, slots=True)
class Window:
    """One answer: its blocks, the accounts that it was about, who gave it, and a number for each log."""

    span: Span
    accounts: frozenset[str]
    source: str
    logs: frozenset[int]
    left_out: LeftOut | None


@dataclass(frozen=True, slots=True, eq=False)
class Lacking:
    """What answers lack of the logs that receipts hold. `logs`: those that the endpoints `sources` did not give, though
    they gave the receipts or another one did; `unasked`: those of blocks whose logs nobody remembers."""

    logs: Logs
    sources: frozenset[str]
    unasked: Logs


class Answered:
    """Windows of logs, the newest last; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._windows: list[Window] = []
        self._size = 0

    def keep(self, chunk: Chunk, accounts: Sequence[str]) -> None:
        """Remember an answer."""
        numbers = frozenset(_numbers(chunk.logs))
        self._windows.append(Window(chunk.span, frozenset(accounts), chunk.source, numbers, chunk.left_out))
        self._size += 1 + len(numbers)
        while self._size > MAX_LOGS:
            self._size -= 1 + len(self._windows.pop(0).logs)

    def lacking(self, receipts: ReceiptLogs, accounts: Sequence[str]) -> Lacking:
        """Compare the logs of receipts with the newest answers about their blocks."""
        left, logs, sources = {*receipts.logs.height.tolist()}, set[int](), set[str]()
        numbers = _numbers(receipts.logs)
        heights = receipts.logs.height.tolist()
        for window in reversed(self._windows):
            mine = (
                {height for height in left if height in window.span} if window.accounts.issuperset(accounts) else set()
            )
            left -= mine
            lost = [row for row, height in enumerate(heights) if height in mine and numbers[row] not in window.logs]
            logs |= {*lost}
            # An endpoint is only accused by receipts that it gave itself.
            sources |= {window.source} & {receipts.sources[heights[row]] for row in lost}
        return Lacking(
            receipts.logs.take(np.array(sorted(logs), np.intp)), frozenset(sources), at_heights(receipts.logs, left)
        )

    def left_out(self, span: Span, accounts: Sequence[str]) -> list[LeftOut]:
        """What the answers about blocks of a span were known to lack."""
        mine = [each for each in self._windows if each.accounts.issuperset(accounts)]
        return [each.left_out for each in mine if each.left_out is not None and each.left_out.height in span]


def _numbers(logs: Logs) -> list[int]:
    return [hash((height, *row)) for height, row in zip(logs.height.tolist(), written(logs), strict=True)]
