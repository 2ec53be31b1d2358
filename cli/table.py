"""Tables for people: a row is one line, and no line is wider than the terminal.

What does not fit is shortened step by step: digits of amounts, then addresses, then columns of the least use are left
out, then texts are cut. A line below the table says so; the exact values are in `--json` and `--csv`.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from rich.cells import cell_len, set_cell_size

from chainfolio.printable import harmless

CUT: Final = "…"
GAP: Final = "  "
DIGITS: Final = (12, 9, 7, 5, 4)  # significant digits of an amount, tried in this order
MIN_TEXT: Final = 8  # cells of a text that is cut
_DECIMAL: Final = re.compile(r"(-?)([0-9][0-9,]*)(?:\.([0-9]+))?")
_ID: Final = re.compile(r"[0-9A-Za-z_]{24,}")

Kind = Literal["text", "amount", "number", "note"]
Rows = list[list[str]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    A `text` may be cut, and so may the middle of addresses in it; an `amount` may lose digits; a `number` is never
    changed. A cell of a `note` is a number, and its text stands once below the table. Columns with a `rank` are left
    out if the table does not fit, the highest first.
    """

    name: str
    kind: Kind = "text"
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Rows below a heading of their own; an empty heading is not printed."""

    heading: str
    rows: Sequence[Sequence[str]]


def show_groups(title: str, columns: Sequence[Column], groups: Sequence[Group]) -> None:
    """Print a table with a title, groups of rows, and remarks on shortened or omitted values.

    Columns that are empty in every row are left out; the rest is made to fit the terminal. Without rows only title and
    headings are printed.
    """
    width, rows = terminal_width(), [[_line(cell) for cell in row] for group in groups for row in group.rows]
    used = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    kinds, notes = [columns[at] for at in used], dict[str, int]()
    exact = [[_numbered(columns[at], row[at], notes) for at in used] for row in rows]
    indent = GAP if any(group.heading for group in groups) else ""
    columns_shown, cells = _fitted(kinds, exact, width - len(indent))
    if title:
        print_wrapped(title)
    lines = iter(_lines(columns_shown, cells))
    if rows:
        print(indent + next(lines), indent + next(lines), sep="\n")
    for group in groups:
        if group.heading:
            print(_cut(shortened_ids(_line(group.heading), width), width))
        for _ in group.rows:
            print(indent + next(lines))
    for note, number in notes.items():
        print_wrapped(f"[{number}] {note}", indent=2)
    _show_remarks(kinds, columns_shown, exact, cells)


def terminal_width() -> int:
    """Return the columns of the terminal, 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def print_wrapped(text: str, *, indent: int = 0) -> None:
    """Print a text, broken between words to fit the terminal; a word that is wider than it stays whole."""
    first, later = " " * indent, " " * (indent + 2)
    for line in harmless(text).splitlines():
        print(
            *textwrap.wrap(
                line,
                max(terminal_width(), 2 * MIN_TEXT),
                initial_indent=first,
                subsequent_indent=later,
                break_long_words=False,
                break_on_hyphens=False,
            ),
            sep="\n",
        )


def shortened_amount(amount: str, digits: int) -> str:
    """Return a decimal number cut to `digits` significant digits (… for the rest); other text unchanged.

    At least two decimals stay, and whole numbers up to nine digits. A longer one keeps its size as an exponent:
    `1.157…e77`.
    """
    match = _DECIMAL.fullmatch(amount)
    if match is None:
        return amount
    sign, integer, fraction = match[1], match[2], match[3] or ""
    number = integer.replace(",", "").lstrip("0")
    if len(number) > max(digits, 9):
        return f"{sign}{number[0]}.{number[1:digits]}{CUT}e{len(number) - 1}"
    zeros = len(fraction) - len(fraction.lstrip("0")) if not number else 0
    if zeros > digits:
        small = fraction[zeros:]
        return f"{sign}{small[0]}.{small[1:digits]}{CUT}e-{zeros + 1}" if small else amount
    kept_digits = max(zeros + digits - len(number), 2)
    return amount if len(fraction) <= kept_digits else f"{sign}{integer}.{fraction[:kept_digits]}{CUT}"


def shortened_ids(text: str, width: int = 0) -> str:
    """Return a text with its addresses and hashes shortened; unchanged if it fits into `width`."""
    return text if cell_len(text) <= width else _ID.sub(lambda match: f"{match[0][:6]}{CUT}{match[0][-4:]}", text)


def _line(cell: str) -> str:
    return ", ".join(harmless(cell).splitlines())


def _numbered(column: Column, cell: str, notes: dict[str, int]) -> str:
    return f"[{notes.setdefault(cell, len(notes) + 1)}]" if column.kind == "note" and cell else cell


def _fitted(columns: list[Column], exact: Rows, width: int) -> tuple[list[Column], Rows]:
    """Return the columns and cells of a table that fits into so many cells, as far as that is possible.

    Amounts are shortened first, then addresses, then columns are left out by rank, at last texts are cut.
    """
    rows = exact
    for digits in DIGITS:
        if _excess(columns, rows, width) > 0:
            rows = _replaced(columns, exact, "amount", partial(shortened_amount, digits=digits))
    if _excess(columns, rows, width) > 0:
        rows = _replaced(columns, rows, "text", shortened_ids)
    for column in sorted((column for column in columns if column.rank), key=lambda column: -column.rank):
        if _excess(columns, rows, width) > 0:
            at = columns.index(column)
            columns = columns[:at] + columns[at + 1 :]
            rows = [row[:at] + row[at + 1 :] for row in rows]
    texts = [at for at, column in enumerate(columns) if column.kind == "text"]
    while (excess := _excess(columns, rows, width)) > 0:
        widths = _widths(columns, rows)
        min_widths = {at: max(MIN_TEXT, cell_len(columns[at].name)) for at in texts}
        wide = [at for at in texts if widths[at] > min_widths[at]]
        if not wide:
            break
        widest = max(wide, key=lambda at: widths[at])
        room = max(min_widths[widest], widths[widest] - excess)
        rows = [[_cut(cell, room) if at == widest else cell for at, cell in enumerate(row)] for row in rows]
    return columns, rows


def _replaced(columns: Sequence[Column], rows: Rows, kind: Kind, change: Callable[[str], str]) -> Rows:
    """Return the rows with the cells of one kind of column changed."""
    return [
        [change(cell) if column.kind == kind else cell for column, cell in zip(columns, row, strict=True)]
        for row in rows
    ]


def _widths(columns: Sequence[Column], rows: Rows) -> list[int]:
    return [max([cell_len(column.name), *(cell_len(row[at]) for row in rows)]) for at, column in enumerate(columns)]


def _excess(columns: Sequence[Column], rows: Rows, width: int) -> int:
    """Return how many cells a row is wider than `width`."""
    return sum(_widths(columns, rows)) + len(GAP) * (len(columns) - 1) - width


def _cut(text: str, room: int) -> str:
    return text if cell_len(text) <= room else set_cell_size(text, room - 1).rstrip() + CUT


def _lines(columns: Sequence[Column], rows: Rows) -> list[str]:
    """Return the names of the columns, a rule, and a line for each row."""
    widths = _widths(columns, rows)
    names = [column.name for column in columns]
    return [_row(columns, widths, names), GAP.join("─" * width for width in widths)] + [
        _row(columns, widths, row) for row in rows
    ]


def _row(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str]) -> str:
    """Return a row as one line: numbers to the right, texts to the left, as wide as the columns."""
    parts = []
    for column, width, cell in zip(columns, widths, cells, strict=True):
        blanks = " " * (width - cell_len(cell))
        parts.append(blanks + cell if column.kind in ("amount", "number") else cell + blanks)
    return GAP.join(parts).rstrip()


def _show_remarks(columns: Sequence[Column], visible: Sequence[Column], exact: Rows, cells: Rows) -> None:
    """Print what was shortened or left out, if anything was."""
    positions = [columns.index(column) for column in visible]
    is_shortened = any([row[at] for at in positions] != cut for row, cut in zip(exact, cells, strict=True))
    remarks = [f"{CUT} stands for what is shortened"] if is_shortened else []
    if hidden := [column.name for column in columns if column not in visible]:
        remarks.append(f"without the columns: {', '.join(hidden)}")
    if remarks:
        print_wrapped(f"{'; '.join(remarks)} (all of it is in --json)", indent=2)
