"""The `date` parameter: a calendar day of UTC, written in exactly one way."""

from __future__ import annotations

import datetime
import re
from datetime import UTC
from typing import Annotated, Any, Final, Protocol

import msgspec

from chainfolio.api.context import Context
from chainfolio.api.errors import FieldError, invalid
from chainfolio.api.fields import Reader, Refused, quoted
from chainfolio.settings import Settings

FORMAT: Final = "Invalid date format. Use YYYY-MM-DD"
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z", re.ASCII)


def read_day(values: list[str], settings: Settings) -> datetime.date:
    """The day in the text; Refused where it is none."""
    if len(values) > 1:
        raise Refused("is given more than once")
    (text,) = values
    try:
        if _DAY.match(text):
            return datetime.date.fromisoformat(text)
    except ValueError:  # a day that no calendar has
        pass
    raise Refused(f"cannot be {quoted(text)}: {FORMAT}")


def _schema(settings: Settings) -> dict[str, Any]:
    return {"type": "string", "format": "date", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}


Day = Annotated[
    datetime.date,
    Reader(read_day, _schema),
    msgspec.Meta(
        description="A day, `YYYY-MM-DD`, today at the latest: the state at 00:00 UTC of it.", examples=["2026-03-01"]
    ),
]


class HasDay(Protocol):
    """A query that asks for a day."""

    @property
    def date(self) -> datetime.date:
        """The day."""


class HasSpan(Protocol):
    """A query that asks for the days from one to another."""

    @property
    def start_date(self) -> datetime.date:
        """The first day."""

    @property
    def end_date(self) -> datetime.date:
        """The last day."""


def check_begun(request: Context, query: HasDay) -> None:
    """400 for a day that has not begun."""
    _check_begun(request, "date", query.date)


def check_span(request: Context, query: HasSpan, max_days: int) -> None:
    """400 for a span that ends before it begins, has more days than `most`, or ends on a day that has not begun."""
    _check_begun(request, "endDate", query.end_date)
    days = (query.end_date - query.start_date).days + 1
    if days < 1:
        raise invalid("query", [FieldError("`startDate` is after `endDate`", ["startDate"])])
    if days > max_days:
        reason = f"`startDate` to `endDate` are {days:,} days: at most {max_days}"
        raise invalid("query", [FieldError(reason, ["startDate"])])


def _check_begun(request: Context, name: str, day: datetime.date) -> None:
    today = datetime.datetime.fromtimestamp(request.parts.environment.clock.now_us() // 1_000_000, UTC).date()
    if day > today:
        reason = f"`{name}` cannot be {day}: it is in the future, today is {today} (format YYYY-MM-DD, UTC)"
        raise invalid("query", [FieldError(reason, [name])])
