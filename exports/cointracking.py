"""Rows of CoinTracking's custom CSV import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from chainfolio.exports.tax_rows import AIRDROP, FEE_ONLY, NOTHING, REWARD, TaxRow, tax_rows

if TYPE_CHECKING:
    from chainfolio.exports.dataset import Row
    from chainfolio.portfolio.transactions import TransactionDocument

COLUMNS: Final = (
    "Type",
    "Buy Amount",
    "Buy Currency",
    "Sell Amount",
    "Sell Currency",
    "Fee",
    "Fee Currency",
    "Exchange",
    "Trade-Group",
    "Comment",
    "Date",
)
TYPES: Final = {REWARD: "Reward / Bonus", AIRDROP: "Airdrop", FEE_ONLY: "Other Fee"}


def rows(transaction: TransactionDocument) -> Iterator[Row]:
    """Yield the rows of a transaction; the comment begins with its hash."""
    for row in tax_rows(transaction):
        sent, fee = (row.fee, row.sent) if row.label == FEE_ONLY else (row.sent, row.fee)
        yield (
            _type(row),
            row.received.text,
            row.received.symbol,
            sent.text,
            sent.symbol,
            fee.text,
            fee.symbol,
            row.chain,
            "",
            f"{row.hash} {row.description}",
            row.time("%d.%m.%Y %H:%M:%S"),
        )


def _type(row: TaxRow) -> str:
    if row.label:
        return TYPES[row.label]
    if NOTHING in (row.received, row.sent):
        return "Withdrawal" if row.received == NOTHING else "Deposit"
    return "Trade"
