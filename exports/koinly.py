"""Rows of Koinly's universal CSV file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from chainfolio.exports.tax_rows import AIRDROP, FEE_ONLY, REWARD, tax_rows

if TYPE_CHECKING:
    from chainfolio.exports.dataset import Row
    from chainfolio.portfolio.transactions import TransactionDocument

COLUMNS: Final = (
    "Date",
    "Sent Amount",
    "Sent Currency",
    "Received Amount",
    "Received Currency",
    "Fee Amount",
    "Fee Currency",
    "Net Worth Amount",
    "Net Worth Currency",
    "Label",
    "Description",
    "TxHash",
)
LABELS: Final = {REWARD: "reward", AIRDROP: "airdrop", FEE_ONLY: "cost"}


def rows(transaction: TransactionDocument) -> Iterator[Row]:
    """Yield the rows of a transaction, in Koinly's columns. A fee without a movement is sent as a cost.

    The net worth is that of the received asset, else of the sent one, in USD.
    """
    for row in tax_rows(transaction):
        sent, fee = (row.fee, row.sent) if row.label == FEE_ONLY else (row.sent, row.fee)
        value = row.received.value_usd or sent.value_usd
        yield (
            row.time("%Y-%m-%d %H:%M:%S UTC"),
            sent.text,
            sent.symbol,
            row.received.text,
            row.received.symbol,
            fee.text,
            fee.symbol,
            value,
            "USD" if value else "",
            LABELS.get(row.label, ""),
            row.description,
            row.hash,
        )
