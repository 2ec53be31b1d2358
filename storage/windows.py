"""The rows of several tables side by side, a span of heights after the other, in memory that history does not fill.

A file may hold a million rows and a window a few thousand of them, so files are read on from where the window before
ended: every row is decoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from chainfolio.table import Table
from storage.arrays import numbers
from storage.parquet import Written, in_order

Reading = Callable[[Table, list[Written]], Iterator[pa.RecordBatch]]


def windows(
    files: Mapping[str, tuple[Table, Sequence[Written]]], reading: Reading, rows: int
) -> Iterator[dict[str, pa.Table]]:
    """The rows of each table by its name, of about `rows` rows together, each table's in its order."""
    every = [file for _, some in files.values() for file in some]
    if not every:
        return
    tables = {name: [_Cursor(table, file, reading) for file in some] for name, (table, some) in files.items()}
    for last in [*(edge - 1 for edge in _edges(every, -(-sum(file.rows for file in every) // rows))), 2**63 - 1]:
        found = {name: [part for cursor in cursors for part in cursor.until(last)] for name, cursors in tables.items()}
        yield {
            name: in_order(table, pa.concat_tables(found[name])) if found[name] else table.schema().empty_table()
            for name, (table, _) in files.items()
        }


class _Cursor:
    """One file, read as far as it was asked for."""

    def __init__(self, table: Table, file: Written, reading: Reading) -> None:
        self._first, self._at_end = file.first, False
        self._coming, self._over = reading(table, [file]), pa.table({})

    def until(self, last: int) -> Iterator[pa.Table]:
        """The rows up to a height that were not given yet."""
        while not self._at_end and self._first <= last:
            if not len(self._over):
                batch = next(self._coming, None)
                self._at_end = batch is None
                self._over = pa.table({}) if batch is None else pa.table(batch)
                continue
            heights = numbers(self._over["height"])
            assert heights is not None, "heights are integers"
            here = int(np.searchsorted(heights, last, "right"))
            yield self._over.slice(0, here)
            self._over = self._over.slice(here)
            if len(self._over):
                return


def _edges(files: Sequence[Written], pieces: int) -> list[int]:
    """The heights at which about one more of so many equal parts of the rows has been passed.

    Rows are taken to lie evenly inside a file: a window need not be exact, only bounded.
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
