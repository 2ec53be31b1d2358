"""Logs that the receipts of accounts hold: what an `eth_getLogs` answer about the same blocks must have, too."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import msgspec
import numpy as np

from adapters.evm import logs as columns
from adapters.evm.accounts.naming import names
from adapters.evm.datasets.transactions import Done, FullBlock
from adapters.evm.integrity import blooms_of, may_hold
from adapters.evm.logs import Logs
from adapters.evm.proven import written
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer
from transport.wire import typed


class _Logged(msgspec.Struct):
    logs: msgspec.Raw = msgspec.Raw(b"[]")


@dataclass(frozen=True, slots=True, eq=False)
class ReceiptLogs:
    """Logs of receipts that name accounts. `sources`: by height the endpoint that gave the receipts; `proven`: heights
    of which all receipts were read, and are those of the receipts root."""

    logs: Logs = field(default_factory=lambda: Logs.blank(0))
    sources: Mapping[int, str] = field(default_factory=dict)
    proven: frozenset[int] = frozenset()

    def of(self, source: str) -> ReceiptLogs:
        """Those of the blocks whose receipts one endpoint gave."""
        return self._at({height for height, name in self.sources.items() if name == source})

    def within(self, span: Span) -> ReceiptLogs:
        """Those of the blocks of a span."""
        return self._at({height for height in self.sources if height in span})

    def replaced(self, other: ReceiptLogs) -> ReceiptLogs:
        """These, and others in the place of those of the same blocks."""
        kept = self._at(self.sources.keys() - other.sources.keys())
        logs = columns.join([kept.logs, other.logs])
        return ReceiptLogs(logs, {**kept.sources, **other.sources}, kept.proven | other.proven)

    def about(self, accounts: Sequence[str], events: Collection[str]) -> ReceiptLogs:
        """Those that name some accounts; with `events`, of these alone."""
        return ReceiptLogs(naming(self.logs, accounts, events), self.sources, self.proven)

    def _at(self, heights: Set[int]) -> ReceiptLogs:
        sources = {height: self.sources[height] for height in heights}
        return ReceiptLogs(at_heights(self.logs, heights), sources, self.proven & heights)


NO_RECEIPTS = ReceiptLogs()


def listed(source: str, receipt: bytes) -> Logs:
    """The logs that a receipt (JSON) lists, unchecked; none if it has no such field."""
    return columns.strict(source, bytes(typed(source, receipt, _Logged).logs))


def logs_of_receipt(source: str, full: FullBlock, done: Done, receipt: bytes, *, bloom: bool) -> Logs:
    """Return the logs of the receipt (JSON) of a transaction in a block; none if the receipt has no such field.

    Raises:
        BadAnswer: a log belongs to another place than its receipt, a failed transaction has one, logs are not numbered
            one after the other, or (with `bloom`) the bloom of the block denies one.
    """
    logs = listed(source, receipt)
    if len(logs) == 0:
        return logs
    own = f"the receipt of transaction {done.sent.hash.lower()}"
    if done.status == 0:
        raise BadAnswer(source, f"{own}, which failed, holds logs")
    places = {(done.height, done.index)} == {*zip(logs.height.tolist(), logs.tx_index.tolist(), strict=True)}
    hashes = _texts(logs.block_hash) == {full.hash.lower()} and _texts(logs.tx_hash) == {done.sent.hash.lower()}
    if not places or not hashes or (np.diff(logs.log_index) != 1).any():
        raise BadAnswer(source, f"{own} holds logs of another place than its own")
    if (np.isin(logs.time_s, (-1, full.time_s), invert=True)).any():
        raise BadAnswer(source, f"{own} holds a log with another time than its block")
    logs.time_s[:] = full.time_s
    if bloom and full.logsBloom:
        check_bloom(source, logs, full.logsBloom)
    return logs


def check_bloom(source: str, logs: Logs, bloom: str) -> None:
    """Raise BadAnswer if the bloom of a block denies the contract or a topic of one of its logs."""
    row = blooms_of([bloom])
    values = _texts(logs.address)
    for place, topics in enumerate(logs.topics):
        values |= _texts(topics[np.flatnonzero(logs.topic_count > place)])
    for value in values:
        if not may_hold(row, value).all():
            raise BadAnswer(source, f"a receipt holds a log with {value}, which the bloom of its block denies")


def naming(logs: Logs, accounts: Sequence[str], events: Collection[str] = ()) -> Logs:
    """Return the logs that name one of some accounts; with `events`, those of these events alone."""
    mask = names(logs, accounts)
    if events:
        mask &= np.isin(np.ascontiguousarray(logs.topics[0]).view("S66").ravel(), [each.encode() for each in events])
    return logs.take(np.flatnonzero(mask))


def absent(logs: Logs, given: Logs) -> Logs:
    """Return the logs that are not among the given ones as they are, in their order."""
    rows = {(height, *row) for height, row in _rows(given)}
    return logs.take(np.array([k for k, (height, row) in enumerate(_rows(logs)) if (height, *row) not in rows], int))


def once(source: str, parts: Sequence[Logs]) -> Logs:
    """Logs in the order of the chain, each once: one that names two accounts, or one twice, answers two questions. Of
    two at one place the first part's counts; BadAnswer if they are of different blocks."""
    logs = columns.join(parts)
    if len(logs) == 0:
        return logs
    logs = logs.take(np.lexsort((logs.log_index, logs.height)))
    again = (np.diff(logs.height) == 0) & (np.diff(logs.log_index) == 0)
    if (again & (logs.block_hash[1:] != logs.block_hash[:-1]).any(axis=1)).any():
        raise BadAnswer(source, "two logs at one place of a chain, of different blocks")
    return logs.take(np.flatnonzero(np.concatenate(([True], ~again))))


def at_heights(logs: Logs, heights: Iterable[int]) -> Logs:
    """Return the logs of some blocks."""
    return logs.take(np.flatnonzero(np.isin(logs.height, sorted(heights))))


def _rows(logs: Logs) -> list[tuple[int, tuple[object, ...]]]:
    return list(zip(logs.height.tolist(), written(logs), strict=True))


def _texts(column: columns.Bytes) -> set[str]:
    return {each.tobytes().decode() for each in column}
