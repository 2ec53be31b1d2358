"""Write rows as one JSON document: the rows first, then the summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

import msgspec

from chainfolio.exports.dataset import Writer

if TYPE_CHECKING:
    from chainfolio.exports.dataset import Page, Summary


class JsonWriter(Writer):
    """Writes an object with `columns`, `rows` (objects) and `summary`; holds one page at a time."""

    def __init__(self, file: TextIO, columns: Sequence[str]) -> None:
        """Write the beginning of the object into a file, which the caller closes."""
        self._file = file
        self._columns = columns
        self._separator = "\n"
        file.write(f'{{"columns": {_text(columns)}, "rows": [')

    def write(self, page: Page) -> None:
        """Write the rows of a page."""
        for row in page.rows:
            self._file.write(self._separator + _text(dict(zip(self._columns, row, strict=True))))
            self._separator = ",\n"

    def close(self, summary: Summary) -> None:
        """Write the summary and the end of the document."""
        self._file.write(f'\n], "summary": {_text(summary)}}}\n')


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
