"""Rows of CoinTracking's custom CSV import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from chainfolio.exports.tax_rows import AIRDROP, FEE_ONLY, NOTHING, REWARD, Amount, TaxRow, tax_rows

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
    """Yield the rows of a transaction; its hash is the first word of the comment.

    CoinTracking only shows what is in the column of fees, and takes nothing off: a fee is a row of its own.
    """
    for row in tax_rows(transaction):
        if row.label != FEE_ONLY:
            yield _row(row, _type(row), row.received, row.sent)
        if row.fee != NOTHING:
            yield _row(row, TYPES[FEE_ONLY], NOTHING, row.fee)


def _row(row: TaxRow, kind: str, received: Amount, sent: Amount) -> Row:
    """Return a row in CoinTracking's columns; the column of fees stays empty."""
    return (
        kind,
        received.text,
        received.symbol,
        sent.text,
        sent.symbol,
        "",
        "",
        row.chain,
        "",
        f"{row.hash} {row.description}",
        row.time("%d.%m.%Y %H:%M:%S"),
    )


def _type(row: TaxRow) -> str:
    """Return CoinTracking's type of a row: by its label, else by what it has of received and sent."""
    if row.label:
        return TYPES[row.label]
    if NOTHING in (row.received, row.sent):
        return "Withdrawal" if row.received == NOTHING else "Deposit"
    return "Trade"
