"""Transactions as rows of what was received, sent and paid as a fee, as tax tools read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from chainfolio.portfolio.document import UNKNOWN, IssueDocument
from chainfolio.printable import MAX_SYMBOL, clean

if TYPE_CHECKING:
    from chainfolio.portfolio.transactions import TransactionAssetDocument, TransactionDocument

REWARD, AIRDROP, FEE_ONLY, PLAIN = "reward", "airdrop", "fee", ""
LABELS: Final = {"CLAIM": REWARD, "AIRDROP": AIRDROP}


@dataclass(frozen=True, slots=True)
class Amount:
    """An exact decimal as text, and the symbol of its asset; both are empty if there is none."""

    text: str = ""
    symbol: str = ""
    value_usd: str = ""


NOTHING: Final = Amount()
EXPORT: Final = "export"  # the part that issues name


@dataclass(frozen=True, slots=True)
class TaxRow:
    """One row: at most one asset received and one sent. The fee is in the first row of its transaction.

    `label` is REWARD, AIRDROP, FEE_ONLY (a transaction that moved nothing) or PLAIN.
    """

    time_s: int
    received: Amount
    sent: Amount
    fee: Amount
    label: str
    chain: str
    hash: str
    description: str

    def time(self, template: str) -> str:
        """Return the time in UTC, by a template of `strftime`."""
        return datetime.fromtimestamp(self.time_s, UTC).strftime(template)


def tax_rows(transaction: TransactionDocument) -> Iterator[TaxRow]:
    """Yield the rows of a transaction: the first asset received with the first one sent, and so on.

    An asset whose decimals are unknown has no amount: it is in no row, and the description names it. So is a fee that
    is not known. The fee is in the first row. A transaction that moved nothing and cost no fee has no row.
    """
    moved = [*transaction.assets_in, *transaction.assets_out]
    unknown = [each.contract for each in moved if each.balance == UNKNOWN]
    received = [_amount(each) for each in transaction.assets_in if each.balance != UNKNOWN]
    sent = [_amount(each) for each in transaction.assets_out if each.balance != UNKNOWN]
    fee = _fee(transaction)
    kind = transaction.type.lower()
    note = f"{kind} {clean(transaction.protocol.name, MAX_SYMBOL)}" if transaction.protocol.key != "unknown" else kind
    gaps = [f"(amount of {contract} not known)" for contract in unknown]
    description = " ".join([note, *gaps, *(["(fee not known)"] if _is_fee_unknown(transaction) else [])])
    pairs = list(zip_longest(received, sent, fillvalue=NOTHING))
    if not pairs and fee != NOTHING:
        pairs = [(NOTHING, NOTHING)]
    for into, out in pairs:
        label = FEE_ONLY if (into, out) == (NOTHING, NOTHING) else PLAIN
        if out == NOTHING:
            label = label or LABELS.get(transaction.type, PLAIN)
        yield TaxRow(
            int(transaction.timestamp), into, out, fee, label, transaction.chain.key, transaction.hash, description
        )
        fee = NOTHING


def missing_rows(transaction: TransactionDocument) -> Iterator[IssueDocument]:
    """Yield what no row of `tax_rows` can have: unknown fees, and transactions without a row."""
    if _is_fee_unknown(transaction):
        yield IssueDocument(EXPORT, transaction.hash, "the fee is not known: it is in no row")
    moved = (*transaction.assets_in, *transaction.assets_out)
    if moved and all(each.balance == UNKNOWN for each in moved) and _fee(transaction) == NOTHING:
        contracts = ", ".join(dict.fromkeys(each.contract for each in moved))
        reason = f"it has no row, because the decimals of {contracts} are not known"
        yield IssueDocument(EXPORT, transaction.hash, reason)


def _is_fee_unknown(transaction: TransactionDocument) -> bool:
    return transaction.sender == transaction.user.address and transaction.fees == UNKNOWN


def _amount(asset: TransactionAssetDocument) -> Amount:
    return Amount(asset.balance, symbol_of(asset), "" if asset.value == UNKNOWN else asset.value)


def _fee(transaction: TransactionDocument) -> Amount:
    """Return the fee if the account paid it."""
    if transaction.sender != transaction.user.address or transaction.fees in (UNKNOWN, "0"):
        return NOTHING
    value = "" if transaction.fees_fiat == UNKNOWN else transaction.fees_fiat
    return Amount(transaction.fees, symbol_of(transaction.native_asset_fees), value)


def symbol_of(asset: TransactionAssetDocument) -> str:
    """Return the symbol in capitals, or the contract; the number of a collectible follows it."""
    symbol = clean(asset.symbol, MAX_SYMBOL).upper() or asset.contract
    return symbol if asset.nft is UNSET else f"{symbol}#{asset.nft.token_id}"
