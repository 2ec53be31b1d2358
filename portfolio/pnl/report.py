"""Gains as rows for a file or a table, and as sums; unknown values stay `N/A`, with the reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from chainfolio import amounts
from chainfolio.portfolio import frames
from chainfolio.portfolio.document import UNKNOWN, IssueDocument
from chainfolio.portfolio.pnl.entries import UNASKED, decimal, money
from chainfolio.portfolio.pnl.gains import Gain, Gains, RemainingLots

if TYPE_CHECKING:
    import polars as pl

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class AssetFacts:
    """Symbol, decimals, chain and contract of an asset, for display."""

    symbol: str
    decimals: int
    chain: str = ""
    contract: str = ""


class GainDocument(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A part of one disposal, with its lot; or an income, which has no lot. Values are in USD.

    `acquiredIn` is the transaction that brought the lot: several, separated by a space, if a day counts as one lot;
    `pool` if all lots are one. `rule` is the rule that chose the lot. `reason` explains `N/A`.
    """

    time: str
    kind: str
    symbol: str
    chain: str
    contract: str
    wallet: str
    transaction: str
    amount: str
    proceeds: str
    cost: str
    gain: str
    acquired: str
    acquired_in: str
    rule: str
    reason: str


class HoldingDocument(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The remaining lots of one asset: their cost, and the gain of a sale at `price`.

    `short` is the quantity that left without a known origin; `unasked` is what others sent of an untrusted token.
    """

    symbol: str
    chain: str
    contract: str
    wallet: str
    amount: str
    short: str
    unasked: str
    total_cost_basis: str
    price: str
    open_pnl: str
    closed_pnl: str
    reason: str


class SumsDocument(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Sums in USD over the known parts, with the names of the sums over all parts."""

    open_pnl: str
    closed_pnl: str
    total_cost_basis: str
    income: str
    fees: str


class PnlDocument(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The gains of an account by one method, in USD.

    `closedPnl` is the gain of disposals, `income` the value received without payment, `fees` the fees paid to the
    chains at their value then. A sum is `N/A` if one of its parts is: `unknown` counts these parts by reason, and
    `known` has the sums without them. Untrusted tokens that others sent are also counted there, and are in no sum.
    """

    method: str
    addresses: tuple[str, ...]
    open_pnl: str
    closed_pnl: str
    total_cost_basis: str
    income: str
    fees: str
    holdings: tuple[HoldingDocument, ...]
    gains: tuple[GainDocument, ...]
    unknown: dict[str, int]
    known: SumsDocument
    issues: tuple[IssueDocument, ...] = ()

    def to_polars(self) -> pl.DataFrame:
        """Return a frame with a row per disposal and income, in the format of `chainfolio.portfolio.frames`."""
        return frame(self.gains)


COLUMNS: Final = GainDocument.__struct_encode_fields__
MOMENTS: Final = ("time", "acquired")
NUMBERS: Final = ("amount", "proceeds", "cost", "gain")
NOT_PRICED: Final = "no price is known now"


def document(
    gains: Gains,
    facts: Mapping[str, AssetFacts],
    prices: Mapping[str, Decimal],
    *,
    method: str,
    addresses: Sequence[str],
    issues: Sequence[IssueDocument] = (),
    max_values: Mapping[str, Decimal] = MappingProxyType({}),
) -> PnlDocument:
    """Return the document of gains in order of time, with the holdings valued at `prices`.

    Holdings are ordered by asset and wallet. `max_values` limits the value of an asset to what its market could pay.
    """
    sums, closed = _values_of(gains)
    unknown = Counter(gain.reason for gain in gains.gains if gain.gain is None)
    holdings = []
    for lots in gains.remaining:
        asset = facts[lots.asset]
        open_gain = _open_gain(lots, asset, prices.get(lots.asset), max_values.get(lots.asset))
        reason = lots.reason or (NOT_PRICED if open_gain is None else UNASKED if lots.unasked else "")
        if reason:
            unknown[reason] += 1
        sums["cost"].append(lots.cost)
        sums["open"].append(open_gain)
        holdings.append(_holding(lots, asset, prices.get(lots.asset), open_gain, total(closed[lots.asset]), reason))
    return PnlDocument(
        method=method,
        addresses=tuple(addresses),
        open_pnl=text(total(sums["open"])),
        closed_pnl=text(total(sums["closed"])),
        total_cost_basis=text(total(sums["cost"])),
        income=text(total(sums["income"])),
        fees=text(total(sums["fee"])),
        holdings=tuple(holdings),
        gains=tuple(gain_document(gain, facts[gain.asset]) for gain in gains.gains),
        unknown=dict(sorted(unknown.items())),
        issues=tuple(issues),
        known=SumsDocument(
            open_pnl=_known_sum(sums["open"]),
            closed_pnl=_known_sum(sums["closed"]),
            total_cost_basis=_known_sum(sums["cost"]),
            income=_known_sum(sums["income"]),
            fees=_known_sum(sums["fee"]),
        ),
    )


def _values_of(gains: Gains) -> tuple[defaultdict[str, list[int | None]], defaultdict[str, list[int | None]]]:
    """Return values of income, disposals and fees, and of disposals by asset; None if unknown."""
    sums: defaultdict[str, list[int | None]] = defaultdict(list)
    closed: defaultdict[str, list[int | None]] = defaultdict(list)
    for gain in gains.gains:
        if gain.kind == "income":
            sums["income"].append(gain.gain)
        elif gain.reason != UNASKED:
            closed[gain.asset].append(gain.gain)
            sums["closed"].append(gain.gain)
        if gain.kind == "fee":
            sums["fee"].append(gain.proceeds)
    return sums, closed


def _known_sum(parts: Iterable[int | None]) -> str:
    return text(sum(part for part in parts if part is not None))


def _open_gain(lots: RemainingLots, asset: AssetFacts, price: Decimal | None, max_value: Decimal | None) -> int | None:
    """Return the gain of selling the remaining lots at a price; 0 if nothing remains.

    None if their cost or the price is not known.
    """
    if not lots.quantity:
        return 0
    if lots.cost is None or price is None:
        return None
    value_usd = amounts.value_of(amounts.amount(lots.quantity, asset.decimals), price)
    return money(value_usd if max_value is None else min(value_usd, max_value)) - lots.cost


def _holding(
    lots: RemainingLots,
    asset: AssetFacts,
    price: Decimal | None,
    open_gain: int | None,
    closed: int | None,
    reason: str,
) -> HoldingDocument:
    return HoldingDocument(
        symbol=asset.symbol,
        chain=asset.chain,
        contract=asset.contract,
        wallet=lots.wallet,
        amount=amounts.text(amounts.amount(lots.quantity, asset.decimals)),
        short=amounts.text(amounts.amount(lots.short, asset.decimals)),
        unasked=amounts.text(amounts.amount(lots.unasked, asset.decimals)),
        total_cost_basis=text(lots.cost),
        price=UNKNOWN if price is None else amounts.text(price),
        open_pnl=text(open_gain),
        closed_pnl=text(closed),
        reason=reason,
    )


def gain_document(gain: Gain, facts: AssetFacts) -> GainDocument:
    """One row."""
    return GainDocument(
        time=iso_time(gain.time_us),
        kind=gain.kind,
        symbol=facts.symbol,
        chain=facts.chain,
        contract=facts.contract,
        wallet=gain.wallet,
        transaction=gain.transaction,
        amount=amounts.text(amounts.amount(gain.quantity, facts.decimals)),
        proceeds=text(gain.proceeds),
        cost=text(gain.cost),
        gain=text(gain.gain),
        acquired=iso_time(gain.acquired_us),
        acquired_in=gain.acquired_in,
        rule=gain.rule,
        reason=gain.reason,
    )


def frame(gains: Sequence[GainDocument]) -> pl.DataFrame:
    """Return the rows for Parquet, in the format of `chainfolio.portfolio.frames`."""
    rows = ([getattr(gain, name) for name in GainDocument.__struct_fields__] for gain in gains)
    return frames.frame(COLUMNS, rows, numbers=NUMBERS, times=MOMENTS)


def text(units: int | None) -> str:
    """Money in plain notation."""
    return UNKNOWN if units is None else amounts.text(decimal(units))


def iso_time(at_us: int | None) -> str:
    """Return a time in UTC as ISO 8601; empty for None."""
    return "" if at_us is None else f"{EPOCH + timedelta(microseconds=at_us):%Y-%m-%dT%H:%M:%S.%fZ}"


def total(parts: Iterable[int | None]) -> int | None:
    """Return the sum; None if a part is."""
    amount = 0
    for part in parts:
        if part is None:
            return None
        amount += part
    return amount
