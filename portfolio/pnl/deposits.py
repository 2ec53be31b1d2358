"""Splits withdrawals into returned deposits, rewards, and payments for shares that were bought.

A deposit brings shares of a vault, a pool or a lender. They stand for the deposit, and are no lots. Shares can also be
bought, or sent by others. Redeeming those returns no deposit: the shares are sold for what they pay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from chainfolio.portfolio.pnl.entries import ARRIVED, DISPOSED, EARNED, Entry


@dataclass(slots=True)
class Deposits:
    """The deposits of an account so far: `assets` that it deposited, and `shares` still held in return.

    `lots` is how much of each asset it acquired in another way and still has.
    """

    assets: set[str] = field(default_factory=set)
    shares: dict[str, int] = field(default_factory=dict)
    lots: dict[str, int] = field(default_factory=dict)

    def add(self, entries: Iterable[Entry], shares: Mapping[str, int]) -> None:
        """Add the entries of one transaction, and the shares that it brought for a deposit."""
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
        """Take shares out, those of deposits first.

        Returns:
            How many of the redeemed shares are lots, by share; and the largest fraction that these are of a redemption:
            that part of the payment is a sale. Shares beyond both are interest that the shares earned.
        """
        bought, part = dict[str, int](), Fraction(0)
        for share, quantity in shares.items():
            back = min(quantity, self.shares.get(share, 0))
            self.shares[share] = self.shares.get(share, 0) - back
            if sold := min(quantity - back, self.lots.get(share, 0)):
                bought[share] = sold
                part = max(part, Fraction(sold, quantity))
        return bought, part
