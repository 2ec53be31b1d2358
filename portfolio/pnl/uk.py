"""The rules of the United Kingdom for shares and tokens (TCGA 1992 s104-106A; HMRC CRYPTO22200).

A day's disposals are matched first with acquisitions of the same day, then with those of the 30 days after it, then
with the pool of all others at its average cost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta, tzinfo
from itertools import groupby
from operator import itemgetter
from typing import Final

from chainfolio.portfolio.pnl.entries import ACQUIRED, ARRIVED, DISPOSED, EPOCH, Entry
from chainfolio.portfolio.pnl.gains import (
    SHORT,
    Book,
    Gain,
    Gains,
    Groups,
    acquired_lot,
    disposal_gains,
    income_gain,
    unsolicited_lot,
)
from chainfolio.portfolio.pnl.lots import POOL, AveragedLots, Lot

SAME_DAY: Final = "same day"
THIRTY_DAYS: Final = "30 days"
DAYS: Final = 30


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
    transfers: list[Entry] = field(default_factory=list)  # from and to other chains
    matched: list[tuple[Lot, str]] = field(default_factory=list)

    def match(self, source: Day, rule: str) -> None:
        """Match disposals of this day with acquisitions of the day `source` by a rule, as far as both last."""
        if not source.open:
            return
        for lot in source.acquisitions.take(self.unmatched):
            source.open -= lot.quantity
            lot.time_us, lot.transaction = source.last_us, " ".join(source.transactions)
            self.matched.append((lot, rule))
            self.unmatched -= lot.quantity


@dataclass(slots=True)
class AssetPool:
    """The pool of one asset, with its days.

    `unasked` units are unsolicited; `short` units left without a known origin.
    """

    lots: AveragedLots
    days: list[Day]
    unasked: int = 0
    short: int = 0

    def depart(self, entry: Entry) -> list[Lot]:
        """Take out what leaves for another chain; what the pool lacks has no known cost."""
        lots = list(self.lots.take(entry.quantity))
        if missing := entry.quantity - sum(lot.quantity for lot in lots):
            self.short += missing
            lots.append(Lot(missing, None, None, entry.time_us, entry.transaction, SHORT))
        return lots

    def dispose(self, day: Day) -> None:
        """Take out what a day disposed of and did not match; what the pool lacks adds to `short`."""
        for lot in self.lots.take(day.unmatched):
            day.matched.append((lot, POOL))
            day.unmatched -= lot.quantity
        self.unasked += day.unasked
        if from_unsolicited := min(day.unmatched, self.unasked):
            day.matched.append((unsolicited_lot(from_unsolicited), ""))
            day.unmatched -= from_unsolicited
            self.unasked -= from_unsolicited
        self.short += day.unmatched


def by_uk_rules(entries: Iterable[Entry], zone: tzinfo, unit: int) -> Gains:
    """Return the gains by share matching, income as gains, and the lots that remain of each asset.

    Moves inside a wallet are ignored, and assets that change chains share one pool. Days begin by `zone`; costs are
    rounded up to `unit`. Gains are sorted by time.
    """
    assets: dict[str, list[Entry]] = {}
    groups = Groups()
    for entry in entries:
        if entry.kind != "move":
            assets.setdefault(entry.asset, []).append(entry)
        if entry.kind in ("depart", "arrive"):
            groups.join(entry)
    result = Gains()
    for group in groups.of(assets):
        pools: dict[str, AssetPool] = {}
        for asset in group:
            result.gains += (income_gain(entry) for entry in assets[asset] if entry.kind == "income")
            pools[asset] = AssetPool(AveragedLots(unit), _days(assets[asset], zone, unit))
            _match(pools[asset].days)
        _pool(pools)
        for asset, pool in pools.items():
            result.gains += (gain for day in pool.days for gain in _gains(day))
            result.remaining.append(Book(pool.lots, pool.short, pool.unasked).remaining(asset, ""))
    result.remaining.sort(key=lambda lots: lots.asset)
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
        elif entry.kind in ("depart", "arrive"):
            day.transfers.append(entry)
        elif quantity:
            day.unasked -= from_unsolicited
            day.disposals.append(entry._replace(quantity=quantity - from_unsolicited))
            day.unmatched += quantity - from_unsolicited
    return list(days.values())


def _match(days: Sequence[Day]) -> None:
    """Match the days of an asset with acquisitions of the same day, then of the days after it."""
    for day in days:
        day.match(day, SAME_DAY)
    for i, day in enumerate(days):
        later = i + 1
        while day.unmatched and later < len(days) and days[later].number <= day.number + DAYS:
            day.match(days[later], THIRTY_DAYS)
            later += 1


def _pool(pools: Mapping[str, AssetPool]) -> None:
    """Take what is not matched out of the pools, day by day: unsolicited units go last.

    What leaves for another chain takes its part of a pool to another one.
    """
    departed: dict[str, list[Lot]] = {}
    days = sorted(
        ((day.number, asset, day) for asset, pool in pools.items() for day in pool.days), key=itemgetter(0, 1)
    )
    for _, group in groupby(days, key=itemgetter(0)):
        of_day = [(pools[asset], day) for _, asset, day in group]
        for pool, day in of_day:
            for lot in day.acquisitions.remaining():
                pool.lots.add(lot)
        for entry in sorted((each for _, day in of_day for each in day.transfers), key=lambda each: each.sort_key):
            pool = pools[entry.asset]
            if entry.kind == "depart":
                departed[entry.to] = pool.depart(entry)
            else:
                for lot in departed.pop(entry.to):
                    pool.lots.add(lot)
        for pool, day in of_day:
            pool.dispose(day)


def _gains(day: Day) -> Iterator[Gain]:
    """Yield the gains of a day's disposals in order, with the lots matched with them."""
    queue = deque(day.matched)
    for entry in day.disposals:
        pieces = list(_pieces(queue, entry.quantity))
        if entry.kind in DISPOSED:
            yield from disposal_gains(entry, pieces)


def _pieces(queue: deque[tuple[Lot, str]], quantity: int) -> Iterator[tuple[Lot, str]]:
    """Yield lots from the front of a queue up to a quantity, split if needed; fewer if the queue ends."""
    while quantity and queue:
        lot, rule = queue[0]
        if lot.quantity > quantity:
            yield lot.split(quantity), rule
            return
        queue.popleft()
        quantity -= lot.quantity
        yield lot, rule
