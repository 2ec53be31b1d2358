"""Answers as Polars frames, without loss: a number is the text of the answer, null if it is not known.

A second column `<name>Decimal` is for computation: rounded to 18 places, and null if that exceeds 38 digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from chainfolio import amounts
from chainfolio.portfolio.numbers import UNKNOWN, rounded

if TYPE_CHECKING:
    import polars as pl

DECIMAL_PLACES: Final = 18


def frame(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Sequence[str] = (),
    times: Sequence[str] = (),
    counts: Sequence[str] = (),
    decimal_places: int = DECIMAL_PLACES,
) -> pl.DataFrame:
    """Return rows as a frame. `numbers` are decimals as text, `times` ISO 8601, `counts` integers.

    Other columns are text. `N/A` in `numbers` and an empty text in `times` become null. For each of `numbers` there is
    also a column `<name>Decimal`: rounded to `decimal_places`, and null for more than 38 digits.
    """
    import polars as pl

    columns_of_cells = list(zip(*rows, strict=True)) or [()] * len(columns)
    content: dict[str, Sequence[Any]] = dict(zip(columns, columns_of_cells, strict=True))
    content |= {name: [None if each == UNKNOWN else each for each in content[name]] for name in numbers}
    content |= {name: [datetime.fromisoformat(each) if each else None for each in content[name]] for name in times}
    content |= {name: [None if each is None else int(each) for each in content[name]] for name in counts}
    computable = {f"{name}Decimal": [_computable(each, decimal_places) for each in content[name]] for name in numbers}
    types: dict[str, pl.DataType | type[pl.DataType]] = {
        **dict.fromkeys(columns, pl.String),
        **dict.fromkeys(times, pl.Datetime("us", "UTC")),
        **dict.fromkeys(counts, pl.Int64),
        **dict.fromkeys(computable, pl.Decimal(38, decimal_places)),
    }
    return pl.DataFrame({**content, **computable}, types)


def _computable(number: str | None, decimal_places: int) -> Decimal | None:
    """Return a number rounded half to even; None if it is not known or exceeds 38 digits."""
    if number is None:
        return None
    number_rounded = rounded(Fraction(number), decimal_places)
    return number_rounded if abs(number_rounded) < amounts.EXACT.scaleb(Decimal(1), 38 - decimal_places) else None
