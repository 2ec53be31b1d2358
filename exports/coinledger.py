"""Rows of CoinLedger's universal manual import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from chainfolio.exports.tax_rows import AIRDROP, FEE_ONLY, NOTHING, REWARD, TaxRow, tax_rows

if TYPE_CHECKING:
    from chainfolio.exports.dataset import Row
    from chainfolio.portfolio.transactions import TransactionDocument

COLUMNS: Final = (
    "Date (UTC)",
    "Platform (Optional)",
    "Asset Sent",
    "Amount Sent",
    "Asset Received",
    "Amount Received",
    "Fee Currency (Optional)",
    "Fee Amount (Optional)",
    "Type",
    "Description (Optional)",
    "TxHash (Optional)",
)
TYPES: Final = {REWARD: "Staking", AIRDROP: "Airdrop", FEE_ONLY: "Merchant Payment"}


def rows(transaction: TransactionDocument) -> Iterator[Row]:
    """Yield the rows of a transaction, in its columns. A fee without a movement is a payment."""
    for row in tax_rows(transaction):
        sent, fee = (row.fee, row.sent) if row.label == FEE_ONLY else (row.sent, row.fee)
        yield (
            row.time("%m/%d/%Y %H:%M:%S"),
            row.chain,
            sent.symbol,
            sent.text,
            row.received.symbol,
            row.received.text,
            fee.symbol,
            fee.text,
            _type(row),
            row.description,
            row.hash,
        )


def _type(row: TaxRow) -> str:
    """Return CoinLedger's type of a row: by its label, else by what it has of received and sent."""
    if row.label:
        return TYPES[row.label]
    if NOTHING in (row.received, row.sent):
        return "Withdrawal" if row.received == NOTHING else "Deposit"
    return "Trade"
