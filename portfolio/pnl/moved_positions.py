"""Find positions that were lent to a contract that gave them back, or that were bought."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from chainfolio.portfolio.pnl.entries import Kind
from chainfolio.portfolio.pnl.record_kinds import PAYMENTS
from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.returned_assets import returned_assets
from chainfolio.portfolio.pnl.transaction_records import TransactionRecord
from chainfolio.position_changes import PositionChange

Changes = Mapping[tuple[str, str], Sequence[PositionChange] | None]


@dataclass(frozen=True, slots=True)
class MovedPositions:
    """Positions that were lent or bought, as later transactions show.

    Attributes:
        lent: Positions that went away and came back, both without a payment, with the orders of both records; or that
            went away and paid the wallet later. Also other assets that a contract took and returned, with the order of
            the record that took them.
        takers: Assets that left, each with the address that took it, and the order from which on what it pays of the
            asset is no reward: that of the first record that paid it; 0 if one of no known type did, which may have
            repaid a loan.
        bought: Positions that others created, with the order of the record that brought them, and their liquidity
            then; 0 if it is not known. It is known if they were burnt, because all of it was removed before.
    """

    lent: set[tuple[str, int]] = field(default_factory=set)
    takers: dict[tuple[str, str], int] = field(default_factory=dict)
    bought: dict[tuple[str, int], int] = field(default_factory=dict)

    def kind_of(self, kind: Kind, asset: str, order: int) -> Kind:
        """Return the kind of a movement that left: a deposit if it was sent and came back."""
        return "deposit" if kind == "sent" and (asset, order) in self.lent else kind


def moved_positions(
    records: Sequence[TransactionRecord], changes: Changes, own_wallets: Collection[str], treatment: Treatment
) -> MovedPositions:
    """Return which assets were lent and which positions bought, by all records, the oldest first.

    `takers` are those of records that an own wallet sent, or of trusted assets; not those of spam.
    """
    result = _lent_and_bought_positions(records, changes, own_wallets, treatment)
    result.lent.update(returned_assets(records, own_wallets, treatment))
    for order, record in enumerate(records):
        first = 0 if record.type in PAYMENTS else order
        for row in record.assets_out if record.type != "SPAM" else ():
            is_certain = record.sender in own_wallets or treatment.is_trusted(row.chain_contract)
            if is_certain and row.raw:
                key = treatment.key_of(row), row.recipient
                result.takers[key] = min(first, result.takers.get(key, first))
    return result


def _lent_and_bought_positions(
    records: Sequence[TransactionRecord],
    changes: Changes,
    own_wallets: Collection[str],
    treatment: Treatment,
) -> MovedPositions:
    """Return the positions that came from others, and those that were lent and came back.

    Bought: it came from an address that is neither an own wallet nor a burn address. It has the liquidity that was
    removed before it was burnt. Lent: it left without a payment, and the same address returned it without one, or it
    paid in the meantime (`_paying_positions`). `takers` stays empty.

    Args:
        records: All records, the oldest first.
        changes: Changes of positions by chain and transaction. Other assets are ignored.
    """
    result, unread = MovedPositions(), dict(changes)  # each transaction once, if several wallets took part
    burn_addresses = treatment.burn_addresses
    position_keys = {change.key(chain) for (chain, _), each in changes.items() for change in each or ()}
    borrowers: dict[str, tuple[str, int]] = {}
    arrivals: dict[str, int] = {}
    removed: dict[str, int] = {}
    for order, record in enumerate(records if position_keys else ()):
        for row in record.assets_in:
            key = row.key
            if key not in position_keys or row.sender in own_wallets or row.sender in burn_addresses:
                continue
            borrower, lent = borrowers.pop(key, ("", 0))
            if borrower == row.sender and not record.assets_out:
                result.lent.update(((key, lent), (key, order)))
                continue
            arrivals[key], removed[key] = order, 0
            result.bought[key, order] = 0
        of_record = unread.pop(record.key, ()) or ()
        for change in of_record:
            key = change.key(record.chain)
            removed[key] = removed.get(key, 0) - change.units
        result.lent.update(_paying_positions(record, of_record, borrowers, own_wallets, treatment.aliases))
        for row in record.assets_out:
            key = row.key
            if not row.is_collectible or row.recipient in own_wallets:
                continue
            if not record.assets_in:
                borrowers[key] = row.recipient, order
            if row.recipient in burn_addresses and key in arrivals:
                result.bought[key, arrivals[key]] = max(removed[key], 0)
    return result


def _paying_positions(
    record: TransactionRecord,
    changes: Sequence[PositionChange],
    borrowers: Mapping[str, tuple[str, int]],
    own_wallets: Collection[str],
    aliases: Mapping[str, str],
) -> Iterator[tuple[str, int]]:
    """Yield positions that paid own tokens while a contract had them.

    Each has the order of the record that sent it.

    Their units do not change, and the record brings one of their tokens. They count if an own wallet called that
    contract, or in a call of a contract wallet: a buyer can let a position pay its seller, too.
    """
    is_by_wallet = record.recipient == record.wallet
    received_keys = {aliases.get(row.key, row.key) for row in record.assets_in}
    for change in changes:
        borrower, order = borrowers.get(change.key(record.chain), ("", 0))
        is_own_call = record.sender in own_wallets and record.recipient == borrower
        tokens = (f"{record.chain}:{token}" for token in change.tokens)
        is_payment = not change.units and not received_keys.isdisjoint(aliases.get(token, token) for token in tokens)
        if borrower and is_payment and (is_own_call or is_by_wallet):
            yield change.key(record.chain), order
