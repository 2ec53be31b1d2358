"""Gas of contract wallets (ERC-4337).

Payments to the entry point are deposits, costs of operations are fees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

import msgspec

from chainfolio.portfolio.document import IssueDocument
from chainfolio.portfolio.pnl.containers import Containers
from chainfolio.portfolio.pnl.entries import Kind, decimal, money
from chainfolio.portfolio.pnl.pool_shares import SHARE
from chainfolio.portfolio.pnl.record_rows import RecordRows, money_of
from chainfolio.portfolio.pnl.trade_value import Side
from chainfolio.portfolio.pnl.transaction_records import MovedAsset, TransactionRecord
from chainfolio.position_changes import VaultChange

GAS: Final = "gas"
NO_PREPAID_GAS: Final = "no known deposit paid all gas of this operation: the rest counts as paid by the wallet itself"


def with_operation_fees(
    records: Sequence[TransactionRecord], changes: Mapping[tuple[str, str], Sequence[VaultChange] | None]
) -> list[TransactionRecord]:
    """Return records in which the operations of a contract wallet cost it what its deposit paid for them.

    The bundler pays the fee of the transaction, and the deposit of the wallet pays the bundler. So the wallet is the
    sender of such a record, and its fee goes from the sender of the transaction to the entry point.
    """
    return [_with_fee(record, changes.get(record.key) or ()) for record in records]


def loans_and_savings(
    changes: Mapping[tuple[str, str], Sequence[VaultChange] | None],
) -> dict[tuple[str, str], Sequence[VaultChange] | None]:
    """Return changes without gas and shares of pools, by chain and hash; transactions without any are left out."""
    of_vaults = {
        key: None if each is None else [change for change in each if change.kind not in (GAS, SHARE)]
        for key, each in changes.items()
    }
    return {key: each for key, each in of_vaults.items() if each or not changes[key]}


def _with_fee(record: TransactionRecord, changes: Sequence[VaultChange]) -> TransactionRecord:
    """Return a record with its wallet's prepaid gas as fee; unchanged if the wallet sent it or paid none."""
    own_changes = [change for change in changes if change.kind == GAS and change.vault == record.wallet]
    cost = -sum(change.raw for change in own_changes)
    fee = record.fee
    if not own_changes or record.sender == record.wallet:
        return record
    raw, value = None if fee.decimals is None else cost, None
    if fee.raw and fee.value is not None:
        value = decimal(int(Fraction(money(fee.value) * cost, fee.raw)))
    fee = msgspec.structs.replace(fee, raw=raw, value=value, sender=record.sender, recipient=own_changes[0].contract)
    return msgspec.structs.replace(record, sender=record.wallet, fee=fee)


def gas_movements(rows: RecordRows, containers: Containers) -> list[tuple[Kind, Side]]:
    """Return deposits for gas, and the withdrawal that paid the fee of this transaction.

    A fee takes at most the deposit; the result has an issue if that is less than the fee.
    """
    if not rows.treatment.gas_holders:
        return []
    record = rows.record
    fee = record.fee
    payments: list[tuple[Kind, MovedAsset]] = [("deposit", row) for row in record.assets_out]
    payments += [("withdraw", fee)] if record.sender == record.wallet else []
    movements = list[tuple[Kind, Side]]()
    for kind, row in payments:
        quantity = rows.quantity(row) if rows.is_gas(row) else None
        if not quantity:
            continue
        asset, settled_quantity = rows.asset_of(row), quantity
        if kind == "deposit":
            containers.stake(row.recipient, asset, quantity)
        elif (settled_quantity := containers.unstake([row.recipient], asset, quantity)) < quantity:
            rows.result.issues.append(IssueDocument("pnl", record.hash, NO_PREPAID_GAS))
        if settled_quantity:
            movements.append((kind, Side(asset, quantity, money_of(row)).part(settled_quantity)))
    return movements
