"""Types of transactions that swapped assets for shares of a pool in its vault, or the reverse.

Balancer's composable pools have their own share among their tokens. So a swap in the vault adds or removes liquidity,
and no share is created or destroyed. The events of the vault tell it from a trade of shares in another pool.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.transaction_records import MovedAsset, TransactionRecord
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
    """Return the records, the oldest first, with swaps for shares of a pool as added or removed liquidity.

    Their shares come from the contract of the share or go to it, as if they were created and destroyed.
    """
    typed, known_shares = list[TransactionRecord](), set[str]()
    for record in records:
        legs = [change for change in changes.get(record.key) or () if change.kind == SHARE]
        if legs and record.type in TRADES:
            type_, share = _type(record, legs, own_wallets, treatment, known_shares)
            record = record if type_ is None else _with_issuer(record, type_, share)
        if record.type == "ADDLIQUIDITY":
            issuers = treatment.burn_addresses
            known_shares |= {row.key for row in record.assets_in if row.sender in (*issuers, row.contract)}
        typed.append(record)
    return typed


def _type(
    record: TransactionRecord,
    legs: Sequence[VaultChange],
    own_wallets: Collection[str],
    treatment: Treatment,
    known_shares: Collection[str],
) -> tuple[TransactionType | None, str]:
    """Return the type of a transaction that swapped for, or back from, a pool's share, and that share.

    None if it did neither. All that counts must have moved between wallet and vault, and be what the vault swapped:
    other payments and hops through other pools are trades, and so is an exchange of shares for shares.
    """
    vaults = {leg.contract for leg in legs}
    swapped, net = defaultdict[str, int](int), defaultdict[str, int](int)
    pools = {*known_shares, *(f"{record.chain}:{leg.vault}" for leg in legs)}
    for leg in legs:
        key = f"{record.chain}:{leg.token}"
        swapped[treatment.aliases.get(key, key)] += leg.raw
    is_sent = record.sender in own_wallets
    for row, other, direction in (
        *((row, row.sender, 1) for row in record.assets_in),
        *((row, row.recipient, -1) for row in record.assets_out),
    ):
        if other in own_wallets or not (is_sent or treatment.is_trusted(row.chain_contract) or row.key in pools):
            continue
        if other not in vaults:
            return None, ""
        net[treatment.key_of(row)] += direction * (row.raw or 0)
    moved = {key: raw for key, raw in net.items() if raw}
    if moved != {key: raw for key, raw in swapped.items() if raw}:
        return None, ""
    shares = [key for key in moved if key in pools]
    if len(shares) != 1 or len(moved) == 1:
        return None, ""
    (share,) = shares
    others = [raw > 0 for key, raw in moved.items() if key != share]
    is_added = moved[share] > 0
    return (None, "") if is_added in others else ("ADDLIQUIDITY" if is_added else "REMOVELIQUIDITY", share)


def _with_issuer(record: TransactionRecord, type_: TransactionType, share: str) -> TransactionRecord:
    """Return a record with a type, in which the contract of a share issues it and takes it back."""

    def rows(of_record: Sequence[MovedAsset], other: str) -> tuple[MovedAsset, ...]:
        return tuple(
            msgspec.structs.replace(row, **{other: row.contract}) if row.key == share else row for row in of_record
        )

    incoming, outgoing = rows(record.assets_in, "sender"), rows(record.assets_out, "recipient")
    return msgspec.structs.replace(record, type=type_, assets_in=incoming, assets_out=outgoing)
