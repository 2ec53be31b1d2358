"""Which part of a withdrawal only comes back, which part is a reward, and which part pays for shares that were bought.

A deposit brings shares (of a vault, a pool, a lender). They stand for what was deposited, and are no lots. Shares can
also be bought, or sent by others. Who redeems those gets nothing back: the shares are sold for what they pay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from chainfolio.portfolio.pnl.entries import ARRIVED, DISPOSED, EARNED, Entry


@dataclass(slots=True)
class Deposits:
    """What an account deposited so far: `assets` that it gave, and the shares that it got and did not give back. `lots`
    is how much of each asset it acquired in another way and still has."""

    assets: set[str] = field(default_factory=set)
    shares: dict[str, int] = field(default_factory=dict)
    lots: dict[str, int] = field(default_factory=dict)

    def add(self, entries: Iterable[Entry], shares: Mapping[str, int]) -> None:
        """Take in the entries of one transaction, and the shares that it brought where it deposits."""
        for entry in entries:
            asset = entry.asset
            if entry.kind == "deposit":
                self.assets |= {asset} if entry.reason != EARNED else set()
            elif entry.kind in ARRIVED:
                self.lots[asset] = self.lots.get(asset, 0) + entry.quantity
            elif entry.kind in DISPOSED:
                of_lots = min(entry.quantity, self.lots.get(asset, 0))
                self.lots[asset] = self.lots.get(asset, 0) - of_lots
                self.shares[asset] = max(self.shares.get(asset, 0) - entry.quantity + of_lots, 0)
        for share, quantity in shares.items():
            self.shares[share] = self.shares.get(share, 0) + quantity

    def redeem(self, shares: Mapping[str, int]) -> tuple[dict[str, int], Fraction]:
        """Give shares back, those of deposits first: how many of them no deposit brought, and which part of what they
        pay is paid for those. More than there are is interest that the shares grew by."""
        bought, part = dict[str, int](), Fraction(0)
        for share, quantity in shares.items():
            back = min(quantity, self.shares.get(share, 0))
            self.shares[share] = self.shares.get(share, 0) - back
            if sold := min(quantity - back, self.lots.get(share, 0)):
                bought[share] = sold
                part = max(part, Fraction(sold, quantity))
        return bought, part
