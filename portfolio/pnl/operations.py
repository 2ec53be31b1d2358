"""Gas of contract wallets (ERC-4337).

Payments to the entry point are deposits, costs of operations are fees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Final

import msgspec

from chainfolio import amounts
from chainfolio.portfolio.document import UNKNOWN, IssueDocument
from chainfolio.portfolio.pnl.containers import Containers
from chainfolio.portfolio.pnl.entries import Kind, decimal, money
from chainfolio.portfolio.pnl.record_rows import DIGITS, RecordRows, money_of
from chainfolio.portfolio.pnl.trade_value import Side
from chainfolio.portfolio.transactions import TransactionAssetDocument, TransactionDocument
from chainfolio.position_changes import VaultChange

GAS: Final = "gas"
NO_PREPAID_GAS: Final = "no known deposit paid all gas of this operation: the rest counts as paid by the wallet itself"


def with_operation_fees(
    records: Sequence[TransactionDocument], changes: Mapping[tuple[str, str], Sequence[VaultChange] | None]
) -> list[TransactionDocument]:
    """Return records in which the operations of a contract wallet cost it what its deposit paid for them.

    The bundler pays the fee of the transaction, and the deposit of the wallet pays the bundler. So the wallet is the
    sender of such a record, and its fee goes from the sender of the transaction to the entry point.
    """
    return [_with_fee(record, changes.get((record.chain.key, record.hash)) or ()) for record in records]


def without_gas(
    changes: Mapping[tuple[str, str], Sequence[VaultChange] | None],
) -> dict[tuple[str, str], Sequence[VaultChange] | None]:
    """Return the changes of vaults alone, by chain and transaction; transactions without any are left out."""
    others = {
        key: None if each is None else [change for change in each if change.kind != GAS]
        for key, each in changes.items()
    }
    return {key: each for key, each in others.items() if each or not changes[key]}


def _with_fee(record: TransactionDocument, changes: Sequence[VaultChange]) -> TransactionDocument:
    own = [change for change in changes if change.kind == GAS and change.vault == record.user.address]
    cost = -sum(change.raw for change in own)
    fee = record.native_asset_fees
    if not own or record.sender == record.user.address:
        return record
    balance = value = UNKNOWN
    if fee.decimal != UNKNOWN:
        balance = f"{amounts.EXACT.scaleb(Decimal(cost), -int(fee.decimal)):f}"
    if UNKNOWN not in (fee.balance, fee.decimal, record.fees_fiat):
        paid = int(amounts.EXACT.scaleb(amounts.parse(fee.balance, max_digits=DIGITS), int(fee.decimal)))
        value = f"{decimal(int(Fraction(money(Decimal(record.fees_fiat)) * cost, paid))):f}" if paid else UNKNOWN
    row = msgspec.structs.replace(fee, balance=balance, value=value, sender=record.sender, recipient=own[0].contract)
    return msgspec.structs.replace(
        record, sender=record.user.address, fees=balance, fees_fiat=value, native_asset_fees=row
    )


def gas_movements(rows: RecordRows, containers: Containers) -> list[tuple[Kind, Side]]:
    """Return what was deposited for the gas of operations, and what a deposit paid as the fee of this one.

    A fee takes no more than was deposited; the result has an issue if that is less than the fee.
    """
    record = rows.record
    fee = record.native_asset_fees
    paid: list[tuple[Kind, TransactionAssetDocument]] = [("deposit", row) for row in record.assets_out]
    paid += [("withdraw", fee)] if record.sender == record.user.address else []
    movements = list[tuple[Kind, Side]]()
    for kind, row in paid:
        quantity = rows.quantity(row) if rows.is_gas(row) else None
        if not quantity:
            continue
        asset, moved = rows.asset_of(row), quantity
        if kind == "deposit":
            containers.stake(row.recipient, asset, quantity)
        elif (moved := containers.unstake([row.recipient], asset, quantity)) < quantity:
            rows.result.issues.append(IssueDocument("pnl", record.hash, NO_PREPAID_GAS))
        if moved:
            movements.append((kind, Side(asset, quantity, money_of(row.value)).part(moved)))
    return movements
