"""Gains, lots and the roll-forward of a period, computed from entries alone; no I/O.

`make` computes the tables with these functions, and `check` computes them again from the entries of a pack.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from chainfolio import amounts
from chainfolio.portfolio.document import UNKNOWN
from chainfolio.portfolio.pnl.closing import UNCLOSED, Key, without_unclosed
from chainfolio.portfolio.pnl.entries import (
    UNASKED,
    AssetFacts,
    Entry,
    iso_time,
    sort_entries,
    without_loans,
)
from chainfolio.portfolio.pnl.gains import SHORT, Gain, Gains, RemainingLots
from chainfolio.portfolio.pnl.lots import Lot
from chainfolio.portfolio.pnl.methods import gains_of
from chainfolio.portfolio.pnl.report import text, total

if TYPE_CHECKING:
    from datetime import tzinfo

    from chainfolio.exports.dataset import Row

OPENING, CLOSING = "opening", "closing"
ADDED: Final = frozenset({"buy", "received", "borrow"})
ENTRY_COLUMNS: Final = tuple(Entry._fields)
GAIN_COLUMNS: Final = (
    "time",
    "kind",
    "asset",
    "symbol",
    "wallet",
    "transaction",
    "raw",
    "decimals",
    "proceeds",
    "cost",
    "gain",
    "acquired",
    "acquiredIn",
    "rule",
    "reason",
)
LOT_COLUMNS: Final = ("end", "asset", "symbol", "wallet", "raw", "decimals", "cost", "acquired", "acquiredIn", "reason")
REMAINING_COLUMNS: Final = (
    "end",
    "asset",
    "symbol",
    "wallet",
    "raw",
    "decimals",
    "cost",
    "short",
    "deposited",
    "unasked",
    "reason",
)
ROLLFORWARD_COLUMNS: Final = (
    "asset",
    "symbol",
    "decimals",
    "openingRaw",
    "openingCost",
    "openingValue",
    "additionsRaw",
    "additionsCost",
    "incomeRaw",
    "incomeValue",
    "disposalsRaw",
    "disposalsCost",
    "proceeds",
    "gain",
    "feesRaw",
    "feesCost",
    "otherRaw",
    "otherCost",
    "closingRaw",
    "closingCost",
    "closingValue",
)


@dataclass(frozen=True, slots=True)
class Method:
    """Method of gains, with the zone of its days; `per_wallet` keeps the lots of each wallet apart."""

    name: str
    per_wallet: bool
    zone: tzinfo

    def gains(self, entries: Iterable[Entry]) -> Gains:
        """Return the gains of entries by this method."""
        return gains_of(entries, self.name, per_wallet=self.per_wallet, zone=self.zone)


@dataclass(frozen=True, slots=True)
class Accounting:
    """The gains of a period, and the lots at both of its ends.

    Attributes:
        gains: The disposals and incomes of the period; costs of `unclosed` assets are not known.
        lots: What remains at each end, by the name of the end.
        entries: The entries of the period, without deposits and loans.
    """

    gains: Sequence[Gain]
    lots: Mapping[str, Gains]
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class AssetTable:
    """Facts of assets for rows: symbol and decimals by key."""

    facts: Mapping[str, AssetFacts]

    def symbol(self, asset: str) -> str:
        """Return the symbol of an asset; empty if it is not known."""
        return self.facts[asset].symbol if asset in self.facts else ""

    def decimals(self, asset: str) -> int:
        """Return the decimals of an asset; 0 if they are not known."""
        return self.facts[asset].decimals if asset in self.facts else 0


def accounting(
    entries: Sequence[Entry], method: Method, opening_us: int, closing_us: int, unclosed: Collection[Key]
) -> Accounting:
    """Compute the gains between two instants, and the lots at each of them.

    Args:
        entries: All entries from the first transaction to the closing, in any order.
        unclosed: Assets (and wallets) whose transactions do not add up to what is held: their costs are not known.
    """
    until = [each for each in entries if each.time_us < closing_us]
    before = [each for each in until if each.time_us < opening_us]
    closing, opening = method.gains(until), method.gains(before)
    plain = without_loans(sort_entries(until), {}, per_wallet=method.per_wallet)
    return Accounting(
        [each for each in without_unclosed(closing, unclosed).gains if each.time_us >= opening_us],
        {OPENING: _with_lots(opening, unclosed), CLOSING: _with_lots(closing, unclosed)},
        [each for each in plain if each.time_us >= opening_us],
    )


def _with_lots(gains: Gains, unclosed: Collection[Key]) -> Gains:
    """Return gains whose lots of unclosed assets have no known cost."""
    lots = [
        each._replace(lot=_unknown(each.lot)) if (each.asset, each.wallet) in unclosed else each for each in gains.lots
    ]
    return Gains(gains.gains, without_unclosed(gains, unclosed).remaining, lots)


def _unknown(lot: Lot) -> Lot:
    return lot if lot.cost is None else replace(lot, cost=None, reason=UNCLOSED)


def gain_rows(result: Accounting, shown: AssetTable) -> list[Row]:
    """Return a row of GAIN_COLUMNS for each gain of the period."""
    return [
        (
            iso_time(each.time_us),
            each.kind,
            each.asset,
            shown.symbol(each.asset),
            each.wallet,
            each.transaction,
            str(each.quantity),
            str(shown.decimals(each.asset)),
            text(each.proceeds),
            text(each.cost),
            text(each.gain),
            iso_time(each.acquired_us),
            each.acquired_in,
            each.rule,
            each.reason,
        )
        for each in result.gains
    ]


def lot_rows(result: Accounting, shown: AssetTable) -> list[Row]:
    """Return a row of LOT_COLUMNS for each lot at each end; none for methods that pool all."""
    return [
        (
            end,
            each.asset,
            shown.symbol(each.asset),
            each.wallet,
            str(each.lot.quantity),
            str(shown.decimals(each.asset)),
            text(each.lot.cost),
            iso_time(each.lot.time_us),
            each.lot.transaction,
            each.lot.reason,
        )
        for end, gains in result.lots.items()
        for each in gains.lots
    ]


def remaining_rows(result: Accounting, shown: AssetTable) -> list[Row]:
    """Return a row of REMAINING_COLUMNS for each asset and wallet at each end: the sums of its lots."""
    return [
        (
            end,
            each.asset,
            shown.symbol(each.asset),
            each.wallet,
            str(each.quantity),
            str(shown.decimals(each.asset)),
            text(each.cost),
            str(each.short),
            str(each.deposited),
            str(each.unasked),
            each.reason,
        )
        for end, gains in result.lots.items()
        for each in gains.remaining
    ]


Values = Mapping[tuple[str, str], Decimal | None]


def rollforward_rows(result: Accounting, values: Values, shown: AssetTable) -> list[Row]:
    """Return a row of ROLLFORWARD_COLUMNS for each asset, in units and money.

    `other` is what the named movements leave: loans, transfers over chains, and what others claim.

    Args:
        values: The fair value of an asset by end and asset; None if it is not known, absent if nothing is held.
    """
    assets = sorted(
        {lots.asset for gains in result.lots.values() for lots in gains.remaining}
        | {each.asset for each in result.gains}
        | {asset for _, asset in values}
    )
    rows: list[Row] = []
    for asset in assets:
        opening, closing = (_sums(result.lots[end].remaining, asset) for end in (OPENING, CLOSING))
        added = _of(result.entries, asset, lambda each: each.kind in ADDED)
        income = _of(result.entries, asset, lambda each: each.kind == "income")
        gains = [each for each in result.gains if each.asset == asset and each.kind != "income"]
        sold, fees = [each for each in gains if each.kind != "fee"], [each for each in gains if each.kind == "fee"]
        moved = [opening, added, income, _negative(_taken(sold)), _negative(_taken(fees))]
        other = closing[0] - sum(units for units, _ in moved), _less(closing[1], total(cost for _, cost in moved))
        rows.append(
            (
                asset,
                shown.symbol(asset),
                str(shown.decimals(asset)),
                *_pair(opening),
                _value(values, OPENING, asset),
                *_pair(added),
                *_pair(income),
                *_pair(_taken(sold)),
                text(total(each.proceeds for each in sold)),
                text(total(each.gain for each in sold)),
                *_pair(_taken(fees)),
                *_pair(other),
                *_pair(closing),
                _value(values, CLOSING, asset),
            )
        )
    return rows


Sum = tuple[int, int | None]  # units, and money that is None if it is not known


def _sums(remaining: Iterable[RemainingLots], asset: str) -> Sum:
    lots = [each for each in remaining if each.asset == asset]
    return sum(each.quantity for each in lots), total(each.cost for each in lots)


def _of(entries: Iterable[Entry], asset: str, is_counted: Callable[[Entry], bool]) -> Sum:
    """Return quantity and cost of the entries of an asset that count."""
    counted = [each for each in entries if each.asset == asset and is_counted(each)]
    costs = (None if each.value is None else each.value + each.fee for each in counted)
    return sum(each.quantity for each in counted), total(costs)


def _taken(gains: Sequence[Gain]) -> Sum:
    """Return quantity and cost of the lots that disposals used; what has no lot is left out."""
    used = [each for each in gains if each.reason not in (SHORT, UNASKED)]
    return sum(each.quantity for each in used), total(each.cost for each in used)


def _negative(pair: Sum) -> Sum:
    return -pair[0], None if pair[1] is None else -pair[1]


def _less(minuend: int | None, subtrahend: int | None) -> int | None:
    return None if minuend is None or subtrahend is None else minuend - subtrahend


def _pair(pair: Sum) -> tuple[str, str]:
    return str(pair[0]), text(pair[1])


def _value(values: Values, end: str, asset: str) -> str:
    value = values.get((end, asset), amounts.ZERO)
    return UNKNOWN if value is None else amounts.text(value)
