"""Which deposits in contracts that no file names are in the values of days: they are no flows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Final

from chainfolio.portfolio.metrics.changes import DayState, closed_assets, contains_deposits

if TYPE_CHECKING:
    from chainfolio.engine.history.account_days import AccountDays

NOT_COMPARED: Final = "it is not known which deposits are in the values: {}"
TOO_MANY: Final = "too many days would have to be compared with all transactions"
MAX_RECORDS: Final = 300_000  # of all comparisons of one request

State = tuple[DayState, Mapping[str, str]]
ReadState = Callable[[date], Awaitable[State]]


@dataclass(slots=True)
class ContainedDeposits:
    """Compares what protocols show on known days with what transactions put into them.

    A day is read when it is needed.

    Attributes:
        read_state: Returns an account as a day began, and the keys of assets that count as another one.
        ends: The first and the last known day.
        max_days: How many days are read at most.
        reason: Why it is not known which deposits are in the values; empty if it is.
    """

    read_state: ReadState | None
    ends: tuple[date, date]
    max_days: int = 0
    reason: str = ""
    _states: dict[date, State] = field(default_factory=dict)

    @classmethod
    def of(cls, days: AccountDays) -> ContainedDeposits:
        """Return the comparison of days; the first and the last one are always read."""
        max_days = max(2, MAX_RECORDS // max(1, len(days.records.transactions)))
        return cls(days.state, (min(days.values), max(days.values)), max_days)

    @classmethod
    def unknown(cls, reason: str) -> ContainedDeposits:
        """Return a comparison that could not be made."""
        return cls(None, (date.min, date.max), reason=NOT_COMPARED.format(reason))

    async def closed(self) -> frozenset[str] | None:
        """Return the assets that close on the first and the last day, with all keys; None if it is not known."""
        ends = await self._read(*self.ends)
        return None if ends is None else _with_aliases(closed_assets(ends[0][0], ends[1][0]), ends[1][1])

    async def assets(self, before: date, after: date) -> frozenset[str] | None:
        """Return closed assets whose deposits and withdrawals between two days are in the values of both.

        Returns:
            None if it is not known; then `reason` says why.
        """
        closed, states = await self.closed(), await self._read(before, after)
        if closed is None or states is None:
            return None
        (start, _), (end, aliases) = states
        keys = {aliases.get(key, key) for key in closed}
        return _with_aliases({key for key in keys if contains_deposits(key, start, end)}, aliases)

    async def _read(self, first: date, second: date) -> tuple[State, State] | None:
        """Return the states of two days, each read once; None without `read_state` or above `max_days` days.

        Above `max_days`, the reason is stored in `reason`. Errors of `read_state` are raised.
        """
        if self.read_state is None:
            return None
        for day in (first, second):
            if day not in self._states and len(self._states) >= self.max_days:
                self.reason = NOT_COMPARED.format(TOO_MANY)
                return None
            if day not in self._states:
                self._states[day] = await self.read_state(day)
        return self._states[first], self._states[second]


def _with_aliases(assets: Collection[str], aliases: Mapping[str, str]) -> frozenset[str]:
    """Return keys of assets, with those that count as one of them."""
    return frozenset({*assets, *(key for key, asset in aliases.items() if asset in assets)})
