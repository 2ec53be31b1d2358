"""Types of transactions that changed vaults: deposits of collateral, and loans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from chainfolio.portfolio.pnl.debts import MAX_INTEREST
from chainfolio.portfolio.pnl.record_kinds import DEPOSITS, WITHDRAWALS
from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.transaction_records import MovedAsset, TransactionRecord
from chainfolio.portfolio.transactions import TransactionType
from chainfolio.position_changes import VaultChange

COLLATERAL_DECIMALS: Final = 18
ACCOUNT_DIGITS: Final = 64  # a vault of a core contract ends with the 32 bytes of its account
Key = tuple[str, str]  # chain and hash of a transaction
AccountKey = tuple[str, str, str]  # chain, core contract and account


def typed_by_vaults(
    records: Sequence[TransactionRecord],
    changes: Mapping[Key, Sequence[VaultChange] | None],
    own_wallets: Collection[str],
    treatment: Treatment,
) -> tuple[list[TransactionRecord], set[Key]]:
    """Return the records, the oldest first, with the types that changes of own vaults give them.

    Returns:
        The records, and the transactions whose gains are not known: vaults changed by other amounts than wallets moved,
        now or before.
    """
    by_transaction = defaultdict[Key, list[TransactionRecord]](list)
    for record in records:
        if (key := record.key) in changes:
            by_transaction[key].append(record)
    vaults, types, unread = (
        _Vaults(own_wallets, treatment),
        dict[Key, tuple[TransactionType, VaultChange]](),
        set[Key](),
    )
    for key, same in by_transaction.items():
        of_transaction = changes[key]
        if of_transaction is None:
            unread |= {key} if vaults.is_by_wallet(same) else set()
            continue
        own_changes = [change for change in of_transaction if _may_be_own(change, own_wallets)]
        result = vaults.type_of(same, own_changes) if own_changes else vaults.type_of_others(same, of_transaction)
        if result is None:
            unread.add(key)
        elif result != "":
            types[key] = result, own_changes[0]
    typed = [_typed(record, *types[key], treatment) if (key := record.key) in types else record for record in records]
    return typed, unread


@dataclass(slots=True)
class _Balance:
    """Movements between wallets and the balance of an account in a core contract, in smallest units.

    Attributes:
        saved: What is there because it was sent before any loan.
        borrowed: All that was borrowed.
        repaid: All that was repaid.
    """

    saved: int = 0
    borrowed: int = 0
    repaid: int = 0

    def type_of(self, raw: int) -> TransactionType | None:
        """Return the type of a change of the balance alone: a payment if `raw` is negative.

        After a loan, payments repay it with its interest. Coins that could come from too large a payment have no type,
        and neither has a withdrawal of more than was saved.
        """
        if raw < 0 and not self.borrowed and not self.repaid:
            return "DEPOSIT"
        if raw < 0:
            return "REPAYVAULT" if self.repaid - raw <= self.borrowed + self.borrowed // MAX_INTEREST else None
        if self.saved:
            return "WITHDRAW" if raw <= self.saved else None
        return "BORROW" if raw > self.repaid - self.borrowed else None

    def add(self, type_: TransactionType, raw: int) -> None:
        """Count a transaction of a known type."""
        if type_ == "BORROW":
            self.borrowed += raw
        elif type_ == "REPAYVAULT":
            self.repaid -= raw
        else:
            self.saved -= raw


@dataclass(slots=True)
class _Vaults:
    """The vaults that wallets used so far, by chain, core contract and account.

    Attributes:
        own_vaults: Vaults with collateral of the wallets: others may send their transactions, as for a contract wallet.
        unclear: Vaults that changed by other amounts than the wallets moved.
        balances: What moved between wallets and the balances of accounts.
    """

    own_wallets: Collection[str]
    treatment: Treatment
    own_vaults: set[AccountKey] = field(default_factory=set)
    unclear: set[AccountKey] = field(default_factory=set)
    balances: defaultdict[AccountKey, _Balance] = field(default_factory=lambda: defaultdict(_Balance))

    def is_by_wallet(self, records: Sequence[TransactionRecord]) -> bool:
        """Return True if something left the wallets, or if one of them sent the transaction or was called.

        Anyone can send tokens to a wallet in a transaction that also changes a vault.
        """
        return self._net(records)[2] or not {records[0].sender, records[0].recipient}.isdisjoint(self.own_wallets)

    def type_of(
        self, records: Sequence[TransactionRecord], changes: Sequence[VaultChange]
    ) -> TransactionType | Literal[""] | None:
        """Return the type of a transaction: "" if no own vault changed, None if it is not known.

        Own vaults, unclear ones and balances are stored for later transactions.
        """
        net, minted, has_given = self._net(records)
        is_by_wallet = has_given or records[0].sender in self.own_wallets
        chain = records[0].chain
        keys = {_account_key(chain, change) for change in changes}
        if not changes or not (is_by_wallet or not keys.isdisjoint(self.own_vaults)):
            return ""
        if not net and not any(change.raw or change.collateral for change in changes):
            return ""
        if not any(change.token for change in changes):
            self.own_vaults |= keys if has_given else set()
            return _type_of_collateral(records[0].type, net, minted)
        type_ = self._type(chain, net, minted, changes)
        if type_ is None or not keys.isdisjoint(self.unclear):
            # Anyone may repay a loan of others or add collateral: that alone does not make their vaults unclear.
            if is_by_wallet or any(change.raw > 0 or (change.collateral or 0) < 0 for change in changes):
                self.unclear |= keys
            return None
        is_deposit = changes[0].collateral is None or changes[0].collateral > 0
        self.own_vaults |= keys if has_given and is_deposit else set()
        for key in keys:
            self.balances[key].add(type_, changes[0].raw)
        return type_

    def type_of_others(
        self, records: Sequence[TransactionRecord], changes: Sequence[VaultChange]
    ) -> Literal[""] | None:
        """Return None if exactly the debt or balance of another account moved and nothing else, else "".

        The account can be a proxy of the wallet, or a stranger's.
        """
        net, _, has_given = self._net(records)
        chain = records[0].chain
        net_raws = {token: raw for token, (raw, _) in net.items()}
        if not has_given and records[0].sender not in self.own_wallets:
            return ""
        return None if any(net_raws == {self._token_key(chain, change): change.raw} for change in changes) else ""

    def _token_key(self, chain: str, change: VaultChange) -> str:
        return self.treatment.aliases.get(f"{chain}:{change.token}", f"{chain}:{change.token}")

    def _type(
        self, chain: str, net: Mapping[str, tuple[int, int]], minted: Collection[str], changes: Sequence[VaultChange]
    ) -> TransactionType | None:
        """Return the type if one vault changed by exactly what the wallets moved; else None."""
        if len(changes) > 1:
            return None
        (change,) = changes
        token = self._token_key(chain, change)
        raw, _ = net.get(token, (0, 0))
        other_assets = {asset: total for asset, total in net.items() if asset != token}
        if raw != change.raw:
            return None
        if change.collateral is None:  # tokens that were created or destroyed are shares, or stand for the debt
            is_other_way = all(total * raw < 0 for asset, (total, _) in other_assets.items() if asset not in minted)
            return None if not is_other_way else "BORROW" if raw > 0 else "REPAYVAULT"
        if not _is_collateral([*other_assets.values()], change.collateral):
            return None
        if change.kind == "balance":
            return self.balances[_account_key(chain, change)].type_of(raw)
        if change.kind == "savings":
            return "DEPOSIT" if raw < 0 else "WITHDRAW"
        if raw * change.collateral < 0:  # both came or both left: one type does not say what is what
            return None
        if raw:
            return "BORROW" if raw > 0 else "REPAYVAULT"
        return "DEPOSIT" if change.collateral > 0 else "WITHDRAW"

    def _net(self, records: Sequence[TransactionRecord]) -> tuple[dict[str, tuple[int, int]], set[str], bool]:
        """Return the net movements of the wallets.

        Returns:
            What the wallets moved, with its decimals, by asset; the assets among these that were created or destroyed;
            whether something left the wallets. If they did not send the transaction, trusted contracts alone count.
        """
        net, minted = dict[str, tuple[int, int]](), set[str]()
        has_given, is_sent = False, records[0].sender in self.own_wallets
        for row, raw in _external(records, self.own_wallets):
            key = self.treatment.key_of(row)
            net[key] = net.get(key, (0, 0))[0] + raw, row.decimals or 0
            minted |= {key} if {row.sender, row.recipient} & {*self.treatment.burn_addresses} else set()
            has_given = has_given or (raw < 0 and (is_sent or self.treatment.is_trusted(row.chain_contract)))
        return {key: total for key, total in net.items() if total[0]}, minted, has_given


def _type_of_collateral(
    type_: TransactionType, net: Mapping[str, tuple[int, int]], minted: Collection[str]
) -> TransactionType | Literal[""]:
    """Return the type of a change of collateral alone: that of its call if known, "" if both sides moved."""
    is_in = {total > 0 for asset, (total, _) in net.items() if asset not in minted}
    if type_ in DEPOSITS | WITHDRAWALS:
        return type_
    if len(is_in) != 1:
        return ""
    return "WITHDRAW" if True in is_in else "DEPOSIT"


def _may_be_own(change: VaultChange, own_wallets: Collection[str]) -> bool:
    """Return False if a change leaves a debt as it was, or if its account is known and is no own wallet.

    A vault with collateral in its logs mostly belongs to a proxy, whose owner is not known.
    """
    if change.kind != "balance" and change.collateral is not None:
        return True
    if change.kind == "loan" and change.token and not change.raw:
        return False
    # The vault ends with the wallet, or is the part of the wallet that all its accounts have in common.
    return any(change.vault.endswith(each.removeprefix("0x")) or each.startswith(change.vault) for each in own_wallets)


def _account_key(chain: str, change: VaultChange) -> AccountKey:
    return chain, change.contract, change.vault[-ACCOUNT_DIGITS:]


def _external(records: Sequence[TransactionRecord], own_wallets: Collection[str]) -> Iterator[tuple[MovedAsset, int]]:
    """Yield the movements between wallets and others, with what came, or the negative of what left."""
    for record in records:
        for row in record.assets_in:
            if row.sender not in own_wallets and row.raw is not None:
                yield row, row.raw
        for row in record.assets_out:
            if row.recipient not in own_wallets and row.raw is not None:
                yield row, -row.raw


def _is_collateral(other_assets: Sequence[tuple[int, int]], change: int) -> bool:
    """Return True if the other assets that moved are exactly the collateral of a change, up to rounding."""
    if not change or not other_assets:
        return not change and not other_assets
    (raw, decimals), *more = other_assets
    scale = COLLATERAL_DECIMALS - decimals
    return not more and scale >= 0 and abs(raw * 10**scale + change) < 10**scale


def _typed(
    record: TransactionRecord, type_: TransactionType, change: VaultChange, treatment: Treatment
) -> TransactionRecord:
    """Return the record with a type, without collectibles that were created: they stand for the vault.

    Tokens that were created or destroyed moved from or to the vault. Collateral lies at the holder of the change.
    """
    burn_addresses = treatment.burn_addresses

    def side(row: MovedAsset, other: str) -> MovedAsset:
        if row.contract != change.token and change.holder and not row.is_collectible:
            return msgspec.structs.replace(row, **{other: change.holder})
        if row.contract != change.token:
            return row
        return msgspec.structs.replace(
            row,
            sender=change.contract if row.sender in burn_addresses else row.sender,
            recipient=change.contract if row.recipient in burn_addresses else row.recipient,
        )

    incoming = (row for row in record.assets_in if not row.is_collectible or row.sender not in burn_addresses)
    return msgspec.structs.replace(
        record,
        type=type_,
        assets_in=tuple(side(row, "sender") for row in incoming),
        assets_out=tuple(side(row, "recipient") for row in record.assets_out),
    )
