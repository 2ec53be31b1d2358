"""Rows of rotki's generic import of events, as its importer `rotki_events` reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from chainfolio.exports.tax_rows import FEE_ONLY, NOTHING, REWARD, Amount, tax_rows

if TYPE_CHECKING:
    from chainfolio.exports.dataset import Row
    from chainfolio.portfolio.transactions import TransactionDocument

COLUMNS: Final = ("Type", "Location", "Currency", "Amount", "Fee", "Fee Currency", "Description", "Timestamp")
LOCATION: Final = "external"
INCOME, SPEND, STAKING = "Income", "Spend", "Staking"  # types that rotki knows


def rows(transaction: TransactionDocument) -> Iterator[Row]:
    """Yield an event for each asset that was received or sent; times are in milliseconds.

    The fee is in the first event of its transaction. A fee without a movement is spent.
    """
    for row in tax_rows(transaction):
        sent, fee = (row.fee, row.sent) if row.label == FEE_ONLY else (row.sent, row.fee)
        events = [(STAKING if row.label == REWARD else INCOME, row.received), (SPEND, sent)]
        for kind, amount in events:
            if amount == NOTHING:
                continue
            yield _event(kind, amount, fee, f"{row.chain} {row.hash} {row.description}", row.time_s)
            fee = NOTHING


def _event(kind: str, amount: Amount, fee: Amount, description: str, time_s: int) -> Row:
    return kind, LOCATION, amount.symbol, amount.text, fee.text, fee.symbol, description, str(time_s * 1000)
