"""Logs in receipts of accounts, which an `eth_getLogs` answer about the same blocks must have, too."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import msgspec
import numpy as np

from chainfolio.adapters.evm import logs as columns
from chainfolio.adapters.evm.accounts.topic_filters import names_account
from chainfolio.adapters.evm.datasets.transactions import ExecutedTransaction, FullBlock
from chainfolio.adapters.evm.integrity import blooms_of, may_hold
from chainfolio.adapters.evm.log_parser import strict
from chainfolio.adapters.evm.logs import Logs
from chainfolio.adapters.evm.proven import comparable_logs
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer
from chainfolio.transport.wire import typed


class _ReceiptWithLogs(msgspec.Struct):
    logs: msgspec.Raw = msgspec.Raw(b"[]")


@dataclass(frozen=True, slots=True, eq=False)
class ReceiptLogs:
    """Logs in receipts that name accounts.

    Attributes:
        logs: The logs.
        sources: The endpoint that gave the receipts, by height; also of blocks without such logs.
        proven: Heights whose receipts were all read and match the receipts root.
    """

    logs: Logs = field(default_factory=lambda: Logs.blank(0))
    sources: Mapping[int, str] = field(default_factory=dict)
    proven: frozenset[int] = frozenset()

    def from_source(self, source: str) -> ReceiptLogs:
        """Return the part for blocks whose receipts one endpoint gave."""
        return self._at({height for height, name in self.sources.items() if name == source})

    def in_span(self, span: Span) -> ReceiptLogs:
        """Return the part for the blocks of a span."""
        return self._at({height for height in self.sources if height in span})

    def updated(self, newer: ReceiptLogs) -> ReceiptLogs:
        """Return both, with `newer` for blocks that both have."""
        remaining = self._at(self.sources.keys() - newer.sources.keys())
        logs = columns.join([remaining.logs, newer.logs])
        return ReceiptLogs(logs, {**remaining.sources, **newer.sources}, remaining.proven | newer.proven)

    def naming(self, accounts: Sequence[str], events: Collection[str]) -> ReceiptLogs:
        """Return the same blocks with only the logs that name one of the accounts; no events means all events."""
        return ReceiptLogs(logs_naming(self.logs, accounts, events), self.sources, self.proven)

    def _at(self, heights: Set[int]) -> ReceiptLogs:
        sources = {height: self.sources[height] for height in heights}
        return ReceiptLogs(at_heights(self.logs, heights), sources, self.proven & heights)


NO_RECEIPTS = ReceiptLogs()


def unchecked_logs(source: str, receipt: bytes) -> Logs:
    """Return the logs of a receipt (JSON) without checking them; none if it has no field for logs."""
    return strict(source, bytes(typed(source, receipt, _ReceiptWithLogs).logs))


def logs_of_receipt(source: str, full: FullBlock, tx: ExecutedTransaction, receipt: bytes, *, bloom: bool) -> Logs:
    """Return the logs of a receipt (JSON), with its block's time; none if it has no field for logs.

    Raises:
        BadAnswer: A log is of another transaction, block or time, a failed transaction has one, log indices have gaps,
            or (with `bloom`, if the block has one) the bloom of the block denies a log.
    """
    logs = unchecked_logs(source, receipt)
    if len(logs) == 0:
        return logs
    subject = f"the receipt of transaction {tx.transaction.hash.lower()}"
    if tx.status == 0:
        raise BadAnswer(source, f"{subject}, which failed, holds logs")
    same_index = {(tx.height, tx.index)} == {*zip(logs.height.tolist(), logs.tx_index.tolist(), strict=True)}
    same_block = _texts(logs.block_hash) == {full.hash.lower()}
    same_transaction = _texts(logs.tx_hash) == {tx.transaction.hash.lower()}
    if not same_index or not same_block or not same_transaction or (np.diff(logs.log_index) != 1).any():
        raise BadAnswer(source, f"{subject} holds logs of another place than its own")
    if (np.isin(logs.time_s, (-1, full.time_s), invert=True)).any():
        raise BadAnswer(source, f"{subject} holds a log with another time than its block")
    logs.time_s[:] = full.time_s
    if bloom and full.logsBloom:
        check_bloom(source, logs, full.logsBloom)
    return logs


def check_bloom(source: str, logs: Logs, bloom: str) -> None:
    """Check the logs of one block against its bloom.

    Raises:
        BadAnswer: The bloom denies the contract or a topic of a log.
    """
    row = blooms_of([bloom])
    values = _texts(logs.address)
    for position, topics in enumerate(logs.topics):
        values |= _texts(topics[np.flatnonzero(logs.topic_count > position)])
    for value in values:
        if not may_hold(row, value).all():
            raise BadAnswer(source, f"a receipt holds a log with {value}, which the bloom of its block denies")


def logs_naming(logs: Logs, accounts: Sequence[str], events: Collection[str] = ()) -> Logs:
    """Return the logs that name one of the accounts; no events means all events."""
    mask = names_account(logs, accounts)
    if events:
        mask &= np.isin(np.ascontiguousarray(logs.topics[0]).view("S66").ravel(), [each.encode() for each in events])
    return logs.take(np.flatnonzero(mask))


def logs_not_in(logs: Logs, excluded: Logs) -> Logs:
    """Return the logs that `excluded` does not have in exactly the same form, in their order."""
    rows = {(height, *row) for height, row in _rows(excluded)}
    return logs.take(np.array([k for k, (height, row) in enumerate(_rows(logs)) if (height, *row) not in rows], int))


def merge_logs(source: str, parts: Sequence[Logs]) -> Logs:
    """Merge logs in the order of the chain; of duplicates, the log of the first part is used.

    A log that names two accounts, or one account twice, answers several filters.

    Raises:
        BadAnswer: Two logs at one position are of different blocks.
    """
    logs = columns.join(parts)
    if len(logs) == 0:
        return logs
    logs = logs.take(np.lexsort((logs.log_index, logs.height)))
    is_repeated = (np.diff(logs.height) == 0) & (np.diff(logs.log_index) == 0)
    if (is_repeated & (logs.block_hash[1:] != logs.block_hash[:-1]).any(axis=1)).any():
        raise BadAnswer(source, "two logs at one place of a chain, of different blocks")
    return logs.take(np.flatnonzero(np.concatenate(([True], ~is_repeated))))


def at_heights(logs: Logs, heights: Iterable[int]) -> Logs:
    """Return the logs of some blocks."""
    return logs.take(np.flatnonzero(np.isin(logs.height, sorted(heights))))


def _rows(logs: Logs) -> list[tuple[int, tuple[object, ...]]]:
    return list(zip(logs.height.tolist(), comparable_logs(logs), strict=True))


def _texts(column: columns.Bytes) -> set[str]:
    return {each.tobytes().decode() for each in column}
