"""What accounts were worth day by day: the sum of what each chain says, and nothing where one of them cannot say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Final

from chainfolio import amounts
from engine.history import ABSENT
from engine.snapshot_store import DaySnapshot

NO_CHAIN: Final = "no chain had begun"


@dataclass(frozen=True, slots=True)
class DayValue:
    """One account on one day. `value` is None where it is not known, and `reason` says why; `parts` are its chains."""

    account: str
    day: date
    value: Decimal | None
    completeness: str
    reason: str
    parts: tuple[DaySnapshot, ...]


def day_values(accounts: Sequence[str], days: Sequence[date], found: Iterable[DaySnapshot]) -> list[DayValue]:
    """A value for each account and day, in this order, from the snapshots of its chains."""
    parts: dict[tuple[str, date], list[DaySnapshot]] = {(each, day): [] for each in accounts for day in days}
    for snapshot in found:
        parts[snapshot.account, snapshot.day].append(snapshot)
    return [_value(account, day, sorted(each, key=_chain)) for (account, day), each in parts.items()]


def total(values: Iterable[DayValue]) -> list[tuple[date, Decimal | None]]:
    """The sum of all accounts by day; unknown where that of one is."""
    by_day: dict[date, list[Decimal | None]] = {}
    for each in values:
        by_day.setdefault(each.day, []).append(each.value)
    return [(day, _sum(some)) for day, some in sorted(by_day.items())]


def _value(account: str, day: date, parts: Sequence[DaySnapshot]) -> DayValue:
    there = [each for each in parts if each.completeness != ABSENT]
    if not there:
        return DayValue(account, day, None, ABSENT, NO_CHAIN, tuple(parts))
    value = _sum([None if each.value is None else Decimal(each.value) for each in there])
    worst = next((each.completeness for each in there if each.value is None), "")
    partial = any(each.completeness != "complete" for each in there)
    reason = "; ".join(f"{each.chain}: {each.reason}" for each in there if each.reason)
    return DayValue(account, day, value, worst or ("partial" if partial else "complete"), reason, tuple(parts))


def _sum(values: Sequence[Decimal | None]) -> Decimal | None:
    known = [each for each in values if each is not None]
    return amounts.total(known) if len(known) == len(values) else None


def _chain(snapshot: DaySnapshot) -> str:
    return snapshot.chain
