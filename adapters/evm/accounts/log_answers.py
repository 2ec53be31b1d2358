"""Fingerprints of the logs that were answered, to compare them with receipts that are read later.

The logs of a window are read first; the transactions of the accounts follow in other calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chainfolio.adapters.evm.accounts.receipt_logs import ReceiptLogs, at_heights
from chainfolio.adapters.evm.logs import Logs
from chainfolio.adapters.evm.proven import comparable_logs
from chainfolio.adapters.evm.spans import Chunk, LeftOut
from chainfolio.blocks import Span

MAX_LOGS = 200_000  # over all answers


@dataclass(frozen=True, slots=True)
class LogAnswer:
    """One answer: blocks, accounts, endpoint, a hash of each log, and a log known to be left out."""

    span: Span
    accounts: frozenset[str]
    source: str
    log_hashes: frozenset[int]
    left_out: LeftOut | None


@dataclass(frozen=True, slots=True, eq=False)
class MissingLogs:
    """Logs of receipts that earlier answers do not have.

    Attributes:
        logs: The logs that an answer about their blocks left out.
        sources: The endpoints that left them out although they gave the receipts themselves.
        unanswered: The logs of blocks about which no answer is stored.
    """

    logs: Logs
    sources: frozenset[str]
    unanswered: Logs


class LogAnswers:
    """Answers about logs, the newest last. The oldest are dropped first."""

    def __init__(self) -> None:
        self._answers: list[LogAnswer] = []
        self._size = 0

    def add(self, chunk: Chunk, accounts: Sequence[str]) -> None:
        """Store the fingerprints of an answer, and drop the oldest answers above `MAX_LOGS`."""
        hashes = frozenset(_log_hashes(chunk.logs))
        self._answers.append(LogAnswer(chunk.span, frozenset(accounts), chunk.source, hashes, chunk.left_out))
        self._size += 1 + len(hashes)
        while self._size > MAX_LOGS:
            self._size -= 1 + len(self._answers.pop(0).log_hashes)

    def missing(self, receipts: ReceiptLogs, accounts: Sequence[str]) -> MissingLogs:
        """Compare the logs of receipts with the newest answer about their block and all accounts.

        Returns:
            The logs that the answers lack, the endpoints to blame, and the logs of blocks without an answer. An
            endpoint is to blame only if it gave the receipt of a log that its answer lacks.
        """
        heights = receipts.logs.height.tolist()
        hashes = _log_hashes(receipts.logs)
        unanswered, rows, sources = {*heights}, set[int](), set[str]()
        for answer in reversed(self._answers):
            if not answer.accounts.issuperset(accounts):
                continue
            answered = {height for height in unanswered if height in answer.span}
            unanswered -= answered
            omitted = [
                row for row, height in enumerate(heights) if height in answered and hashes[row] not in answer.log_hashes
            ]
            rows |= {*omitted}
            # An endpoint is only accused by receipts that it gave itself.
            sources |= {answer.source} & {receipts.sources[heights[row]] for row in omitted}
        return MissingLogs(
            receipts.logs.take(np.array(sorted(rows), np.intp)),
            frozenset(sources),
            at_heights(receipts.logs, unanswered),
        )

    def left_out(self, span: Span, accounts: Sequence[str]) -> list[LeftOut]:
        """Return the logs in a span that stored answers about all the accounts are known to lack."""
        answers = [each for each in self._answers if each.accounts.issuperset(accounts)]
        return [each.left_out for each in answers if each.left_out is not None and each.left_out.height in span]


def _log_hashes(logs: Logs) -> list[int]:
    return [hash((height, *row)) for height, row in zip(logs.height.tolist(), comparable_logs(logs), strict=True)]
