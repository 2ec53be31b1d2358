"""Decode again what is stored, after a change of a decoder: no node is asked.

Stored rows say all that their logs said, so they are turned back into logs and decoded by the decoder of today. That is
done once, window by window, into files aside; then the tables are replaced one after the other. A log may change its
table, and no kill in between may lose or double it: `logs` first takes in what the others will not keep, and gives back
last what they have taken. The caller holds the chain's lock.
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

from chainfolio.chains import Capability, having
from chainfolio.datasets import restored
from chainfolio.errors import StoreError
from chainfolio.table import Table
from chainfolio.tables import LOGS, TABLES
from indexer.materialise import Counted

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from storage.lake import Lake

KEPT = "kept"
WINDOW_ROWS = 65_536


def reprocess(chain: Chain, lake: Lake) -> dict[str, int]:
    """Decode everything again; rows by table. The tables are one body: a log may move from one to another."""
    tables = restored(chain.datasets.values())
    with tempfile.TemporaryDirectory(prefix="chainfolio-") as folder:
        aside = Staging(Path(folder), tables)
        for stored in _windows(lake, chain.key, tables):
            aside.add(stored, decoded(chain, stored))
        aside.close()
        if aside.logs_change:
            lake.replace(LOGS, chain.key, aside.batches(KEPT))
        return {table.name: _replace(lake, chain.key, table, aside) for table in tables}


def _windows(lake: Lake, chain: str, tables: Sequence[Table]) -> Iterator[dict[str, pa.Table]]:
    """What is stored, window by window; the next one is read while the one before is worked on."""
    windows = lake.windows(tables, chain, WINDOW_ROWS)
    with ThreadPoolExecutor(1, "windows") as thread:
        coming = thread.submit(next, windows, None)
        while (stored := coming.result()) is not None:
            coming = thread.submit(next, windows, None)
            yield stored


def _replace(lake: Lake, chain: str, table: Table, aside: Staging) -> int:
    counted = Counted(aside.batches(table.name))
    if table is LOGS and not aside.logs_change:
        return sum(batch.num_rows for batch in counted)  # as it was: nothing to write
    lake.replace(table, chain, counted)
    return counted.rows


def decoded(chain: Chain, stored: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """The rows of one window by the decoder of today; those of datasets that do not restore, such as native coins,
    stand for no log and pass as they are, as do all rows of a chain that cannot restore."""
    if Capability.RESTORE not in chain.capabilities:
        return {name: fitted(TABLES[name], rows) for name, rows in stored.items()}
    made = restored(chain.datasets.values())
    restoring, passing = dict(stored), dict[Table, pa.Table]()
    for table in made:
        others = [each for each in chain.datasets.values() if each.table is table and not each.restores]
        if standards := [standard for each in others for standard in each.standards]:
            rows = stored[table.name]
            passes = pc.is_in(rows["standard"], value_set=pa.array(standards, pa.string()))
            restoring[table.name] = rows.filter(pc.invert(passes))
            passing[table] = fitted(table, rows.filter(passes))
    tables = {table.name: table.schema().empty_table() for table in made} | _again(chain, restoring)
    for table, rows in passing.items():
        if len(rows):
            both = pa.concat_tables([tables[table.name], rows])
            tables[table.name] = both.sort_by([(key, "ascending") for key in table.order])
    return tables


def _again(chain: Chain, stored: dict[str, pa.Table]) -> dict[str, pa.Table]:
    try:
        return having(chain, Capability.RESTORE).decoded_again(stored)
    except KeyError as error:
        raise _lacks(str(error.args[0])) from error


def fitted(table: Table, rows: pa.Table) -> pa.Table:
    """Rows of any revision in the columns of this one, unknown where they do not have one that may be."""
    for column in table.columns:
        if len(rows) and not column.nullable and column.name not in rows.column_names:
            raise _lacks(f"no column {column.name}")
    return pa.table(
        [
            rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
            for field in table.schema()
        ],
        schema=table.schema(),
    )


def _lacks(what: str) -> StoreError:
    return StoreError(
        "lake", f"what an older release stored does not say all that this one keeps: {what}",
        remedy="index into a new data folder; the old one stays readable by the release that wrote it",
    )  # fmt: skip


class Staging:
    """Decoded rows on their way, a file a table, so that memory does not grow with history."""

    def __init__(self, folder: Path, tables: Sequence[Table]) -> None:
        self.logs_change = False
        self._folder, self._tables = folder, tables
        self._writers = {table.name: self._writer(table.name, table) for table in tables}
        self._writers[KEPT] = self._writer(KEPT, LOGS)

    def _writer(self, name: str, table: Table) -> pa.ipc.RecordBatchFileWriter:
        return pa.ipc.new_file(str(self._folder / name), table.schema())

    def add(self, stored: dict[str, pa.Table], tables: dict[str, pa.Table]) -> None:
        """Take in one window."""
        for table in self._tables:
            if table.name in tables:
                self._writers[table.name].write_table(tables[table.name])
        changed = not tables[LOGS.name].equals(stored[LOGS.name])
        self.logs_change |= changed
        self._writers[KEPT].write_table(_either(tables[LOGS.name], stored[LOGS.name]) if changed else tables[LOGS.name])

    def close(self) -> None:
        """Everything is in."""
        for writer in self._writers.values():
            writer.close()

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """One table's rows in the order of the chain."""
        with pa.memory_map(str(self._folder / name)) as source, pa.ipc.open_file(source) as reader:
            for at in range(reader.num_record_batches):
                yield reader.get_batch(at)


def _either(one: pa.Table, other: pa.Table) -> pa.Table:
    """The logs of both, each once, in the order of the chain."""
    both = pa.concat_tables([one, other]).sort_by([(key, "ascending") for key in LOGS.order])
    places = np.stack([both["height"].to_numpy(), both["log_index"].to_numpy()])
    first = np.concatenate([[True], (np.diff(places) != 0).any(axis=0)]) if len(both) else np.zeros(0, np.bool_)
    return both.filter(pa.array(first))
