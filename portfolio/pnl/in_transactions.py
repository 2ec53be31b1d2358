"""Adds an account's gains to its transactions: cost and gain of disposals, cost of acquisitions.

The figures are those of the report: all `closedPnl` of an account add up to its closed gain. If one asset moved in
several rows of a transaction, the rows share the cost and gain of its net movement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET

from chainfolio import amounts
from chainfolio.portfolio.document import UNKNOWN, rounded
from chainfolio.portfolio.pnl.closing import unclosed_gain
from chainfolio.portfolio.pnl.entries import ACQUIRED, Entry, decimal, share
from chainfolio.portfolio.pnl.gains import Gain, acquired_lot
from chainfolio.portfolio.pnl.report import text, total
from chainfolio.portfolio.pnl.transaction_records import asset_key
from chainfolio.portfolio.transactions import TransactionAssetDocument, TransactionDocument, raw_balance

PLACES: Final = 18  # of a cost by unit
Key = tuple[str, str]  # of a transaction and an asset


@dataclass(frozen=True, slots=True)
class TransactionGains:
    """The costs of acquisitions and the disposals of one account, by transaction hash and asset.

    A transaction may dispose of assets that it does not move: what lies in a position whose share it sells. `aliases`
    maps keys of assets that count as another one. `unclosed` assets have no known gain, because their transactions do
    not add up to what is held. `shares` stand for deposits. `reason` says why nothing is known.
    """

    costs: Mapping[Key, int | None] = field(default_factory=dict)
    disposals: Mapping[str, Mapping[str, Sequence[Gain]]] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    unclosed: frozenset[str] = frozenset()
    shares: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """The number of costs and disposals, for limits of caches."""
        return len(self.costs) + sum(len(gains) for by_asset in self.disposals.values() for gains in by_asset.values())


class Part(NamedTuple):
    """The cost of a part of an asset, and the gain of its disposal; None if not known."""

    cost: int | None
    closed: int | None


def transaction_gains(
    entries: Iterable[Entry],
    gains: Iterable[Gain],
    aliases: Mapping[str, str],
    shares: frozenset[str] = frozenset(),
) -> TransactionGains:
    """Return costs of acquisitions and gains of disposals, by transaction and asset; no income.

    A cost is None if a part of it is.

    Args:
        entries: All entries of an account.
        gains: The gains that they give.
        aliases: Keys of assets, by keys of assets that count as them.
        shares: Keys of shares of positions.
    """
    costs: defaultdict[Key, list[int | None]] = defaultdict(list)
    for entry in entries:
        if entry.kind in ACQUIRED:
            costs[entry.transaction, entry.asset].append(acquired_lot(entry).cost)
    disposals: defaultdict[str, defaultdict[str, list[Gain]]] = defaultdict(lambda: defaultdict(list))
    for gain in gains:
        if gain.kind != "income":
            disposals[gain.transaction][gain.asset].append(gain)
    return TransactionGains(
        {key: total(parts) for key, parts in costs.items()}, dict(disposals), aliases, shares=shares
    )


def with_gains(transaction: TransactionDocument, gains: TransactionGains) -> tuple[TransactionDocument, dict[str, str]]:
    """Return a record with costs and gains, and the reasons for unknown ones by the keys of assets.

    The record is unchanged, without reasons, if the gains of the account are not known.
    """
    if gains.reason:
        return transaction, {}
    return _Record(transaction, gains).filled()


@dataclass(slots=True)
class _Record:
    record: TransactionDocument
    gains: TransactionGains

    def filled(self) -> tuple[TransactionDocument, dict[str, str]]:
        """Return the record with costs and gains, and the reasons for unknown ones by asset.

        The first share that left gets the gains of what it stood for: one that was not also bought, if there is one.
        """
        record, by_asset = self.record, defaultdict[str, list[TransactionAssetDocument]](list)
        for asset in (*record.assets_in, *record.assets_out):
            by_asset[self._key(asset)].append(asset)
        fee_key = self._key(record.native_asset_fees)
        disposals = {key: self._disposals(key) for key in (*by_asset, fee_key, *self._of_transaction)}
        fee_gains, disposals[fee_key] = self._split_fee(disposals[fee_key])
        parts: dict[int, Part] = {}
        for key, rows in by_asset.items():
            parts |= self._rows(rows, (record.hash, key), disposals[key])
        outgoing = set(map(self._key, record.assets_out))
        contents = [gain for key, gains in disposals.items() if key not in outgoing for gain in gains]
        shares = [row for row in record.assets_out if self._is_share(row)]
        share_row = next((row for row in shares if not disposals[self._key(row)]), next(iter(shares), None))
        if contents and share_row is not None:
            bought = [parts[id(share_row)]] if disposals[self._key(share_row)] else []
            costs = [*(part.cost for part in bought), *(gain.cost for gain in contents)]
            closed_parts = [*(part.closed for part in bought), *(gain.gain for gain in contents)]
            parts[id(share_row)] = Part(total(costs), total(closed_parts))
        fee = self._fee(fee_gains)
        closed = [*(gain.gain for gains in disposals.values() for gain in gains), *(gain.gain for gain in fee_gains)]
        faults = {
            gain.asset: gain.reason for gains in (*disposals.values(), fee_gains) for gain in gains if gain.reason
        }
        return msgspec.structs.replace(
            record,
            closed_pnl=text(total(closed)),
            native_asset_fees=fee,
            assets_in=tuple(_with_part(asset, parts[id(asset)]) for asset in record.assets_in),
            assets_out=tuple(_with_part(asset, parts[id(asset)]) for asset in record.assets_out),
        ), faults

    def _key(self, asset: TransactionAssetDocument) -> str:
        key = asset_key(asset)
        return self.gains.aliases.get(key, key)

    def _is_share(self, row: TransactionAssetDocument) -> bool:
        """Return True for a share of deposits, and for the collectible of a position."""
        return row.nft is not UNSET or self._key(row) in self.gains.shares

    @property
    def _of_transaction(self) -> Mapping[str, Sequence[Gain]]:
        return self.gains.disposals.get(self.record.hash, {})

    def _disposals(self, key: str) -> list[Gain]:
        disposals = list(self._of_transaction.get(key, ()))
        return list(map(unclosed_gain, disposals)) if key in self.gains.unclosed else disposals

    def _split_fee(self, gains: Sequence[Gain]) -> tuple[list[Gain], list[Gain]]:
        """Split gains of the fee's coin into those of the transaction's fee, and the others.

        The transaction's fee comes before interest, which is also of the kind `fee`: gains count as the fee's until
        their quantities reach it. There are none if another account than the user's sent the transaction.

        Returns:
            The gains of the fee, and the others.
        """
        record = self.record
        fee_raw = raw_balance(record.native_asset_fees) if record.sender == record.user.address else 0
        fee_gains, other_gains = list[Gain](), list[Gain]()
        for gain in gains:
            if gain.kind == "fee" and fee_raw > 0:
                fee_gains.append(gain)
                fee_raw -= gain.quantity
            else:
                other_gains.append(gain)
        return fee_gains, other_gains

    def _fee(self, fee_gains: Sequence[Gain]) -> TransactionAssetDocument:
        asset = self.record.native_asset_fees
        if self.record.sender != self.record.user.address:  # another account paid it
            return asset
        return _with_part(asset, Part(total(gain.cost for gain in fee_gains), total(gain.gain for gain in fee_gains)))

    def _rows(self, rows: Sequence[TransactionAssetDocument], key: Key, gains: Sequence[Gain]) -> dict[int, Part]:
        """Return cost and gain of each row of one asset, by the identity of the row, divided by amount."""
        zero_part = Part(None, None if self.record.type == "SPAM" or _lacks_amounts(rows) else 0)
        parts = {id(row): zero_part for row in rows}
        if key in self.gains.costs:
            incoming = [row for row in rows if row.is_asset_in]
            costs = _split_by_amount(self.gains.costs[key], incoming)
            parts |= {id(row): Part(cost, 0) for row, cost in zip(incoming, costs, strict=True)}
        if gains:
            outgoing = [row for row in rows if not row.is_asset_in]
            costs = _split_by_amount(total(gain.cost for gain in gains), outgoing)
            closed = _split_by_amount(total(gain.gain for gain in gains), outgoing)
            parts |= {id(row): Part(*part) for row, *part in zip(outgoing, costs, closed, strict=True)}
        return parts


def _lacks_amounts(rows: Sequence[TransactionAssetDocument]) -> bool:
    return any(UNKNOWN in (row.balance, row.decimal) for row in rows)


def _split_by_amount(remaining: int | None, rows: Sequence[TransactionAssetDocument]) -> list[int | None]:
    """Return the parts of a sum for rows by their amounts, so that no unit of money is lost.

    All are None if the sum is, and 0 for rows without an amount.
    """
    remaining_raw = sum(map(raw_balance, rows))
    parts = list[int | None]()
    for row in rows:
        raw = raw_balance(row)
        part = None if remaining is None else share(remaining, raw, remaining_raw) if remaining_raw else 0
        remaining = None if remaining is None or part is None else remaining - part
        remaining_raw -= raw
        parts.append(part)
    return parts


def _with_part(asset: TransactionAssetDocument, part: Part) -> TransactionAssetDocument:
    """Return an asset with cost, cost per unit and closed gain; unknown ones are N/A."""
    unit = UNKNOWN
    if part.cost is not None and asset.balance not in (UNKNOWN, "0"):
        unit = amounts.text(rounded(Fraction(decimal(part.cost)) / Fraction(Decimal(asset.balance)), PLACES))
    return msgspec.structs.replace(
        asset, total_cost_basis=text(part.cost), cost_basis=unit, closed_pnl=text(part.closed)
    )
