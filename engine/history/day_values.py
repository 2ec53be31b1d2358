"""Values of accounts by day: the sum over chains, unknown if one of them is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from chainfolio import amounts
from chainfolio.engine.history.past_days import ABSENT
from chainfolio.engine.history.snapshot_store import DaySnapshot
from chainfolio.portfolio.document import rounded

if TYPE_CHECKING:
    import polars as pl

NO_CHAIN: Final = "no chain had begun"
COLUMNS: Final = ("day", "address", "value", "completeness", "reason", "blocks")
USD_PLACES: Final = 12


@dataclass(frozen=True, slots=True)
class DayValue:
    """The value of one account on one day.

    `value` is None if it is unknown, and `reason` says why; `parts` are the snapshots of its chains.
    """

    account: str
    day: date
    value: Decimal | None
    completeness: str
    reason: str
    parts: tuple[DaySnapshot, ...]

    @property
    def row(self) -> list[str | None]:
        """The cells of `COLUMNS`."""
        blocks = " ".join(f"{part.chain}:{part.block.height}" for part in self.parts if part.block.hash)
        value = None if self.value is None else amounts.text(self.value)
        return [str(self.day), self.account, value, self.completeness, self.reason, blocks]


@dataclass(frozen=True, slots=True)
class DayValues:
    """A sequence with a value for each account and day, in this order."""

    values: tuple[DayValue, ...]

    def __iter__(self) -> Iterator[DayValue]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def to_polars(self) -> pl.DataFrame:
        """Return one row per value: `value` is exact text, `value_usd` is rounded to 12 places for computing."""
        return frame(self.values)


def frame(values: Sequence[DayValue]) -> pl.DataFrame:
    """Return the values as a table, see `DayValues.to_polars`."""
    import polars as pl

    table = pl.DataFrame([each.row for each in values], dict.fromkeys(COLUMNS, pl.String), orient="row")
    usd = [None if each.value is None else rounded(Fraction(each.value), USD_PLACES) for each in values]
    return table.with_columns(
        pl.col("day").str.to_date(), pl.Series("value_usd", usd, dtype=pl.Decimal(38, USD_PLACES))
    )


def day_values(accounts: Sequence[str], days: Sequence[date], snapshots: Iterable[DaySnapshot]) -> list[DayValue]:
    """Return a value for each account and day, in this order, from the snapshots of its chains.

    A pair without a snapshot is ABSENT. Every snapshot must be of one of the accounts and days (else KeyError).
    """
    parts: dict[tuple[str, date], list[DaySnapshot]] = {(each, day): [] for each in accounts for day in days}
    for snapshot in snapshots:
        parts[snapshot.account, snapshot.day].append(snapshot)
    return [_value(account, day, sorted(each, key=_chain)) for (account, day), each in parts.items()]


def total(values: Iterable[DayValue]) -> list[tuple[date, Decimal | None]]:
    """Return the sum of all accounts by day, sorted; None if the value of one account is unknown.

    A day has the accounts that have a value for it; others do not count.
    """
    by_day: dict[date, list[Decimal | None]] = {}
    for each in values:
        by_day.setdefault(each.day, []).append(each.value)
    return [(day, _sum(day_values_usd)) for day, day_values_usd in sorted(by_day.items())]


def _value(account: str, day: date, parts: Sequence[DaySnapshot]) -> DayValue:
    """Return the value over the chains that had begun: unknown if one is; ABSENT if none had begun."""
    snapshots = [each for each in parts if each.completeness != ABSENT]
    if not snapshots:
        return DayValue(account, day, None, ABSENT, NO_CHAIN, tuple(parts))
    value = _sum([None if each.value is None else Decimal(each.value) for each in snapshots])
    worst = next((each.completeness for each in snapshots if each.value is None), "")
    partial = any(each.completeness != "complete" for each in snapshots)
    reason = "; ".join(f"{each.chain}: {each.reason}" for each in snapshots if each.reason)
    return DayValue(account, day, value, worst or ("partial" if partial else "complete"), reason, tuple(parts))


def _sum(values: Sequence[Decimal | None]) -> Decimal | None:
    numbers = [each for each in values if each is not None]
    return amounts.total(numbers) if len(numbers) == len(values) else None


def _chain(snapshot: DaySnapshot) -> str:
    return snapshot.chain
