"""Find assets that contracts took in calls of no known type and gave back later: they were deposits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.transaction_records import MovedAsset, TransactionRecord

TAKES, RETURNS = frozenset({"INTERACTION", "UNDEFINED"}), frozenset({"INTERACTION", "UNDEFINED", "TRANSFERIN"})


def returned_assets(
    records: Sequence[TransactionRecord], own_wallets: Collection[str], treatment: Treatment
) -> Iterator[tuple[str, int]]:
    """Yield assets that a contract took without a payment, each with the order of the record.

    They count if the contract returned all of them; none if deposits are disposals. A sender that is not the sender of
    the transaction is a contract.
    """
    taken: dict[tuple[str, str], tuple[int, list[int]]] = {}
    for order, record in enumerate(records if not treatment.deposits_are_disposals else ()):
        if _takes(record) and not record.assets_in:
            for asset, contract, amount in _amounts(record.assets_out, own_wallets, treatment, is_in=False):
                total, orders = taken.get((asset, contract), (0, []))
                taken[asset, contract] = total + amount, [*orders, order]
        elif record.type in RETURNS and not record.assets_out:
            for asset, contract, amount in _amounts(record.assets_in, own_wallets, treatment, is_in=True):
                if contract == record.sender or (asset, contract) not in taken:
                    continue
                total, orders = taken.pop((asset, contract))
                if total > amount:
                    taken[asset, contract] = total - amount, orders
                else:
                    yield from ((asset, each) for each in orders)


def _takes(record: TransactionRecord) -> bool:
    """Return True for calls of no known type. Every call of a contract wallet looks like a transfer."""
    is_by_others = record.sender != record.wallet
    return record.type in TAKES or (record.type == "TRANSFEROUT" and is_by_others)


def _amounts(
    rows: Sequence[MovedAsset], own_wallets: Collection[str], treatment: Treatment, *, is_in: bool
) -> Iterator[tuple[str, str, int]]:
    """Yield asset, counterparty and amount of the movements between wallets and others.

    Collectibles, unknown amounts and burn addresses are left out.
    """
    for row in rows:
        other = row.sender if is_in else row.recipient
        if not row.is_collectible and row.raw is not None and other not in (*own_wallets, *treatment.burn_addresses):
            yield treatment.key_of(row), other, row.raw
