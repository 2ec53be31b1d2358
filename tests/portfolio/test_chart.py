"""The chart in the terminal draws known values, leaves gaps for unknown ones, and stays in its frame."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from chainfolio.portfolio.chart import Point, chart, gaps

FIRST = date(2024, 2, 27)


def points(*values: int | None) -> list[Point]:
    return [(FIRST + timedelta(days=at), None if value is None else Decimal(value)) for at, value in enumerate(values)]


def test_a_rise_is_drawn_from_the_bottom_left_to_the_top_right() -> None:
    lines = chart(points(0, 1, 2, 3), 24, 8, braille=False)
    drawn = [(row, column) for row, line in enumerate(lines) for column, char in enumerate(line) if char == "*"]
    assert [line.split(" ")[0] for line in lines if "┤" in line] == ["3.00", "2.25", "1.50", "0.75", "0.00"]
    assert (drawn[0][0], drawn[-1][0]) == (0, 5)
    assert max(column for row, column in drawn if row == 0) == 23
    assert min(column for row, column in drawn if row == 5) == lines[0].index("┤") + 1
    assert lines[-1].split() == ["2024-02-27"]


def test_a_value_that_is_not_known_is_a_gap_between_two_lines() -> None:
    complete, broken = (chart(points(5, 5, middle, middle, 5, 5), 40, 8, braille=False) for middle in (5, None))
    (line,) = [each for each in complete if "*" in each]
    (row,) = [each for each in broken if "*" in each]
    assert "* *" not in line
    first, _, last = row.partition(" " * 10)
    assert "*" in first
    assert "*" in last
    assert gaps(points(5, 5, None, None, 5, 5)) == [(FIRST + timedelta(days=2), FIRST + timedelta(days=3))]


def test_runs_of_unknown_days_are_told_apart() -> None:
    runs = gaps(points(None, 1, None, None, 0, None))
    days = [(first.toordinal() - FIRST.toordinal(), last.toordinal() - FIRST.toordinal()) for first, last in runs]
    assert days == [(0, 0), (2, 3), (5, 5)]


def test_nothing_known_is_no_chart() -> None:
    assert chart(points(None, None), 80, 20) == []
    assert chart([], 80, 20) == []


@given(
    st.lists(st.one_of(st.none(), st.integers(-(10**40), 10**40)), min_size=1, max_size=400),
    st.integers(30, 200),
    st.integers(8, 50),
    st.booleans(),
)
def test_every_chart_fits_and_has_its_first_and_last_day(
    values: list[int | None], width: int, height: int, braille: bool
) -> None:
    given_points = points(*values)
    lines = chart(given_points, width, height, braille=braille)
    if all(value is None for value in values):
        assert lines == []
        return
    assert len(lines) == height
    room = max(width, max(line.find("┤") for line in lines) + 11)
    assert max(map(len, lines)) <= room
    assert str(FIRST) in lines[-1]
    drawn = sum(char == "*" or "⠀" < char <= "⣿" for line in lines for char in line)
    assert drawn > 0


WHOLE: dict[str, tuple[list[Point], int, int]] = {
    "rise": (points(0, 1, 2, 3), 24, 8),
    "gap": (points(5, -5, None, 5, 100_000), 60, 10),
    "flat": (points(7), 40, 7),
    "flat below zero": (points(-70, -70), 40, 7),
    "zero": (points(0, None), 31, 7),
    "thousands": (points(1_234_567, 99_999, 100_000, 5), 90, 9),
    "narrow": (points(1, 2), 5, 3),
    "long": (points(*(number**2 for number in range(100))), 80, 12),
    "cents": ([(FIRST, Decimal("0.004")), (FIRST + timedelta(days=400), Decimal("-99999.995"))], 50, 8),
}


def test_charts_are_as_recorded_to_the_last_dot() -> None:
    drawn = [
        f"{name} {braille}\n" + "\n".join(chart(values, width, height, braille=braille))
        for name, (values, width, height) in WHOLE.items()
        for braille in (True, False)
    ]
    assert "\n\n".join(drawn) + "\n" == (Path(__file__).parent / "charts.txt").read_text(encoding="utf-8")
