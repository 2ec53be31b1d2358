"""Write rows as an Excel workbook: every cell is text, because a number cell would be a float."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from chainfolio.errors import BadRequest, needs_extra
from chainfolio.exports.dataset import Writer, about_lines
from chainfolio.printable import harmless

with needs_extra("exports", "an Excel workbook"):
    import xlsxwriter
    from xlsxwriter.exceptions import FileCreateError

if TYPE_CHECKING:
    from chainfolio.exports.dataset import Page, Row, Summary

MAX_ROWS: Final = 1_048_576
MAX_TEXT: Final = 32_767  # characters of a cell
CREATED: Final = datetime(2000, 1, 1, tzinfo=UTC)  # the same for all files: same inputs give the same bytes


class XlsxWriter(Writer):
    """Writes the sheets `data` and `about`; rows go to a temporary file as they come."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        """Begin a workbook with frozen column names; the file appears at `path` at the end."""
        self._folder = TemporaryDirectory(prefix="chainfolio-")
        self._path, self._draft = path, Path(self._folder.name, "workbook.xlsx")
        options = {
            "constant_memory": True,
            "strings_to_formulas": False,
            "strings_to_urls": False,
            "tmpdir": self._folder.name,
        }
        self._book = xlsxwriter.Workbook(str(self._draft), options)
        self._book.set_properties({"created": CREATED.replace(tzinfo=None)})
        self._sheet = self._book.add_worksheet("data")
        self._sheet.freeze_panes(1, 0)
        self._row_count = 0
        self._add(columns)

    def write(self, page: Page) -> None:
        """Write the rows of a page.

        Raises:
            BadRequest: a sheet cannot have so many rows.
        """
        if self._row_count + len(page.rows) > MAX_ROWS:
            reason = f"a sheet of Excel has at most {MAX_ROWS:,} rows"
            raise BadRequest("format", reason, remedy="export CSV or Parquet, or fewer days")
        for row in page.rows:
            self._add(row)

    def close(self, summary: Summary) -> None:
        """Write the sheet with period, method, completeness and digest, and finish the file.

        Raises:
            OSError: the file cannot be written.
        """
        about = self._book.add_worksheet("about")
        for at, (name, text) in enumerate(about_lines(summary)):
            about.write_string(at, 0, name)
            about.write_string(at, 1, harmless(text)[:MAX_TEXT])
        try:
            self._book.close()
        except FileCreateError as error:  # it has the real one inside
            raise next((each for each in error.args if isinstance(each, OSError)), OSError(str(error))) from None
        copyfile(self._draft, self._path)  # on a full disk it ends at once, which the library does not
        self._folder.cleanup()

    def abandon(self) -> None:
        """Close the file after an error, and delete the temporary files."""
        try:
            if not self._book.fileclosed:
                self._book.close()
        finally:
            for sheet in self._book.worksheets():
                if sheet.row_data_fh is not None:  # still open if the workbook could not be written
                    sheet.row_data_fh.close()
            self._folder.cleanup()

    def _add(self, row: Row) -> None:
        for at, cell in enumerate(row):
            if cell is not None and cell != "":
                self._sheet.write_string(self._row_count, at, harmless(str(cell))[:MAX_TEXT])
        self._row_count += 1
