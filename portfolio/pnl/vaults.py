"""Types of transactions that changed vaults: deposits of collateral, and loans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from chainfolio import amounts
from chainfolio.portfolio.document import UNKNOWN
from chainfolio.portfolio.pnl.record_rows import DIGITS, Treatment, asset_key
from chainfolio.portfolio.transactions import TransactionAssetDocument, TransactionDocument, TransactionType
from chainfolio.position_changes import VaultChange

COLLATERAL_DECIMALS: Final = 18
Key = tuple[str, str]  # chain and hash of a transaction


def typed_by_vaults(
    records: Sequence[TransactionDocument],
    changes: Mapping[Key, Sequence[VaultChange] | None],
    own_wallets: Collection[str],
    treatment: Treatment,
) -> tuple[list[TransactionDocument], set[Key]]:
    """Return the records, the oldest first, with the types that changes of own vaults give them.

    Returns:
        The records, and the transactions whose gains are not known: vaults changed by other amounts than wallets moved,
        now or before.
    """
    by_transaction = defaultdict[Key, list[TransactionDocument]](list)
    for record in records:
        if (key := (record.chain.key, record.hash)) in changes:
            by_transaction[key].append(record)
    vaults, types, unread = (
        _Vaults(own_wallets, treatment),
        dict[Key, tuple[TransactionType, VaultChange]](),
        set[Key](),
    )
    for key, same in by_transaction.items():
        of_transaction = changes[key]
        if of_transaction is None:
            unread.add(key)
            continue
        result = vaults.type_of(same, of_transaction)
        if result is None:
            unread.add(key)
        elif result != "":
            types[key] = result, of_transaction[0]
    typed = [
        _typed(record, *types[key], treatment) if (key := (record.chain.key, record.hash)) in types else record
        for record in records
    ]
    return typed, unread


@dataclass(slots=True)
class _Vaults:
    """The vaults that wallets used so far.

    Attributes:
        own: Vaults with collateral of the wallets: others may send their transactions, as for a contract wallet.
        unclear: Vaults that changed by other amounts than the wallets moved.
        drawn: The balance that wallets drew out of core contracts by themselves; negative if they hold one there.
    """

    own_wallets: Collection[str]
    treatment: Treatment
    own: set[str] = field(default_factory=set)
    unclear: set[str] = field(default_factory=set)
    drawn: int = 0

    def type_of(
        self, records: Sequence[TransactionDocument], changes: Sequence[VaultChange]
    ) -> TransactionType | Literal[""] | None:
        """Return the type of a transaction: "" if no own vault changed, None if it is not known."""
        net, minted, has_given = self._net(records)
        is_sent = records[0].sender in self.own_wallets
        if not changes or not (is_sent or has_given or any(change.vault in self.own for change in changes)):
            return ""
        if not net and not any(change.raw or change.collateral for change in changes):
            return ""
        if not any(change.token for change in changes):
            self.own |= {change.vault for change in changes} if has_given else set()
            return ""
        type_ = self._type(records[0].chain.key, net, minted, changes)
        names = {change.vault for change in changes}
        if type_ is None or not names.isdisjoint(self.unclear):
            self.unclear |= names
            return None
        self.own |= names if has_given and (changes[0].collateral or 0) > 0 else set()
        return type_

    def _type(
        self, chain: str, net: Mapping[str, tuple[int, int]], minted: Collection[str], changes: Sequence[VaultChange]
    ) -> TransactionType | None:
        """Return the type if one vault changed by exactly what the wallets moved; else None."""
        if len(changes) > 1:
            return None
        (change,) = changes
        token = self.treatment.aliases.get(f"{chain}:{change.token}", f"{chain}:{change.token}")
        raw, _ = net.get(token, (0, 0))
        others = {asset: moved for asset, moved in net.items() if asset != token}
        if raw != change.raw:
            return None
        if change.collateral is None:  # tokens that were created or destroyed are shares, or stand for the debt
            is_other_way = all(moved * raw < 0 for asset, (moved, _) in others.items() if asset not in minted)
            return None if not is_other_way else "BORROW" if raw > 0 else "REPAYVAULT"
        if not _is_collateral([*others.values()], change.collateral):
            return None
        if change.kind == "balance":
            is_loan = self.drawn > 0 or (raw > 0 and self.drawn == 0)
            self.drawn = max(self.drawn + raw, 0) if is_loan else min(self.drawn + raw, 0)
            return ("BORROW" if raw > 0 else "REPAYVAULT") if is_loan else "DEPOSIT" if raw < 0 else "WITHDRAW"
        if change.kind == "savings":
            return "DEPOSIT" if raw < 0 else "WITHDRAW"
        if raw * change.collateral < 0:  # both came or both left: one type does not say what is what
            return None
        if raw:
            return "BORROW" if raw > 0 else "REPAYVAULT"
        return "DEPOSIT" if change.collateral > 0 else "WITHDRAW"

    def _net(self, records: Sequence[TransactionDocument]) -> tuple[dict[str, tuple[int, int]], set[str], bool]:
        """Return the net movements of the wallets.

        Returns:
            What the wallets moved, with its decimals, by asset; the assets among these that were created or destroyed;
            whether something left the wallets.
        """
        net, minted = dict[str, tuple[int, int]](), set[str]()
        has_given = False
        for row, sign in _external(records, self.own_wallets):
            key, decimals = self.treatment.aliases.get(asset_key(row), asset_key(row)), int(row.decimal)
            raw = int(amounts.EXACT.scaleb(amounts.parse(row.balance, max_digits=DIGITS), decimals))
            net[key] = net.get(key, (0, 0))[0] + sign * raw, decimals
            minted |= {key} if {row.sender, row.recipient} & {*self.treatment.burn_addresses} else set()
            has_given = has_given or sign < 0
        return {key: moved for key, moved in net.items() if moved[0]}, minted, has_given


def _external(
    records: Sequence[TransactionDocument], own_wallets: Collection[str]
) -> Iterator[tuple[TransactionAssetDocument, int]]:
    """Yield the movements between wallets and others, with 1 for what came and -1 for what left."""
    for record in records:
        for row in record.assets_in:
            if row.sender not in own_wallets and UNKNOWN not in (row.balance, row.decimal):
                yield row, 1
        for row in record.assets_out:
            if row.recipient not in own_wallets and UNKNOWN not in (row.balance, row.decimal):
                yield row, -1


def _is_collateral(others: Sequence[tuple[int, int]], change: int) -> bool:
    """Return True if the other assets that moved are exactly the collateral of a change, up to rounding."""
    if not change or not others:
        return not change and not others
    (raw, decimals), *more = others
    scale = COLLATERAL_DECIMALS - decimals
    return not more and scale >= 0 and abs(raw * 10**scale + change) < 10**scale


def _typed(
    record: TransactionDocument, type_: TransactionType, change: VaultChange, treatment: Treatment
) -> TransactionDocument:
    """Return the record with a type. Tokens that were created or destroyed moved from or to the vault."""

    def side(row: TransactionAssetDocument) -> TransactionAssetDocument:
        burn_addresses = treatment.burn_addresses
        if row.contract != change.token:
            return row
        return msgspec.structs.replace(
            row,
            sender=change.contract if row.sender in burn_addresses else row.sender,
            recipient=change.contract if row.recipient in burn_addresses else row.recipient,
        )

    return msgspec.structs.replace(
        record,
        type=type_,
        assets_in=tuple(map(side, record.assets_in)),
        assets_out=tuple(map(side, record.assets_out)),
    )
