"""The rules of Canada for identical properties: one average cost, and superficial losses.

All units that one person has of an asset cost their average (Income Tax Act, s. 47; CRA Guide T4037). A loss is
superficial if the same asset was acquired from 30 days before to 30 days after the disposal, and some of it is held at
the end of that period (s. 54). It is no loss (s. 40(2)(g)(i)), and is added to the cost of what was acquired
(s. 53(1)(f)). If the quantities differ, it is limited to the least of what was disposed of, acquired, and held at the
end (IT-456R, 12; CRA document 2005-0150811E5).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta, tzinfo
from itertools import accumulate
from typing import Final, NamedTuple

from chainfolio.portfolio.pnl.entries import ACQUIRED, DISPOSED, EPOCH, Entry, share
from chainfolio.portfolio.pnl.gains import (
    NO_PRICE,
    SHORT,
    Gain,
    Gains,
    Groups,
    RemainingLots,
    acquired_lot,
    disposal_gains,
    income_gain,
    unsolicited_lot,
)
from chainfolio.portfolio.pnl.lots import POOL, Lot

SUPERFICIAL: Final = "superficial loss"
PERHAPS_SUPERFICIAL: Final = "a loss without a known price may be superficial, and part of its cost"
DAYS: Final = 30  # before and after a disposal


@dataclass(slots=True)
class Units:
    """The units of one asset.

    `held` have a cost, `unasked` are unsolicited, and `short` left without a known origin.
    """

    held: int = 0
    unasked: int = 0
    short: int = 0


class Step(NamedTuple):
    """An entry with its quantity in parts: with a cost, unsolicited, of unknown origin."""

    entry: Entry
    units: int
    unasked: int = 0
    missing: int = 0


def by_canadian_rules(entries: Iterable[Entry], zone: tzinfo) -> Gains:
    """Return the gains by these rules, in the order of entries. Days begin by `zone`.

    Assets that moved between chains share a pool. Lots remain by asset.
    """
    assets: dict[str, list[tuple[int, Entry]]] = {}
    groups = Groups()
    for i, entry in enumerate(entries):
        assets.setdefault(entry.asset, []).append((i, entry))
        if entry.kind in ("depart", "arrive"):
            groups.join(entry)
    by_entry: list[tuple[int, list[Gain]]] = []
    result = Gains()
    for group in groups.of(assets):
        numbered = sorted((each for asset in group for each in assets.pop(asset)), key=lambda each: each[0])
        units = {asset: Units() for asset in group}
        steps = [_step(entry, units[entry.asset]) for _, entry in numbered]
        pool = _Pool(Period.of(steps, zone))
        by_entry += [
            (i, list(pool.apply(at, step))) for at, ((i, _), step) in enumerate(zip(numbered, steps, strict=True))
        ]
        result.remaining += pool.remaining(units)
    result.gains = [gain for _, gains in sorted(by_entry, key=lambda each: each[0]) for gain in gains]
    result.remaining.sort(key=lambda lots: lots.asset)
    return result


def _step(entry: Entry, units: Units) -> Step:
    """Return the held, unsolicited and missing parts of an entry, and change the asset's units.

    Held units go first, unsolicited ones next; `taken` takes unsolicited units first, and misses none.
    """
    quantity = entry.quantity
    if entry.kind in ACQUIRED or entry.kind == "arrive":
        units.held += quantity
        return Step(entry, quantity)
    if entry.kind == "move":
        return Step(entry, 0)
    if entry.kind == "unasked":
        units.unasked += quantity
        return Step(entry, 0, quantity)
    unasked = min(quantity, units.unasked) if entry.kind == "taken" else 0
    known = min(quantity - unasked, units.held)
    unasked = unasked or min(quantity - known, units.unasked)
    missing = 0 if entry.kind == "taken" else quantity - known - unasked
    units.held, units.unasked, units.short = units.held - known, units.unasked - unasked, units.short + missing
    return Step(entry, known, unasked, missing)


def _change(step: Step) -> int:
    """Return by how much a step changes the units of the pool: those between two chains stay in it."""
    if step.entry.kind in ACQUIRED:
        return step.units
    if step.entry.kind in ("depart", "arrive"):
        return step.missing + step.unasked
    return 0 if step.entry.kind == "unasked" else -step.units


@dataclass(frozen=True, slots=True)
class Period:
    """The days of an asset's steps, with the units acquired and held up to each."""

    days: Sequence[int]
    acquired: Sequence[int]
    held: Sequence[int]

    @classmethod
    def of(cls, steps: Sequence[Step], zone: tzinfo) -> Period:
        """Return the period of all steps, which are sorted by time."""
        days = [(EPOCH + timedelta(microseconds=step.entry.time_us)).astimezone(zone).toordinal() for step in steps]
        acquired = [step.units if step.entry.kind in ACQUIRED else 0 for step in steps]
        held = [_change(step) for step in steps]
        return cls(days, [0, *accumulate(acquired)], [0, *accumulate(held)])

    def superficial(self, at: int, units: int) -> int:
        """Return how many units of a disposal are replaced, so that their loss is superficial."""
        day = self.days[at]
        first, last = bisect_left(self.days, day - DAYS), bisect_right(self.days, day + DAYS)
        return max(min(units, self.acquired[last] - self.acquired[first], self.held[last]), 0)

    def replaced_before(self, at: int) -> bool:
        """Return True if some of the asset was acquired before a disposal, in the period."""
        return self.acquired[at] > self.acquired[bisect_left(self.days, self.days[at] - DAYS)]


@dataclass(slots=True)
class _Pool:
    """The units of an asset with their cost.

    `denied` losses wait for the acquisition that they become a cost of.
    """

    period: Period
    units: int = 0
    cost: int | None = 0
    reason: str = ""
    denied: int = 0
    departed: dict[str, Lot] = field(default_factory=dict)

    def apply(self, at: int, step: Step) -> Iterator[Gain]:
        """Apply one step, and yield its gains."""
        entry = step.entry
        if entry.kind in ACQUIRED:
            self._add(acquired_lot(entry))
            if entry.kind == "income":
                yield income_gain(entry)
        elif entry.kind == "depart":  # it stays in the pool of all chains
            if unknown := step.missing + step.unasked:
                self._add(Lot(unknown, None, None, entry.time_us, entry.transaction, SHORT))
        elif entry.kind in DISPOSED:
            yield from self._dispose(at, step)
        elif entry.kind not in ("unasked", "arrive"):
            self._take(step.units)

    def remaining(self, units: Mapping[str, Units]) -> Iterator[RemainingLots]:
        """Yield what remains of each asset, at the average cost, and take it out of the pool."""
        for asset, of_asset in units.items():
            lot = self._take(of_asset.held)
            yield RemainingLots(
                asset, "", of_asset.held, lot.cost, lot.reason, of_asset.short, unasked=of_asset.unasked
            )

    def _add(self, lot: Lot) -> None:
        """Add a lot and the denied losses to the pool; its cost is unknown as soon as a lot's is."""
        self.units += lot.quantity
        if self.cost is not None:
            self.reason = lot.reason
            self.cost = None if lot.cost is None else self.cost + lot.cost + self.denied
            self.denied = 0

    def _take(self, units: int) -> Lot:
        """Take units out at the average cost; the last ones take the rest of it."""
        if not units:
            return Lot(0, 0, 0, None, POOL)
        assert units <= self.units, "the units of all assets of a pool are in it"
        cost = None if self.cost is None else min(self.cost, share(self.cost, units, self.units))
        lot = Lot(units, cost, None, None, POOL, self.reason)
        self.units -= units
        self.cost = None if self.cost is None or cost is None else self.cost - cost
        if not self.units:
            self.cost, self.reason = 0, ""
        return lot

    def _dispose(self, at: int, step: Step) -> Iterator[Gain]:
        """Yield the gains of a disposal at the average cost.

        A loss is denied for units that were acquired again in the period: it is added to the pool's cost.
        """
        entry, replaced = step.entry, 0
        lots: list[tuple[Lot, str]] = []
        if step.units:
            lot = self._take(step.units)
            replaced = self.period.superficial(at, step.units)
            is_loss = lot.cost is not None and entry.value is not None and self._loss(entry, lot.cost, step.units) > 0
            if replaced and entry.value is None:
                self._spoil(entry)
            if replaced and is_loss and replaced < lot.quantity:
                lots = [(lot.split(replaced), SUPERFICIAL), (lot, POOL)]
            else:
                lots = [(lot, SUPERFICIAL if replaced and is_loss else POOL)]
        if step.unasked:
            lots.append((unsolicited_lot(step.unasked), ""))
        for gain in disposal_gains(entry, lots):
            if gain.rule == SUPERFICIAL and gain.gain is not None:
                self._deny(at, max(-gain.gain, 0))
                gain = gain._replace(cost=min(gain.cost or 0, gain.proceeds or 0))
            yield gain

    def _loss(self, entry: Entry, cost: int, units: int) -> int:
        proceeds = (entry.value or 0) - entry.fee
        return cost - share(proceeds, units, entry.quantity)

    def _deny(self, at: int, loss: int) -> None:
        """Add a denied loss to the cost of what was acquired, or will be."""
        if self.units and self.cost is not None and self.period.replaced_before(at):
            self.cost += loss
        elif not self.units or self.cost is not None:
            self.denied += loss

    def _spoil(self, entry: Entry) -> None:
        """Forget the cost of what is held, because a loss that is not known may be part of it."""
        if self.units:
            self.cost, self.reason = None, f"{PERHAPS_SUPERFICIAL}: {entry.reason or NO_PRICE}"
