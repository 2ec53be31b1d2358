"""The rules of the United Kingdom for shares and tokens (TCGA 1992 s104-106A; HMRC CRYPTO22200).

A day's disposals are matched first with acquisitions of the same day, then with those of the 30 days after it, then
with the pool of all others at its average cost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from chainfolio.portfolio.pnl.entries import ACQUIRED, ARRIVED, DISPOSED, Entry
from chainfolio.portfolio.pnl.gains import Book, Gain, Gains, acquired_lot, disposal_gains, income_gain, unsolicited_lot
from chainfolio.portfolio.pnl.lots import POOL, AveragedLots, Lot

SAME_DAY: Final = "same day"
THIRTY_DAYS: Final = "30 days"
DAYS: Final = 30
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Day:
    """One day of one asset: all acquisitions count as one, and so do all disposals."""

    number: int
    acquisitions: AveragedLots
    open: int = 0  # acquired and not matched yet
    last_us: int = 0
    transactions: dict[str, None] = field(default_factory=dict)
    disposals: list[Entry] = field(default_factory=list)
    unmatched: int = 0
    unasked: int = 0  # unsolicited units that came, less those that others took away
    matched: list[tuple[Lot, str]] = field(default_factory=list)

    def match(self, source: Day, rule: str) -> None:
        """Match disposals of this day with acquisitions of a day."""
        if not source.open:
            return
        for lot in source.acquisitions.take(self.unmatched):
            source.open -= lot.quantity
            lot.time_us, lot.transaction = source.last_us, " ".join(source.transactions)
            self.matched.append((lot, rule))
            self.unmatched -= lot.quantity


def by_uk_rules(entries: Iterable[Entry], zone: tzinfo, unit: int) -> Gains:
    """Return the gains by these rules. Days begin by `zone`; costs are rounded up to `unit`."""
    assets: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.kind != "move":
            assets.setdefault(entry.asset, []).append(entry)
    result = Gains()
    for asset, asset_entries in sorted(assets.items()):
        result.gains += (income_gain(entry) for entry in asset_entries if entry.kind == "income")
        days = _days(asset_entries, zone, unit)
        pool, unasked_left = _match(days, unit)
        result.gains += (gain for day in days for gain in _gains(day))
        result.remaining.append(Book(pool, sum(day.unmatched for day in days), unasked_left).remaining(asset, ""))
    result.gains.sort(key=lambda gain: (gain.time_us, gain.transaction))
    return result


def _days(entries: Iterable[Entry], zone: tzinfo, unit: int) -> list[Day]:
    """Return the days of one asset with entries, in the order of `entries`, which are sorted by time.

    The quantity of a `taken` entry is limited to what is held, and takes unsolicited units first. Other disposals keep
    theirs.
    """
    days: dict[int, Day] = {}
    balance = unsolicited = 0
    for entry in entries:
        quantity, from_unsolicited = entry.quantity, 0
        if entry.kind == "taken":
            quantity = min(quantity, balance)
            from_unsolicited = min(quantity, unsolicited)
        balance = balance + quantity if entry.kind in ARRIVED else max(balance - quantity, 0)
        unsolicited = min(
            unsolicited + quantity if entry.kind == "unasked" else unsolicited - from_unsolicited, balance
        )
        number = (EPOCH + timedelta(microseconds=entry.time_us)).astimezone(zone).toordinal()
        day = days.get(number)
        if day is None:
            day = days[number] = Day(number, AveragedLots(unit))
        if entry.kind in ACQUIRED:
            day.acquisitions.add(acquired_lot(entry))
            day.open += entry.quantity
            day.last_us, day.transactions[entry.transaction] = entry.time_us, None
        elif entry.kind == "unasked":
            day.unasked += quantity
        elif quantity:
            day.unasked -= from_unsolicited
            day.disposals.append(entry._replace(quantity=quantity - from_unsolicited))
            day.unmatched += quantity - from_unsolicited
    return list(days.values())


def _match(days: Sequence[Day], unit: int) -> tuple[AveragedLots, int]:
    """Match all days of an asset; return the remaining pool and unsolicited units. The latter go last."""
    for day in days:
        day.match(day, SAME_DAY)
    for i, day in enumerate(days):
        later = i + 1
        while day.unmatched and later < len(days) and days[later].number <= day.number + DAYS:
            day.match(days[later], THIRTY_DAYS)
            later += 1
    pool, unsolicited = AveragedLots(unit), 0
    for day in days:
        for lot in day.acquisitions.remaining():
            pool.add(lot)
        for lot in pool.take(day.unmatched):
            day.matched.append((lot, POOL))
            day.unmatched -= lot.quantity
        unsolicited += day.unasked
        if from_unsolicited := min(day.unmatched, unsolicited):
            day.matched.append((unsolicited_lot(from_unsolicited), ""))
            day.unmatched -= from_unsolicited
            unsolicited -= from_unsolicited
    return pool, unsolicited


def _gains(day: Day) -> Iterator[Gain]:
    """Yield the gains of a day's disposals in order, with the lots matched with them."""
    queue = deque(day.matched)
    for entry in day.disposals:
        pieces = list(_pieces(queue, entry.quantity))
        if entry.kind in DISPOSED:
            yield from disposal_gains(entry, pieces)


def _pieces(queue: deque[tuple[Lot, str]], quantity: int) -> Iterator[tuple[Lot, str]]:
    while quantity and queue:
        lot, rule = queue[0]
        if lot.quantity > quantity:
            yield lot.split(quantity), rule
            return
        queue.popleft()
        quantity -= lot.quantity
        yield lot, rule
