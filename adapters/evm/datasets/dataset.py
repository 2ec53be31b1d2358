"""Datasets of EVM chains. Each is made from one source: headers, logs, block bodies or traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from chainfolio.adapters.evm.datasets.common import merge_sorted
from chainfolio.blocks import Span
from chainfolio.datasets import Dataset, without_rows
from chainfolio.tables import LOGS

if TYPE_CHECKING:
    from chainfolio.adapters.evm.columns import Mask
    from chainfolio.adapters.evm.datasets.internal import CoinTransfer, TracedBlock
    from chainfolio.adapters.evm.datasets.transactions import ExecutedTransaction
    from chainfolio.adapters.evm.logs import Logs


def topic_of(account: str) -> str:
    """Return an address as an indexed parameter of an event."""
    return "0x" + account[2:].rjust(64, "0")


@dataclass(frozen=True, slots=True)
class EvmDataset(Dataset):
    """A dataset of EVM chains, with the function that makes its rows.

    Attributes:
        topics: The events that the dataset takes.
        decode: Makes rows from logs of these events, for a chain and its wrapped coin, and marks the logs it used.
        logs_of: The inverse of `decode`.
        of_headers: Makes rows from block headers.
        of_bodies: Makes rows from transactions with their receipts.
        of_traces: Makes rows from the coin transfers inside transactions.
    """

    topics: tuple[str, ...] = ()
    decode: Callable[[Logs, str, str | None], tuple[pa.Table, Mask]] | None = None
    logs_of: Callable[[pa.Table], Logs] | None = None
    of_headers: Callable[[Sequence[Any], str], pa.Table] | None = None
    of_bodies: Callable[[Sequence[ExecutedTransaction], str], pa.Table] | None = None
    of_traces: Callable[[Mapping[TracedBlock, Sequence[CoinTransfer]], str], pa.Table] | None = None

    def without_contract(self, tables: dict[str, pa.Table], contract: str, span: Span) -> dict[str, pa.Table]:
        """Return tables without the dataset's rows, and its events' raw logs, of a contract in a span.

        Raw logs of other datasets' events stay: they were not fetched with the contract's.
        """
        tables = Dataset.without_contract(self, tables, contract, span)
        return without_rows(tables, LOGS.name, "address", contract, span, pa.array(self.topics, pa.string()))


def add_rows(tables: dict[str, pa.Table], additions: Sequence[tuple[EvmDataset, pa.Table]]) -> None:
    """Add the rows of datasets to their tables, in place.

    Datasets that share a table are merged in the order of the chain; the rows of another dataset replace its table.
    """
    for dataset, rows in additions:
        name = dataset.table.name
        stored = [tables[name]] if name in tables else []
        tables[name] = merge_sorted([*stored, rows], rows.schema) if dataset.standards else rows
