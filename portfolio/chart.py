"""Text charts of value series: lines of braille dots between known days.

An unknown value is a gap, never a zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Final

Point = tuple[date, Decimal | None]
DOTS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille character, by row and column
BLANK: Final = 0x2800
PLAIN: Final = "*"
LABELS: Final = 5
DAY: Final = 10  # characters of a date


def chart(points: Sequence[Point], width: int, height: int, *, braille: bool = True) -> list[str]:
    """Return the lines of a chart of `width` by `height` characters, axes included.

    Empty if no value is known. Without `braille` a dot is `*`. The chart is larger if less than DAY columns or LABELS
    rows would be left for the dots.
    """
    values = [value for _, value in points if value is not None]
    if not values:
        return []
    low, high = _limits(values)
    labels = [_label(low + (high - low) * i / (LABELS - 1)) for i in range(LABELS)]
    margin = max(map(len, labels)) + 2
    columns, rows = max(DAY, width - margin), max(LABELS, height - 2)
    canvas = _Canvas(columns, rows)
    for first, last in _lines(points, low, high, 2 * columns, 4 * rows):
        canvas.draw(first, last)
    rows_of_dots = canvas.lines(braille=braille)
    at_row = {(rows - 1) * (LABELS - 1 - i) // (LABELS - 1): label for i, label in enumerate(labels)}
    drawn = [
        f"{at_row.get(row, ''):>{margin - 2}} {'┤' if row in at_row else '│'}{rows_of_dots[row]}" for row in range(rows)
    ]
    return [*drawn, f"{'':>{margin - 2}} └{'─' * columns}", " " * margin + _days(points, columns)]


def gaps(points: Sequence[Point]) -> list[tuple[date, date]]:
    """Return the runs of consecutive points without a value, each as its first and last day."""
    runs: list[tuple[date, date]] = []
    last_value: Decimal | None = Decimal(0)
    for day, value in points:
        if value is None:
            runs.append((runs.pop()[0] if last_value is None else day, day))
        last_value = value
    return runs


def _limits(values: Sequence[Decimal]) -> tuple[Fraction, Fraction]:
    """Return the lowest and the highest value; around equal ones there is room on both sides."""
    low, high = Fraction(min(values)), Fraction(max(values))
    if low == high:  # a flat line lies in the middle
        room = abs(low) / 10 or Fraction(1)
        return low - room, high + room
    return low, high


def _label(value: Fraction) -> str:
    """Return a value as people read it on an axis: with two decimals below 100,000, else whole."""
    hundredths = round(value * 100)
    sign, hundredths_abs = "-" if hundredths < 0 else "", abs(hundredths)
    return (
        f"{sign}{hundredths_abs // 100:,}.{hundredths_abs % 100:02}"
        if hundredths_abs < 10_000_000
        else f"{sign}{round(abs(value)):,}"
    )


def _days(points: Sequence[Point], columns: int) -> str:
    """Return the line below the axis: the first and the last day, and days between them if there is room.

    Only the first day is shown if there is no room for two. Text ends without spaces.
    """
    first, last = points[0][0], points[-1][0]
    has_room = first != last and columns > 2 * DAY
    count = max(2, min(len(points), columns // 16)) if has_room else 1
    text = [" "] * columns
    for i in range(count):
        day = date.fromordinal(first.toordinal() + (last - first).days * i // max(1, count - 1))
        begin = (columns - DAY) * i // max(1, count - 1)
        text[begin : begin + DAY] = str(day)
    return "".join(text).rstrip()


_Dot = tuple[int, int]


def _lines(
    points: Sequence[Point], low: Fraction, high: Fraction, columns: int, rows: int
) -> Iterator[tuple[_Dot, _Dot]]:
    """Yield the strokes of the chart, in dots from the top left: between neighbouring known points.

    `columns` and `rows` are in dots, `high` is above `low`, and there is at least one point. The first known point
    after a gap is a stroke of one dot.
    """
    first = points[0][0].toordinal()
    days = max(1, points[-1][0].toordinal() - first)
    before: _Dot | None = None
    for day, value in points:
        if value is None:
            before = None
            continue
        x = (columns - 1) * (day.toordinal() - first) // days
        y = (rows - 1) - round((Fraction(value) - low) / (high - low) * (rows - 1))
        yield before or (x, y), (x, y)
        before = x, y


class _Canvas:
    """Dots, two across and four down in a character."""

    def __init__(self, columns: int, rows: int) -> None:
        self._cells = [[0] * columns for _ in range(rows)]

    def draw(self, first: _Dot, last: _Dot) -> None:
        """Draw a straight line between two dots, both ends included."""
        steps = max(abs(last[0] - first[0]), abs(last[1] - first[1]), 1)
        for step in range(steps + 1):
            x, y = (start + (end - start) * step // steps for start, end in zip(first, last, strict=True))
            self._cells[y // 4][x // 2] |= DOTS[y % 4][x % 2]

    def lines(self, *, braille: bool) -> list[str]:
        """Return the rows of the canvas as text, without spaces at their ends."""
        marks = [[chr(BLANK + dots) if braille else PLAIN if dots else " " for dots in row] for row in self._cells]
        return ["".join(row).replace(chr(BLANK), " ").rstrip() for row in marks]
