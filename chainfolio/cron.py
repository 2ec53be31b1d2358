"""Cron expressions: five fields as in crontab(5), or six with the seconds first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
DAYS_OF_MONTH: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# A field's name, its smallest and its largest value. 7 is Sunday too.
FIELDS: Final = (
    ("second", 0, 59),
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day", 1, 31),
    ("month", 1, 12),
    ("day of the week", 0, 7),
)
NAMES: Final[Mapping[str, Mapping[str, int]]] = {
    "month": {name: number for number, name in enumerate(MONTHS, 1)},
    "day of the week": {name: number for number, name in enumerate(WEEKDAYS)},
}
MAX_TEXT: Final = 200
PART = re.compile(r"(\*|[a-z0-9]+)(?:-([a-z0-9]+))?(?:/([0-9]{1,4}))?\Z")


class CronError(ValueError):
    """A text is no cron expression, or one that never fires."""


@dataclass(frozen=True, slots=True)
class Cron:
    """The values of each field at which an expression fires, in order; weekdays begin with Sunday, as 0."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]


def parse_cron(text: str) -> Cron:
    """Parse a cron expression of five fields, or of six with the second first.

    Raises:
        CronError: The text cannot be parsed, never fires, or restricts both the day of the month and that of the week,
            which crontab(5) joins by "or" and other schedulers by "and".
    """
    fields = text.lower().split() if len(text) <= MAX_TEXT else []
    if len(fields) not in (5, 6):
        raise CronError("it has five fields: minute, hour, day, month, day of the week; or six, the second first")
    fields = fields if len(fields) == 6 else ["0", *fields]
    *times, weekdays = (_field(text, *of) for text, of in zip(fields, FIELDS, strict=True))
    seconds, minutes, hours, days, months = times
    cron = Cron(seconds, minutes, hours, days, months, tuple(sorted({each % 7 for each in weekdays})))
    if len(cron.days) < 31 and len(cron.weekdays) < 7:
        raise CronError("it restricts the day of the month and the day of the week: restrict one of them")
    if cron.days[0] > max(DAYS_OF_MONTH[month - 1] for month in cron.months):
        raise CronError("it never fires: none of its months has such a day")
    return cron


def _field(text: str, name: str, low: int, high: int) -> tuple[int, ...]:
    """Return the values of one field in order. Raises CronError."""
    values: set[int] = set()
    for part in text.split(","):
        values.update(_part(part, name, low, high))
    return tuple(sorted(values))


def _part(part: str, name: str, low: int, high: int) -> Sequence[int]:
    """Return the values of a value, range or step, in order. Raises CronError.

    A value with a step, as `5/10`, goes on to the highest one.
    """
    match = PART.match(part)
    if match is None or (match[1] == "*" and match[2]):
        raise CronError(f"its {name} has `{part}`, which is no value, range or step")
    step = int(match[3] or 1)
    if not 1 <= step <= high:
        raise CronError(f"its {name} has a step of {step}: 1 to {high}")
    if match[1] == "*":
        return range(low, (6 if high == 7 else high) + 1, step)
    first = _value(match[1], name, low, high)
    last = _value(match[2], name, low, high) if match[2] else (high if match[3] else first)
    if first > last:
        raise CronError(f"its {name} has `{part}`, a range that ends before it begins")
    return range(first, last + 1, step)


def _value(text: str, name: str, low: int, high: int) -> int:
    """Return a number or the number of a name in a range; CronError for others."""
    value = NAMES.get(name, {}).get(text)
    if value is None and text.isdecimal() and len(text) <= 2:
        value = int(text)
    if value is None or not low <= value <= high:
        raise CronError(f"its {name} has `{text}`: {low} to {high}")
    return value
