"""Write rows as CSV: exact decimals as text, and nothing that a spreadsheet takes for a formula."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from chainfolio.exports.dataset import Writer
from chainfolio.printable import harmless, spreadsheet_text

if TYPE_CHECKING:
    from chainfolio.exports.dataset import Cell, Page, Summary


class CsvWriter(Writer):
    """Writes a header and rows to a text file; holds one page at a time."""

    def __init__(self, file: TextIO, columns: Sequence[str]) -> None:
        self._csv = csv.writer(file, lineterminator="\n")
        self._csv.writerow(columns)

    def write(self, page: Page) -> None:
        """Write the rows of a page."""
        self._csv.writerows([plain_cell(cell) for cell in row] for row in page.rows)

    def close(self, summary: Summary) -> None:
        """Do nothing: a CSV file has no end mark."""


def plain_cell(cell: Cell) -> Cell:
    """Return a cell that starts no formula and controls no terminal.

    True and False become text; None and numbers stay.
    """
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return spreadsheet_text(harmless(cell)) if isinstance(cell, str) else cell
