"""Decode stored rows again after a change of a decoder, without requests to nodes.

Stored rows contain all data of their logs, so they are converted to logs and decoded again, once, window by window,
into temporary files. Then the tables are replaced one after the other. A log may move to another table, and a kill in
between must not lose or double it: `logs` first gets all logs that other tables lose, and at the end releases those
that they gained. The caller holds the chain's lock.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chainfolio.capabilities import Capability, require_capability
from chainfolio.datasets import restorable_tables
from chainfolio.indexer.materialise import CountedBatches
from chainfolio.table import Table
from chainfolio.tables import LOGS

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.storage.lake import Lake

ALL_LOGS = "kept"
WINDOW_ROWS = 65_536


def reprocess(chain: Chain, lake: Lake) -> dict[str, int]:
    """Decode the tables again that follow from stored logs, and replace them; return row counts by table.

    Logs may move between tables. Nothing is read from nodes; the logs are replaced first, and only if they change.
    """
    tables = restorable_tables(chain.datasets.values())
    with tempfile.TemporaryDirectory(prefix="chainfolio-") as folder:
        staging = Staging(Path(folder), tables)
        for stored in _windows(lake, chain.key, tables):
            staging.add(stored, decoded(chain, stored))
        staging.close()
        if staging.logs_change:
            lake.replace(LOGS, chain.key, staging.batches(ALL_LOGS))
        return {table.name: _replace(lake, chain.key, table, staging) for table in tables}


def _windows(lake: Lake, chain: str, tables: Sequence[Table]) -> Iterator[dict[str, pa.Table]]:
    """Yield the stored rows window by window, reading one window ahead in a thread."""
    windows = lake.windows(tables, chain, WINDOW_ROWS)
    with ThreadPoolExecutor(1, "windows") as thread:
        coming = thread.submit(next, windows, None)
        while (stored := coming.result()) is not None:
            coming = thread.submit(next, windows, None)
            yield stored


def _replace(lake: Lake, chain: str, table: Table, staging: Staging) -> int:
    """Replace the rows of a chain in a table by the staged ones, and return their number.

    Equal logs are only counted.
    """
    counted_batches = CountedBatches(staging.batches(table.name))
    if table is LOGS and not staging.logs_change:
        return sum(batch.num_rows for batch in counted_batches)  # as it was: nothing to write
    lake.replace(table, chain, counted_batches)
    return counted_batches.rows


def decoded(chain: Chain, stored: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Return the rows of one window, decoded again.

    Rows of datasets that do not restore logs, such as native coins, pass unchanged, as do all rows of a chain that
    cannot restore logs.
    """
    if Capability.RESTORE not in chain.capabilities:
        return stored
    tables_ = restorable_tables(chain.datasets.values())
    restoring, passing = dict(stored), dict[Table, pa.Table]()
    for table in tables_:
        passing_datasets = [each for each in chain.datasets.values() if each.table is table and not each.is_restorable]
        if standards := [standard for each in passing_datasets for standard in each.standards]:
            rows = stored[table.name]
            passes = pc.is_in(rows["standard"], value_set=pa.array(standards, pa.string()))
            restoring[table.name] = rows.filter(pc.invert(passes))
            passing[table] = rows.filter(passes)
    tables = {table.name: table.schema().empty_table() for table in tables_}
    tables |= require_capability(chain, Capability.RESTORE).decode_again(restoring)
    for table, rows in passing.items():
        if len(rows):
            both = pa.concat_tables([tables[table.name], rows])
            tables[table.name] = both.sort_by([(key, "ascending") for key in table.order])
    return tables


class Staging:
    """Temporary files with decoded rows, one per table, which bound the memory."""

    def __init__(self, folder: Path, tables: Sequence[Table]) -> None:
        self.logs_change = False
        self._folder, self._tables = folder, tables
        self._writers = {table.name: self._writer(table.name, table) for table in tables}
        self._writers[ALL_LOGS] = self._writer(ALL_LOGS, LOGS)

    def _writer(self, name: str, table: Table) -> pa.ipc.RecordBatchFileWriter:
        return pa.ipc.new_file(str(self._folder / name), table.schema())

    def add(self, stored: dict[str, pa.Table], tables: dict[str, pa.Table]) -> None:
        """Add one window: its rows before (`stored`) and after decoding (`tables`)."""
        for table in self._tables:
            if table.name in tables:
                self._writers[table.name].write_table(tables[table.name])
        changed = not tables[LOGS.name].equals(stored[LOGS.name])
        self.logs_change |= changed
        self._writers[ALL_LOGS].write_table(
            _union(tables[LOGS.name], stored[LOGS.name]) if changed else tables[LOGS.name]
        )

    def close(self) -> None:
        """Finish all files."""
        for writer in self._writers.values():
            writer.close()

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield one table's rows in block order."""
        with pa.memory_map(str(self._folder / name)) as source, pa.ipc.open_file(source) as reader:
            for at in range(reader.num_record_batches):
                yield reader.get_batch(at)


def _union(first: pa.Table, second: pa.Table) -> pa.Table:
    """Return the logs of both tables, each once, in block order."""
    both = pa.concat_tables([first, second]).sort_by([(key, "ascending") for key in LOGS.order])
    positions = np.stack([both["height"].to_numpy(), both["log_index"].to_numpy()])
    is_new = np.concatenate([[True], (np.diff(positions) != 0).any(axis=0)]) if len(both) else np.zeros(0, np.bool_)
    return both.filter(pa.array(is_new))
