"""Read several tables together, one span of heights after the other, in bounded memory.

A file may hold a million rows and a window a few thousand of them, so each file is read on from the end of the
previous window: every row is decoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from chainfolio.storage.arrays import numbers
from chainfolio.storage.parquet import LakeFile
from chainfolio.storage.row_order import in_order
from chainfolio.table import Table

ReadFiles = Callable[[Table, list[LakeFile]], Iterator[pa.RecordBatch]]


def windows(
    files: Mapping[str, tuple[Table, Sequence[LakeFile]]], reading: ReadFiles, rows: int
) -> Iterator[dict[str, pa.Table]]:
    """Yield the rows of each table by its name, window by window, in each table's order.

    Args:
        files: The files of each table, by its name.
        reading: Reads the rows of files.
        rows: Approximate number of rows per window, over all tables.
    """
    all_files = [file for _, table_files in files.values() for file in table_files]
    if not all_files:
        return
    tables = {
        name: [_Cursor(table, file, reading) for file in table_files] for name, (table, table_files) in files.items()
    }
    for last in [
        *(edge - 1 for edge in _edges(all_files, -(-sum(file.rows for file in all_files) // rows))),
        2**63 - 1,
    ]:
        parts = {
            name: [part for cursor in cursors for part in cursor.read_until(last)] for name, cursors in tables.items()
        }
        yield {
            name: in_order(table, pa.concat_tables(parts[name])) if parts[name] else table.schema().empty_table()
            for name, (table, _) in files.items()
        }


class _Cursor:
    """One file, and the rows of it that were decoded but not yielded yet."""

    def __init__(self, table: Table, file: LakeFile, reading: ReadFiles) -> None:
        self._first, self._at_end = file.first, False
        self._batches, self._rows = reading(table, [file]), pa.table({})

    def read_until(self, last: int) -> Iterator[pa.Table]:
        """Yield the remaining rows up to the height `last`."""
        while not self._at_end and self._first <= last:
            if not len(self._rows):
                batch = next(self._batches, None)
                self._at_end = batch is None
                self._rows = pa.table({}) if batch is None else pa.table(batch)
                continue
            heights = numbers(self._rows["height"])
            assert heights is not None, "heights are integers"
            count = int(np.searchsorted(heights, last, "right"))
            yield self._rows.slice(0, count)
            self._rows = self._rows.slice(count)
            if len(self._rows):
                return


def _edges(files: Sequence[LakeFile], pieces: int) -> list[int]:
    """Return the heights that divide the rows into about `pieces` equal parts.

    The rows of a file count as evenly distributed: windows must be bounded, not exact.
    """
    edges, passed, part = {min(file.first for file in files)}, 0, 1
    total = sum(file.rows for file in files)
    for file in sorted(files, key=lambda file: file.last):
        while part < pieces and passed + file.rows >= part * total // pieces:
            into = max(0, part * total // pieces - passed)
            edges.add(file.first + (file.last - file.first + 1) * into // max(1, file.rows))
            part += 1
        passed += file.rows
    return sorted(edges)[1:]
