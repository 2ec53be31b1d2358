"""Series of values as a picture, PNG or SVG; needs the extra `plot`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chainfolio.errors import BadRequest

if TYPE_CHECKING:
    from portfolio.chart import Point

REMEDY: Final = "pip install 'chainfolio[plot]'; the chart of --plot, CSV and Parquet need nothing"
INCHES: Final = (10, 5)


def check() -> None:
    """BadRequest where the library is not installed."""
    try:
        import matplotlib  # noqa: F401 - whether it is there
    except ImportError:
        raise BadRequest("output", "pictures need matplotlib, which is not installed", remedy=REMEDY) from None


def write(path: Path, series: Mapping[str, Sequence[Point]]) -> None:
    """A picture with a line for each account, broken where a value is not known. Equal series give equal bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "chainfolio", "svg.fonttype": "none"}):
        figure = Figure(figsize=INCHES, layout="constrained")
        axes = figure.add_subplot()
        for account, points in series.items():
            # floats: where a line is drawn on paper, and nowhere else
            heights = [float("nan") if value is None else float(value) for _, value in points]
            days: Any = [day for day, _ in points]
            axes.plot(days, heights, marker="." if len(points) < 60 else "", label=_short(account))
        axes.set_ylabel("USD")
        axes.yaxis.set_major_formatter("{x:,.2f}")
        axes.grid(alpha=0.3)
        axes.legend()
        figure.autofmt_xdate()
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {"Software": "chainfolio"}, dpi=120)


def _short(account: str) -> str:
    return account if len(account) <= 16 else f"{account[:8]}…{account[-6:]}"
