"""Gains of entries in any order, by a method."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, tzinfo
from itertools import chain
from typing import Final

from chainfolio.portfolio.pnl.entries import ACQUIRED, DISPOSED, UNASKED, Entry, sort_entries, without_loans
from chainfolio.portfolio.pnl.gains import SHORT, Book, Gain, Gains, acquired_lot, disposal_gains, income_gain
from chainfolio.portfolio.pnl.lots import LOTS, Lot, Lots
from chainfolio.portfolio.pnl.uk import by_uk_rules

UK: Final = "uk"


def gains_of(
    entries: Iterable[Entry], method: str, *, per_wallet: bool = False, zone: tzinfo = UTC, unit: int = 1
) -> Gains:
    """Return the gains of an account, with lots kept over all its wallets, or per wallet.

    Args:
        entries: The entries, in any order.
        method: A method of `LOTS`, or `UK`, which is not possible per wallet.
        per_wallet: Keep lots per wallet.
        zone: The time zone of days in the UK rules.
        unit: The unit to which the UK rules round costs up.
    """
    assert not (per_wallet and method == UK), "the UK rules pool all that one person holds"
    deposited: dict[tuple[str, str], int] = {}
    with _collector_paused():
        ordered = without_loans(sort_entries(entries), deposited, per_wallet=per_wallet)
        result = by_uk_rules(ordered, zone, unit) if method == UK else _by_lots(ordered, method, per_wallet=per_wallet)
    result.remaining = [
        lots._replace(deposited=deposited.get((lots.asset, lots.wallet), 0)) for lots in result.remaining
    ]
    return result


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Lots and gains are in no cycles: looking for some among millions takes as long as the calculation."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _by_lots(entries: Iterable[Entry], method: str, *, per_wallet: bool) -> Gains:
    """Return gains in the order of entries, matched asset by asset: its lots then lie close in memory."""
    assets: dict[str, list[tuple[int, Entry]]] = {}
    count = 0
    for entry in entries:
        assets.setdefault(entry.asset, []).append((count, entry))
        count += 1
    gains_by_entry: list[Sequence[Gain]] = [()] * count
    result = Gains()
    for asset in sorted(assets):
        books: dict[str, Book] = {}
        for i, entry in assets.pop(asset):
            gains_by_entry[i] = _gains(entry, books, LOTS[method], per_wallet=per_wallet)
        result.remaining += [books[wallet].remaining(asset, wallet) for wallet in sorted(books)]
    result.gains = list(chain.from_iterable(gains_by_entry))
    return result


def _gains(entry: Entry, books: dict[str, Book], make: Callable[[], Lots], *, per_wallet: bool) -> Sequence[Gain]:
    """Return the gains of one entry, and change the books of its asset, which are by wallet."""

    def book_of(wallet: str) -> Book:
        key = wallet if per_wallet else ""
        if key not in books:
            books[key] = Book(make())
        return books[key]

    book = book_of(entry.wallet)
    if entry.kind in ACQUIRED:
        book.lots.add(acquired_lot(entry))
        return (income_gain(entry),) if entry.kind == "income" else ()
    if entry.kind == "unasked":
        book.unasked += entry.quantity
    elif entry.kind == "taken":
        book.lose(entry.quantity)
    elif entry.kind in DISPOSED:
        return tuple(disposal_gains(entry, ((lot, "") for lot in book.take(entry.quantity))))
    elif entry.kind != "move":  # a repayment is no disposal: its lots leave at their cost
        deque(book.take(entry.quantity), maxlen=0)
    elif per_wallet and entry.to != entry.wallet:
        _move(entry, book, book_of(entry.to))
    return ()


def _move(entry: Entry, source: Book, target: Book) -> None:
    """Move lots from one wallet's book to another's, with their costs."""
    remaining = entry.quantity
    for lot in source.take(entry.quantity):
        remaining -= lot.quantity
        if lot.reason == UNASKED:
            target.unasked += lot.quantity
        else:
            target.lots.add(lot)
    if remaining:
        target.lots.add(Lot(remaining, None, None, entry.time_us, entry.transaction, SHORT))
