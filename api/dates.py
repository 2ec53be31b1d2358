"""The `date` parameter: a calendar day in UTC, written as YYYY-MM-DD."""

from __future__ import annotations

import datetime
import re
from datetime import UTC
from typing import Annotated, Final, Protocol

import msgspec

from chainfolio.api.context import Context
from chainfolio.api.errors import FieldError, invalid
from chainfolio.api.fields import InvalidParameter, JsonObject, Reader, quoted
from chainfolio.settings import Settings

FORMAT: Final = "Invalid date format. Use YYYY-MM-DD"
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z", re.ASCII)


def read_day(values: list[str], settings: Settings) -> datetime.date:
    """Return the day.

    Raises:
        InvalidParameter: The parameter is repeated, or not a day written as YYYY-MM-DD.
    """
    if len(values) > 1:
        raise InvalidParameter("is given more than once")
    (text,) = values
    try:
        if _DAY.match(text):
            return datetime.date.fromisoformat(text)
    except ValueError:  # not in the calendar
        pass
    raise InvalidParameter(f"cannot be {quoted(text)}: {FORMAT}")


def _schema(settings: Settings) -> JsonObject:
    return {"type": "string", "format": "date", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}


Day = Annotated[
    datetime.date,
    Reader(read_day, _schema),
    msgspec.Meta(
        description="A day, `YYYY-MM-DD`, not in the future. The state at 00:00 UTC of that day is returned.",
        examples=["2026-03-01"],
    ),
]


class HasDay(Protocol):
    """A query for one day."""

    @property
    def date(self) -> datetime.date:
        """The day."""


class HasSpan(Protocol):
    """A query for a range of days."""

    @property
    def start_date(self) -> datetime.date:
        """The first day."""

    @property
    def end_date(self) -> datetime.date:
        """The last day."""


def check_begun(request: Context, query: HasDay) -> None:
    """Raise a 400 Problem for a day in the future."""
    _check_begun(request, "date", query.date)


def check_span(request: Context, query: HasSpan, max_days: int) -> None:
    """Raise a 400 Problem for a span that is reversed, ends in the future or exceeds `max_days`."""
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
