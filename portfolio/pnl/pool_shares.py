"""Types of transactions that swapped assets for shares of a pool inside its vault, or shares for assets.

Balancer's composable pools have their own share among their tokens. So a swap in the vault adds or removes liquidity,
and no share is created or destroyed. The events of the vault tell it from a trade of shares in another pool.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.transaction_records import TransactionRecord
from chainfolio.portfolio.transactions import TransactionType
from chainfolio.position_changes import VaultChange

SHARE: Final = "share"
TRADES: Final = frozenset({"SWAP", "INTERACTION", "UNDEFINED"})  # types of swaps, by their function or by what moved


def typed_by_pools(
    records: Sequence[TransactionRecord],
    changes: Mapping[tuple[str, str], Sequence[VaultChange] | None],
    own_wallets: Collection[str],
    treatment: Treatment,
) -> list[TransactionRecord]:
    """Return the records; swaps for shares of a pool have the type of added liquidity, the reverse of removed one."""
    typed = list[TransactionRecord]()
    for record in records:
        shares = [change for change in changes.get(record.key) or () if change.kind == SHARE]
        if shares and record.type in TRADES:
            type_ = _type(record, shares, own_wallets, treatment)
            record = record if type_ is None else msgspec.structs.replace(record, type=type_)
        typed.append(record)
    return typed


def _type(
    record: TransactionRecord, shares: Sequence[VaultChange], own_wallets: Collection[str], treatment: Treatment
) -> TransactionType | None:
    """Return the type of a transaction that swapped for shares or shares for other assets; else None.

    All shares must come from the vault that swapped them, or go to it: a share of others was bought or sold. If shares
    of two pools are exchanged, it is a trade.
    """
    net, swapped = defaultdict[str, int](int), defaultdict[str, int](int)
    holders = {f"{record.chain}:{change.token}": change.contract for change in shares}
    for change in shares:
        swapped[f"{record.chain}:{change.token}"] += change.raw
    is_sent, is_direct = record.sender in own_wallets, True
    for row, other, direction in (
        *((row, row.sender, 1) for row in record.assets_in),
        *((row, row.recipient, -1) for row in record.assets_out),
    ):
        if other in own_wallets or not (is_sent or treatment.is_trusted(row.chain_contract) or row.key in holders):
            continue
        net[treatment.key_of(row)] += direction * (row.raw or 0)
        is_direct = is_direct and holders.get(row.key, other) == other
    gained, lost = ({key for key, raw in net.items() if raw * sign > 0} for sign in (1, -1))
    added, removed = {key for key in gained if swapped[key] > 0}, {key for key in lost if swapped[key] < 0}
    if not is_direct or not gained or not lost or bool(added) is bool(removed):
        return None
    if added:
        return "ADDLIQUIDITY" if added == gained and len(added) == 1 else None
    return "REMOVELIQUIDITY" if removed == lost and len(removed) == 1 else None
