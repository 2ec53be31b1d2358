"""The lots of one asset, and the order in which they are given away: one class per method."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from chainfolio.portfolio.pnl.entries import share

POOL: Final = "pool"


@dataclass(slots=True)
class Lot:
    """A quantity acquired at once, with its cost including fees.

    `cost` is None if it is not known, with the reason. `spot` is the value without fees. A lot of a pool has neither
    time nor transaction.
    """

    quantity: int
    cost: int | None
    spot: int | None
    time_us: int | None
    transaction: str
    reason: str = ""

    def split(self, quantity: int, unit: int = 1) -> Lot:
        """Take a part out of this lot, its cost rounded up to `unit`; the remainder keeps the other cost."""
        assert 0 < quantity < self.quantity, "a part is less than the whole"
        cost = None
        if self.cost is not None:
            cost = min(self.cost, share(self.cost, quantity, self.quantity * unit) * unit)
        spot = None if self.spot is None else share(self.spot, quantity, self.quantity)
        part = Lot(quantity, cost, spot, self.time_us, self.transaction, self.reason)
        self.quantity -= quantity
        if self.cost is not None and cost is not None:
            self.cost -= cost
        if self.spot is not None and spot is not None:
            self.spot -= spot
        return part


class Lots(Protocol):
    """The holdings of an account of one asset, by cost."""

    def add(self, lot: Lot) -> None:
        """Put a lot in."""

    def take(self, quantity: int) -> Iterator[Lot]:
        """Take a quantity out, as the lots that give it; less if there is less."""

    def remaining(self) -> list[Lot]:
        """Return the remaining lots."""


Rank = tuple[int, ...]


def _first_in(lot: Lot, number: int) -> Rank:
    return lot.time_us or 0, number


def _last_in(lot: Lot, number: int) -> Rank:
    return -(lot.time_us or 0), -number


def _highest(lot: Lot, number: int) -> Rank:
    return lot.spot is None, -_unit_price(lot), lot.time_us or 0, number


def _lowest(lot: Lot, number: int) -> Rank:
    return lot.spot is None, _unit_price(lot), lot.time_us or 0, number


def _unit_price(lot: Lot) -> int:
    """Return the spot price per unit of a lot in 2^-128 of a money unit, for comparisons; 0 if unknown."""
    return ((lot.spot or 0) << 128) // lot.quantity


@dataclass(slots=True)
class RankedLots:
    """Lots that are given away in order of rank, the lowest first."""

    rank: Callable[[Lot, int], Rank]
    _heap: list[tuple[Rank, Lot]] = field(default_factory=list)
    _count: int = 0

    def add(self, lot: Lot) -> None:
        """Put a lot in."""
        self._count += 1
        heapq.heappush(self._heap, (self.rank(lot, self._count), lot))

    def take(self, quantity: int) -> Iterator[Lot]:
        """Yield lots with a quantity in all, taken out by rank; fewer if there are not enough."""
        while quantity and self._heap:
            lot = self._heap[0][1]
            if lot.quantity > quantity:
                yield lot.split(quantity)
                return
            heapq.heappop(self._heap)
            quantity -= lot.quantity
            yield lot

    def remaining(self) -> list[Lot]:
        """Return the remaining lots, the next one to be given first."""
        return [lot for _, lot in sorted(self._heap, key=lambda item: item[0])]


@dataclass(slots=True)
class AveragedLots:
    """The holdings as one pool: each unit costs the average, and costs of parts are rounded up to `unit`.

    While the cost of a part is not known, that of the pool is not.
    """

    unit: int = 1
    _pool: Lot = field(default_factory=lambda: Lot(0, 0, 0, None, POOL))

    def add(self, lot: Lot) -> None:
        """Add a lot to the pool, whose cost is then unknown if that of either is."""
        pool = self._pool
        pool.quantity += lot.quantity
        if pool.cost is not None:
            pool.cost = None if lot.cost is None else pool.cost + lot.cost
            pool.reason = lot.reason if lot.cost is None else ""

    def take(self, quantity: int) -> Iterator[Lot]:
        """Take out a quantity, at most all, at the average cost; yields one lot, or none."""
        if not quantity or not self._pool.quantity:
            return
        if quantity < self._pool.quantity:
            yield self._pool.split(quantity, self.unit)
            return
        yield self._pool
        self._pool = Lot(0, 0, 0, None, POOL)

    def remaining(self) -> list[Lot]:
        """Return the pool; empty if nothing is in it."""
        return [self._pool] if self._pool.quantity else []


LOTS: Final[dict[str, Callable[[], Lots]]] = {
    "fifo": lambda: RankedLots(_first_in),
    "lifo": lambda: RankedLots(_last_in),
    "hifo": lambda: RankedLots(_highest),
    "lofo": lambda: RankedLots(_lowest),
    "average": AveragedLots,
}
