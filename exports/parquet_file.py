"""Write rows as Parquet: a number is exact text, and a decimal column beside it is for computing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
from pyarrow import parquet as pq

from chainfolio.exports.dataset import Writer
from chainfolio.portfolio.frames import frame

if TYPE_CHECKING:
    from chainfolio.exports.dataset import Cell, Dataset, Page, Summary

METADATA: Final = "chainfolio"  # key of the summary in the file's metadata
MIN_GROUP: Final = 20_000  # rows that are written together


class ParquetWriter(Writer):
    """Writes row groups of some 20,000 rows in the format of `chainfolio.portfolio.frames`."""

    def __init__(self, path: Path, dataset: Dataset) -> None:
        self._dataset = dataset
        self._rows: list[list[Cell]] = []
        self._schema = self._table([]).schema
        self._parquet = pq.ParquetWriter(path, self._schema, compression="zstd")

    def write(self, page: Page) -> None:
        """Write the rows of a page, together with those of other pages."""
        self._rows += [[_text(cell) for cell in row] for row in page.rows]
        if len(self._rows) >= MIN_GROUP:
            self._flush()

    def close(self, summary: Summary) -> None:
        """Write the last rows and, as metadata, the summary."""
        if self._rows:
            self._flush()
        self._parquet.add_key_value_metadata({METADATA: msgspec.json.encode(summary).decode()})
        self._parquet.close()

    def abandon(self) -> None:
        """Close the file after an error."""
        self._parquet.close()

    def _flush(self) -> None:
        self._parquet.write_table(self._table(self._rows).cast(self._schema))
        self._rows = []

    def _table(self, rows: list[list[Cell]]) -> pa.Table:
        dataset = self._dataset
        columns = dataset.columns
        return frame(columns, rows, numbers=dataset.numbers, times=dataset.times, counts=dataset.counts).to_arrow()


def _text(cell: Cell) -> Cell:
    """Return a cell as text, as every column of a frame begins; True and False as JSON writes them."""
    return str(cell).lower() if isinstance(cell, bool) else None if cell is None else str(cell)
