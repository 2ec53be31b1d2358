"""Gains of entries in any order, by a method."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from heapq import merge
from itertools import chain
from typing import Final

from chainfolio.portfolio.collector import garbage_collection_paused
from chainfolio.portfolio.pnl.canada import by_canadian_rules
from chainfolio.portfolio.pnl.entries import ACQUIRED, DISPOSED, UNASKED, Entry, sort_entries, without_loans
from chainfolio.portfolio.pnl.gains import (
    SHORT,
    Book,
    Gain,
    Gains,
    Groups,
    OpenLot,
    acquired_lot,
    disposal_gains,
    income_gain,
)
from chainfolio.portfolio.pnl.lots import LOTS, Lot, Lots
from chainfolio.portfolio.pnl.uk import by_uk_rules

UK: Final = "uk"
CANADA: Final = "ca"
POOLED: Final = frozenset({UK, CANADA})  # over all that one person holds


def gains_of(
    entries: Iterable[Entry], method: str, *, per_wallet: bool = False, zone: tzinfo = UTC, unit: int = 1
) -> Gains:
    """Return the gains of an account, with lots kept over all its wallets, or per wallet.

    Args:
        entries: The entries, in any order.
        method: A method of `LOTS` or of `POOLED`; the latter are not possible per wallet.
        per_wallet: Keep lots per wallet.
        zone: The time zone of days in the rules of `POOLED`.
        unit: The unit to which the UK rules round costs up.
    """
    assert not (per_wallet and method in POOLED), "these rules pool all that one person holds"
    deposited: dict[tuple[str, str], int] = {}
    with garbage_collection_paused():
        ordered = without_loans(sort_entries(entries), deposited, per_wallet=per_wallet)
        if method == UK:
            result = by_uk_rules(ordered, zone, unit)
        elif method == CANADA:
            result = by_canadian_rules(ordered, zone)
        else:
            result = _by_lots(ordered, method, per_wallet=per_wallet)
    result.remaining = [
        lots._replace(deposited=deposited.get((lots.asset, lots.wallet), 0)) for lots in result.remaining
    ]
    return result


def _by_lots(entries: Iterable[Entry], method: str, *, per_wallet: bool) -> Gains:
    """Return gains in the order of entries, matched asset by asset: its lots then lie close in memory.

    Assets between which lots move are matched together.
    """
    assets: dict[str, list[tuple[int, Entry]]] = {}
    groups = Groups()
    count = 0
    for entry in entries:
        assets.setdefault(entry.asset, []).append((count, entry))
        if entry.kind in ("depart", "arrive"):
            groups.join(entry)
        count += 1
    gains_by_entry: list[Sequence[Gain]] = [()] * count
    result = Gains()
    for group in groups.of(assets):
        books = _Books(LOTS[method], per_wallet=per_wallet)
        for i, entry in merge(*(assets.pop(asset) for asset in group)) if len(group) > 1 else assets.pop(group[0]):
            gains_by_entry[i] = _gains(entry, books)
        result.remaining += [book.remaining(*key) for key, book in sorted(books.by_key.items())]
        result.lots += [
            OpenLot(*key, lot) for key, book in sorted(books.by_key.items()) for lot in book.lots.remaining()
        ]
    result.remaining.sort(key=lambda lots: (lots.asset, lots.wallet))
    result.gains = list(chain.from_iterable(gains_by_entry))
    return result


@dataclass(slots=True)
class _Books:
    """The books of some assets by asset and wallet, and the lots that are between two chains."""

    make: Callable[[], Lots]
    per_wallet: bool
    by_key: dict[tuple[str, str], Book] = field(default_factory=dict)
    departed: dict[str, list[Lot]] = field(default_factory=dict)

    def of(self, asset: str, wallet: str) -> Book:
        """Return the book of an asset, in a wallet if lots are kept per wallet."""
        key = asset, wallet if self.per_wallet else ""
        if key not in self.by_key:
            self.by_key[key] = Book(self.make())
        return self.by_key[key]


def _gains(entry: Entry, books: _Books) -> Sequence[Gain]:
    """Return the gains of one entry, and change the books of its asset.

    None arise if it is neither income nor a disposal.
    """
    book = books.of(entry.asset, entry.wallet)
    if entry.kind in ACQUIRED:
        book.lots.add(acquired_lot(entry))
        return (income_gain(entry),) if entry.kind == "income" else ()
    if entry.kind == "unasked":
        book.unasked += entry.quantity
    elif entry.kind == "taken":
        book.lose(entry.quantity)
    elif entry.kind in DISPOSED:
        return tuple(disposal_gains(entry, ((lot, "") for lot in book.take(entry.quantity))))
    elif entry.kind == "depart":
        books.departed[entry.to] = _taken(entry, book)
    elif entry.kind == "arrive":
        _put(books.departed.pop(entry.to), book)
    elif entry.kind != "move":  # a repayment is no disposal: its lots leave at their cost
        deque(book.take(entry.quantity), maxlen=0)
    elif books.per_wallet and entry.to != entry.wallet:
        _put(_taken(entry, book), books.of(entry.asset, entry.to))
    return ()


def _taken(entry: Entry, source: Book) -> list[Lot]:
    """Take lots out with their costs; what the book lacks is a lot without a known cost."""
    lots = list(source.take(entry.quantity))
    if missing := entry.quantity - sum(lot.quantity for lot in lots):
        lots.append(Lot(missing, None, None, entry.time_us, entry.transaction, SHORT))
    return lots


def _put(lots: Iterable[Lot], target: Book) -> None:
    """Put lots into a book, with their costs; unsolicited ones add to its unsolicited units."""
    for lot in lots:
        if lot.reason == UNASKED:
            target.unasked += lot.quantity
        else:
            target.lots.add(lot)
