"""The rules of the United Kingdom for shares and tokens (TCGA 1992 s104-106A; HMRC CRYPTO22200): what is disposed of on
a day came first from what was acquired on that day, then from what is acquired in the 30 days after it, then from the
pool of all else at its average cost."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from portfolio.pnl.entries import ACQUIRED, ARRIVED, DISPOSED, Entry
from portfolio.pnl.gains import Book, Gain, Gains, acquired, disposed, income, unasked
from portfolio.pnl.lots import POOL, AveragedLots, Lot

SAME_DAY: Final = "same day"
THIRTY_DAYS: Final = "30 days"
DAYS: Final = 30
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Day:
    """One day of one asset: all acquisitions count as one, and so do all disposals."""

    number: int
    came: AveragedLots
    open: int = 0  # what came and is not matched yet
    last_us: int = 0
    transactions: dict[str, None] = field(default_factory=dict)
    left: list[Entry] = field(default_factory=list)
    unmatched: int = 0
    unasked: int = 0  # what came so, less what was said to have left of it
    matched: list[tuple[Lot, str]] = field(default_factory=list)

    def match(self, source: Day, rule: str) -> None:
        """Match disposals of this day with acquisitions of a day."""
        if not source.open:
            return
        for lot in source.came.take(self.unmatched):
            source.open -= lot.quantity
            lot.time_us, lot.transaction = source.last_us, " ".join(source.transactions)
            self.matched.append((lot, rule))
            self.unmatched -= lot.quantity


def by_uk_rules(entries: Iterable[Entry], zone: tzinfo, unit: int) -> Gains:
    """The gains by these rules. Days begin where `zone` says; costs are rounded up to `unit`."""
    assets: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.kind != "move":
            assets.setdefault(entry.asset, []).append(entry)
    found = Gains()
    for asset, own in sorted(assets.items()):
        found.gains += (income(entry) for entry in own if entry.kind == "income")
        days = _days(own, zone, unit)
        pool, unasked_left = _match(days, unit)
        found.gains += (gain for day in days for gain in _gains(day))
        found.held.append(Book(pool, sum(day.unmatched for day in days), unasked_left).held(asset, ""))
    found.gains.sort(key=lambda gain: (gain.time_us, gain.transaction))
    return found


def _days(entries: Iterable[Entry], zone: tzinfo, unit: int) -> list[Day]:
    """The days of one asset on which something happened, in their order. What others say that left is no more than is
    there, and what came unasked goes first."""
    days: dict[int, Day] = {}
    there = stock = 0
    for entry in entries:
        quantity, first = entry.quantity, 0
        if entry.kind == "taken":
            quantity = min(quantity, there)
            first = min(quantity, stock)
        there = there + quantity if entry.kind in ARRIVED else max(there - quantity, 0)
        stock = min(stock + quantity if entry.kind == "unasked" else stock - first, there)
        number = (EPOCH + timedelta(microseconds=entry.time_us)).astimezone(zone).toordinal()
        day = days.get(number)
        if day is None:
            day = days[number] = Day(number, AveragedLots(unit))
        if entry.kind in ACQUIRED:
            day.came.add(acquired(entry))
            day.open += entry.quantity
            day.last_us, day.transactions[entry.transaction] = entry.time_us, None
        elif entry.kind == "unasked":
            day.unasked += quantity
        elif quantity:
            day.unasked -= first
            day.left.append(entry._replace(quantity=quantity - first))
            day.unmatched += quantity - first
    return list(days.values())


def _match(days: Sequence[Day], unit: int) -> tuple[AveragedLots, int]:
    """Match all days of an asset; the pool that is left, and how much of what came unasked, which goes last."""
    for day in days:
        day.match(day, SAME_DAY)
    for place, day in enumerate(days):
        later = place + 1
        while day.unmatched and later < len(days) and days[later].number <= day.number + DAYS:
            day.match(days[later], THIRTY_DAYS)
            later += 1
    pool, stock = AveragedLots(unit), 0
    for day in days:
        for lot in day.came.held():
            pool.add(lot)
        for lot in pool.take(day.unmatched):
            day.matched.append((lot, POOL))
            day.unmatched -= lot.quantity
        stock += day.unasked
        if last := min(day.unmatched, stock):
            day.matched.append((unasked(last), ""))
            day.unmatched -= last
            stock -= last
    return pool, stock


def _gains(day: Day) -> Iterator[Gain]:
    """The disposals of a day, one after another, with the lots that were matched with all of them."""
    queue = deque(day.matched)
    for entry in day.left:
        pieces = list(_pieces(queue, entry.quantity))
        if entry.kind in DISPOSED:
            yield from disposed(entry, pieces)


def _pieces(queue: deque[tuple[Lot, str]], quantity: int) -> Iterator[tuple[Lot, str]]:
    while quantity and queue:
        lot, rule = queue[0]
        if lot.quantity > quantity:
            yield lot.split(quantity), rule
            return
        queue.popleft()
        quantity -= lot.quantity
        yield lot, rule
