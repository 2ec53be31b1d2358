"""Series of values as a picture, PNG or SVG; needs the extra `plot`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chainfolio.errors import needs_extra

if TYPE_CHECKING:
    from chainfolio.portfolio.chart import Point

INCHES: Final = (10, 5)
TICKS: Final = 8  # at most, on the axis of days
WHOLE: Final = 20  # USD from the bottom to the top, from which on cents say nothing


def check() -> None:
    """Raise MissingDependency if matplotlib is not installed. --plot, CSV and Parquet do not need it."""
    with needs_extra("plot", "a picture"):
        import matplotlib  # noqa: F401 - whether it is there


def write(path: Path, series: Mapping[str, Sequence[Point]]) -> None:
    """Write a picture, as the path's ending says, with a line for each account over all requested days.

    A line is broken, and the day shaded, where a value is unknown. Equal series give equal bytes.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "chainfolio", "svg.fonttype": "none"}):
        figure = Figure(figsize=INCHES, layout="constrained")
        axes = figure.add_subplot()
        for number, (account, points) in enumerate(series.items()):
            _draw(axes, _short(account), points, f"C{number}")
        _shade(axes, series.values())
        _label(axes, sorted({day for points in series.values() for day, _ in points}))
        if all(value is None for points in series.values() for _, value in points):
            axes.set_yticks([])  # there is nothing that these numbers would be of
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {"Software": "chainfolio"}, dpi=120)


def _draw(axes: Any, name: str, points: Sequence[Point], colour: str) -> None:
    """Draw one line. A day between two unknown days is a dot."""
    # floats: where a line is drawn on paper, and nowhere else
    heights = [float("nan") if value is None else float(value) for _, value in points]
    axes.plot([day for day, _ in points], heights, color=colour, marker="." if len(points) < 60 else "", label=name)
    has_value = [False, *(value is not None for _, value in points), False]
    alone = [at for at in range(len(points)) if has_value[at + 1] and not has_value[at] and not has_value[at + 2]]
    axes.plot([points[at][0] for at in alone], [heights[at] for at in alone], color=colour, marker=".", linestyle="")


def _shade(axes: Any, series: Iterable[Sequence[Point]]) -> None:
    """Shade the days on which a value of any account is unknown."""
    unknown = {day for points in series for day, value in points if value is None}
    half_day = timedelta(hours=12)
    for number, (first, last) in enumerate(runs(sorted(unknown))):
        ends = (datetime.combine(day, time()) for day in (first, last))
        begin, end = (end_time + step for end_time, step in zip(ends, (-half_day, half_day), strict=True))
        axes.axvspan(begin, end, color="0.93", zorder=0, label="not known" if not number else None)


def runs(days: Sequence[date]) -> list[tuple[date, date]]:
    """Return the first and the last day of each run of consecutive days; `days` are sorted."""
    spans: list[tuple[date, date]] = []
    for day in days:
        if spans and day - spans[-1][1] == timedelta(days=1):
            spans[-1] = spans[-1][0], day
        else:
            spans.append((day, day))
    return spans


def _label(axes: Any, days: Sequence[date]) -> None:
    """Set the limits and ticks of the axes for some days, label the values as USD, and add a legend above.

    Args:
        axes: Matplotlib axes that show their lines already: the range of values chooses their number format.
        days: All days, in order; not empty.
    """
    room = timedelta(days=max(1.0, (days[-1] - days[0]).days / 50))
    axes.set_xlim(days[0] - room, days[-1] + room)
    ticks, form = marks(days)
    axes.set_xticks(ticks, [format(day, form) for day in ticks])
    low, high = axes.get_ylim()
    axes.yaxis.set_major_formatter("{x:,.0f}" if high - low >= WHOLE else "{x:,.2f}")
    axes.set_ylabel("USD")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, borderaxespad=0.2)


def marks(days: Sequence[date]) -> tuple[list[date], str]:
    """Return the labelled days of the axis and their format: first days of months if there are enough."""
    months = [day for day in days if day.day == 1]
    chosen, form = (months, "%Y-%m") if len(months) >= 3 else (days, "%Y-%m-%d")
    return list(chosen[:: -(-len(chosen) // TICKS)]), form


def _short(account: str) -> str:
    return account if len(account) <= 16 else f"{account[:8]}…{account[-6:]}"
