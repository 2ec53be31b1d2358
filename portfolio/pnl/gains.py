"""Gains: each disposal matched with its cost, and the lots that remain."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from chainfolio.portfolio.pnl.entries import UNASKED, Entry, share
from chainfolio.portfolio.pnl.lots import Lot, Lots

SHORT: Final = "more left than is known to have come"
NO_PRICE: Final = "no price is known at that time"


class Gain(NamedTuple):
    """A part of a disposal with its lot, or an income.

    A number is None if it is not known; `reason` says why. `rule` is the rule that chose the lot, in methods with
    several rules.
    """

    kind: str
    asset: str
    wallet: str
    transaction: str
    time_us: int
    quantity: int
    proceeds: int | None
    cost: int | None
    acquired_us: int | None = None
    acquired_in: str = ""
    rule: str = ""
    reason: str = ""

    @property
    def gain(self) -> int | None:
        """Proceeds less cost."""
        return None if self.proceeds is None or self.cost is None else self.proceeds - self.cost


class RemainingLots(NamedTuple):
    """The remaining lots of one asset (in one wallet, if lots are kept per wallet), and their cost.

    Attributes:
        short: Quantity that left without a known origin.
        deposited: How much of `quantity` and `unasked` lies in protocols.
        unasked: Unsolicited quantity in addition to `quantity`.
    """

    asset: str
    wallet: str
    quantity: int
    cost: int | None
    reason: str = ""
    short: int = 0
    deposited: int = 0
    unasked: int = 0


class OpenLot(NamedTuple):
    """A lot that remains of one asset (in one wallet, if lots are kept per wallet)."""

    asset: str
    wallet: str
    lot: Lot


@dataclass(slots=True)
class Gains:
    """The gains in order of time, and the remaining lots by asset and wallet.

    `lots` are the single lots of `remaining`; empty for methods that pool all that one person holds.
    """

    gains: list[Gain] = field(default_factory=list)
    remaining: list[RemainingLots] = field(default_factory=list)
    lots: list[OpenLot] = field(default_factory=list)


@dataclass(slots=True)
class Book:
    """The lots of one asset, of an account or of a wallet.

    `unasked` are unsolicited units apart from the lots; `short` are units that left without a known origin.
    """

    lots: Lots
    short: int = 0
    unasked: int = 0

    def take(self, quantity: int) -> Iterator[Lot]:
        """Take a quantity out, lots first, then unsolicited units.

        The rest adds to `short` once all are yielded.
        """
        for lot in self.lots.take(quantity):
            quantity -= lot.quantity
            yield lot
        if unsolicited := min(quantity, self.unasked):
            quantity -= unsolicited
            self.unasked -= unsolicited
            yield unsolicited_lot(unsolicited)
        self.short += quantity

    def lose(self, quantity: int) -> None:
        """Remove a quantity that others claim has left, but not more than is held.

        Unsolicited units go first; lots leave at their cost.
        """
        unsolicited = min(quantity, self.unasked)
        self.unasked -= unsolicited
        deque(self.lots.take(quantity - unsolicited), maxlen=0)

    def remaining(self, asset: str, wallet: str) -> RemainingLots:
        """Return the remaining lots as one sum; its cost is None, with a reason, if that of a lot is."""
        lots = self.lots.remaining()
        unknown = next((lot.reason for lot in lots if lot.cost is None), "")
        cost = None if unknown else sum(lot.cost or 0 for lot in lots)
        quantity = sum(lot.quantity for lot in lots)
        return RemainingLots(asset, wallet, quantity, cost, unknown, self.short, unasked=self.unasked)


@dataclass(slots=True)
class Groups:
    """Groups of assets between which lots move: the same asset on several chains."""

    _first: dict[str, str] = field(default_factory=dict)  # another asset of the group, towards the first one
    _assets: dict[str, str] = field(default_factory=dict)  # the asset that left, by transfer

    def join(self, entry: Entry) -> None:
        """Join the assets of a departure and of its arrival."""
        a, b = self._root(self._assets.setdefault(entry.to, entry.asset)), self._root(entry.asset)
        if a != b:
            self._first[max(a, b)] = min(a, b)

    def of(self, assets: Iterable[str]) -> list[list[str]]:
        """Return the groups of all assets, in order; most have one asset."""
        groups: dict[str, list[str]] = {}
        for asset in sorted(assets):
            groups.setdefault(self._root(asset), []).append(asset)
        return list(groups.values())

    def _root(self, asset: str) -> str:
        while asset in self._first:
            asset = self._first[asset]
        return asset


def unsolicited_lot(quantity: int) -> Lot:
    """Return a lot of unsolicited units, without a known cost."""
    return Lot(quantity, None, None, None, "", UNASKED)


def acquired_lot(entry: Entry) -> Lot:
    """Return the lot that an acquisition makes. It costs value plus fee, or None with a reason."""
    cost = None if entry.value is None else entry.value + entry.fee
    reason = (entry.reason or NO_PRICE) if cost is None else ""
    return Lot(entry.quantity, cost, entry.value, entry.time_us, entry.transaction, reason)


def income_gain(entry: Entry) -> Gain:
    """Return the gain of an income: its whole value, at no cost."""
    reason = (entry.reason or NO_PRICE) if entry.value is None else ""
    facts = entry.kind, entry.asset, entry.wallet, entry.transaction, entry.time_us, entry.quantity
    return Gain(*facts, entry.value, 0, reason=reason)


def disposal_gains(entry: Entry, lots: Iterable[tuple[Lot, str]]) -> Iterator[Gain]:
    """Yield the gains of a disposal, one per lot that gave it, with the rule that chose the lot.

    A quantity that no lot gives has no known cost.
    """
    remaining = entry.quantity
    proceeds = None if entry.value is None else entry.value - entry.fee
    no_price = (entry.reason or NO_PRICE) if proceeds is None else ""
    facts = entry.kind, entry.asset, entry.wallet, entry.transaction, entry.time_us
    for lot, rule in lots:
        part = None
        if proceeds is not None:
            part = share(proceeds, lot.quantity, remaining)
            proceeds -= part
        remaining -= lot.quantity
        reason = lot.reason if lot.reason == UNASKED else no_price or lot.reason
        yield Gain(*facts, lot.quantity, part, lot.cost, lot.time_us, lot.transaction, rule, reason)
    if remaining:
        yield Gain(*facts, remaining, proceeds, None, reason=SHORT)
