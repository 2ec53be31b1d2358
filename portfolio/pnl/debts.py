"""Debts: how much was borrowed and is not repaid, at its value then, and its part in what is owed now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from chainfolio.portfolio.document import AssetDocument
from chainfolio.portfolio.pnl.closing import ROUNDED_PARTS, ROUNDING
from chainfolio.portfolio.pnl.entries import Entry, share, sort_entries
from chainfolio.portfolio.pnl.gains import NO_PRICE
from chainfolio.portfolio.transactions import raw_balance

NOT_BORROWED: Final = "no known transaction borrowed what is owed"
LESS_OWED: Final = "less is owed than was borrowed and not repaid"
MORE_OWED: Final = "more is owed than was borrowed, and too much to be interest"
MAX_INTEREST: Final = 2  # interest is at most one in so many parts of all that was borrowed


class Debt(NamedTuple):
    """A loan of one asset.

    Attributes:
        quantity: What was borrowed and is not repaid, without interest.
        value: The value of `quantity` when it was borrowed; None if it is not known.
        borrowed: All that was borrowed since nothing was owed.
    """

    quantity: int = 0
    value: int | None = 0
    borrowed: int = 0


def open_debts(entries: Iterable[Entry]) -> dict[str, Debt]:
    """Return the loans by asset; repaid ones have the quantity 0, overpaid ones are absent.

    A repayment takes an equal part of each loan.
    """
    debts = dict[str, Debt]()
    for entry in sort_entries(each for each in entries if each.kind in ("borrow", "repay")):
        quantity, value, borrowed = debts.get(entry.asset, Debt())
        if entry.kind == "borrow":
            sum_value = None if value is None or entry.value is None else value + entry.value
            debts[entry.asset] = Debt(quantity + entry.quantity, sum_value, borrowed + entry.quantity)
            continue
        remaining = quantity - min(entry.quantity, quantity)
        if not remaining:
            debts[entry.asset] = Debt(borrowed=0 if entry.quantity > quantity else borrowed)
        else:
            debts[entry.asset] = Debt(remaining, None if value is None else share(value, remaining, quantity), borrowed)
    return {asset: debt for asset, debt in debts.items() if debt.borrowed}


@dataclass(slots=True)
class OwedShares:
    """Divides the borrowed value of each asset among what is owed of it.

    Attributes:
        unassigned: What is owed without a part yet, and the borrowed value that is left; None if it is not known.
        faults: Why a borrowed value is not known, by asset.
    """

    unassigned: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, owed: Iterable[tuple[str, AssetDocument]], debts: Mapping[str, Debt]) -> OwedShares:
        """Compare what is owed, by the keys of assets, with what was borrowed.

        Those that differ have a fault, and no borrowed value.
        """
        raws = defaultdict[str, int](int)
        for key, asset in owed:
            raws[key] += raw_balance(asset)
        result = cls()
        for key, raw in raws.items():
            debt = debts.get(key, Debt())
            fault = debt_fault(raw, debt)
            result.unassigned[key] = raw, None if fault else debt.value
            result.faults |= {key: fault} if fault else {}
        return result

    def take(self, key: str, raw: int) -> int | None:
        """Take the borrowed value of `raw` owed units; None if it is not known."""
        total, value = self.unassigned[key]
        part = None if value is None else share(value, raw, total) if raw else 0
        self.unassigned[key] = total - raw, None if value is None or part is None else value - part
        return part


def debt_fault(owed: int, debt: Debt) -> str:
    """Return why the gain of a debt is not known; empty if it is.

    More than was borrowed is interest, up to a half of all that was borrowed: beyond that, a loan may be missing.
    """
    if not debt.borrowed:
        return NOT_BORROWED if owed else ""
    if debt.quantity - owed > max(ROUNDING, debt.quantity // ROUNDED_PARTS):
        return LESS_OWED
    if owed - debt.quantity > max(ROUNDING, debt.borrowed // MAX_INTEREST):
        return MORE_OWED
    return NO_PRICE if debt.value is None else ""
