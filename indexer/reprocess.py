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
from chainfolio.errors import StoreError
from chainfolio.tables import APPROVALS, LOGS, TABLES, TRANSFERS, Table
from indexer.materialise import DECODED, Counted

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from storage.lake import Lake

STORED = (TRANSFERS, APPROVALS, LOGS)
KEPT = "kept"
WINDOW_ROWS = 65_536


def reprocess(chain: Chain, lake: Lake, tables: Sequence[str] = DECODED) -> dict[str, int]:
    """Decode everything again; rows by table. The three are one body: whichever is named, all are made again."""
    if not tables:
        return {}
    with tempfile.TemporaryDirectory(prefix="chainfolio-") as folder:
        aside = Staging(Path(folder))
        for stored in _windows(lake, chain.key):
            aside.add(stored, decoded(chain, stored))
        aside.close()
        if aside.logs_change:
            lake.replace(LOGS, chain.key, aside.batches(KEPT))
        return {name: _replace(lake, chain.key, TABLES[name], aside) for name in DECODED}


def _windows(lake: Lake, chain: str) -> Iterator[dict[str, pa.Table]]:
    """What is stored, window by window; the next one is read while the one before is worked on."""
    windows = lake.windows(STORED, chain, WINDOW_ROWS)
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
    """The rows of one window by the decoder of today; those of native coins stand for no log and pass as they are."""
    others = [each for each in chain.datasets.values() if each.table is TRANSFERS and not each.restores]
    standards = pa.array([standard for each in others for standard in each.standards], pa.string())
    is_native = pc.is_in(stored["transfers"]["standard"], value_set=standards)
    native = fitted(TRANSFERS, stored["transfers"].filter(is_native))
    tables = {table.name: table.schema().empty_table() for table in STORED}
    tables |= _again(chain, {**stored, "transfers": stored["transfers"].filter(pc.invert(is_native))})
    if len(native):
        both = pa.concat_tables([tables["transfers"], native])
        tables["transfers"] = both.sort_by([(key, "ascending") for key in TRANSFERS.order])
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

    def __init__(self, folder: Path) -> None:
        self.logs_change = False
        self._folder = folder
        self._writers = {name: self._writer(name, TABLES[name]) for name in DECODED} | {KEPT: self._writer(KEPT, LOGS)}

    def _writer(self, name: str, table: Table) -> pa.ipc.RecordBatchFileWriter:
        return pa.ipc.new_file(str(self._folder / name), table.schema())

    def add(self, stored: dict[str, pa.Table], tables: dict[str, pa.Table]) -> None:
        """Take in one window."""
        for name in DECODED:
            self._writers[name].write_table(tables[name])
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
