"""Write a statement as PDF: period, method and completeness on the first page, then the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chainfolio.errors import needs_extra
from chainfolio.exports.dataset import COMPLETE, Writer, about_lines
from chainfolio.printable import clean

with needs_extra("exports", "a statement as PDF"):
    from reportlab.lib.pagesizes import A4, landscape
    from reportlab.pdfgen.canvas import Canvas

if TYPE_CHECKING:
    from chainfolio.exports.dataset import Cell, Page, Summary

WIDTH, HEIGHT = landscape(A4)
MARGIN: Final = 36.0
FONT, BOLD = "Courier", "Courier-Bold"
CHARACTER: Final = 0.6  # width of a character of these fonts, in sizes
SIZE: Final = 6.0  # of rows
LINE: Final = 8.0
TEXT_SIZE: Final = 9.0  # of the first page
TEXT_LINE: Final = 13.0
NAME_WIDTH: Final = 110.0
MAX_ISSUES: Final = 20
MAX_CELL: Final = 400  # characters of a cell, which may take several lines
ENCODING: Final = "cp1252"  # of the fonts that every reader has


class PdfWriter(Writer):
    """Writes a statement at the end, because its first page says whether the rows are complete."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._path = path
        self._columns = columns
        self._rows: list[Sequence[Cell]] = []

    def write(self, page: Page) -> None:
        """Keep the rows of a page."""
        self._rows += page.rows

    def close(self, summary: Summary) -> None:
        """Write the file: the first page, then the rows, without columns that are empty in every row."""
        canvas = Canvas(str(self._path), pagesize=(WIDTH, HEIGHT), invariant=1)
        canvas.setTitle(f"Chainfolio: {summary.kind}")
        _first_page(canvas, summary)
        visible = [at for at in range(len(self._columns)) if any(row[at] not in (None, "") for row in self._rows)]
        if visible:
            _Table(canvas, [self._columns[at] for at in visible]).draw(
                [_text(row[at]) for at in visible] for row in self._rows
            )
        canvas.save()


def _first_page(canvas: Canvas, summary: Summary) -> None:
    """Draw the title and what a reader must know before the rows; a partial statement says so at the top."""
    y = HEIGHT - MARGIN - 18
    canvas.setFont(BOLD, 18)
    canvas.drawString(MARGIN, y, f"Statement: {summary.kind}")
    y -= 26
    canvas.setFont(BOLD, 11)
    if summary.completeness == COMPLETE:
        canvas.drawString(MARGIN, y, "Complete: everything that this statement covers was read.")
    else:
        canvas.drawString(MARGIN, y, "PARTIAL: this statement lacks data that is not indexed or has no known value.")
    y -= 22
    lines = about_lines(summary)
    issues = [pair for pair in lines if pair[0] == "issue"]
    shown = [pair for pair in lines if pair not in issues[MAX_ISSUES:]]
    if len(issues) > MAX_ISSUES:
        shown.append(("issue", f"and {len(issues) - MAX_ISSUES} more"))
    for name, text in shown:
        for at, line in enumerate(_broken(_text(text), WIDTH - 2 * MARGIN - NAME_WIDTH, TEXT_SIZE)):
            if y < MARGIN:
                canvas.showPage()
                y = HEIGHT - MARGIN - TEXT_LINE
            canvas.setFont(BOLD, TEXT_SIZE)
            canvas.drawString(MARGIN, y, name if at == 0 else "")
            canvas.setFont(FONT, TEXT_SIZE)
            canvas.drawString(MARGIN + NAME_WIDTH, y, line)
            y -= TEXT_LINE
    canvas.showPage()


class _Table:
    """Draws rows on as many pages as they need, with the names of the columns on each page."""

    def __init__(self, canvas: Canvas, columns: Sequence[str]) -> None:
        """Prepare a table whose columns are equally wide; the first page of the file is another one."""
        self._canvas = canvas
        self._columns = columns
        self._width = (WIDTH - 2 * MARGIN) / len(columns)
        self._page_number = 1
        self._y = 0.0

    def draw(self, rows: Iterator[Sequence[str]]) -> None:
        """Draw all rows and end the last page."""
        self._begin_page()
        for row in rows:
            cells = [_broken(cell, self._width - 2, SIZE) for cell in row]
            height = LINE * max(len(lines) for lines in cells)
            if self._y - height < MARGIN:
                self._canvas.showPage()
                self._begin_page()
            self._draw_row(cells)
            self._y -= height
        self._canvas.showPage()

    def _begin_page(self) -> None:
        """Draw the names of the columns and the number of the page, and go to the first row."""
        self._page_number += 1
        self._y = HEIGHT - MARGIN - LINE
        self._canvas.setFont(BOLD, SIZE)
        self._draw_row([[name] for name in self._columns])
        self._canvas.drawRightString(WIDTH - MARGIN, MARGIN / 2, f"page {self._page_number}")
        self._y -= 1.5 * LINE
        self._canvas.setFont(FONT, SIZE)

    def _draw_row(self, cells: Sequence[Sequence[str]]) -> None:
        for at, lines in enumerate(cells):
            for down, line in enumerate(lines):
                self._canvas.drawString(MARGIN + at * self._width, self._y - down * LINE, line)


def _text(cell: Cell) -> str:
    """Return a cell as one line in the characters of the fonts; others are written by their number in hex."""
    text = "" if cell is None else clean(str(cell), MAX_CELL)
    return text.encode(ENCODING, "backslashreplace").decode(ENCODING)


def _broken(text: str, width: float, size: float) -> list[str]:
    """Return a text in lines that fit a width; every character is equally wide."""
    count = max(1, int(width / (size * CHARACTER)))
    return [text[at : at + count] for at in range(0, len(text), count)] or [""]
