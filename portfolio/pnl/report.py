"""Gains as rows for a file or a table, and as sums; unknown values stay `N/A`, with the reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from chainfolio import amounts
from chainfolio.portfolio import frames
from chainfolio.portfolio.document import UNKNOWN, IssueDocument
from chainfolio.portfolio.pnl.closing import (
    NO_LOTS,
    NOTHING_CHECKED,
    UNCLOSED,
    ClosingCheck,
    CurrentHoldings,
    without_unclosed,
)
from chainfolio.portfolio.pnl.entries import UNASKED, AssetFacts, decimal, iso_time, money
from chainfolio.portfolio.pnl.gains import Gain, Gains, RemainingLots
from chainfolio.portfolio.pnl.transfer_rows import TransferDocument

if TYPE_CHECKING:
    import polars as pl


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
    `held` is what the portfolio has of it, in the wallet and in positions, and `value` what that is worth now: cost
    plus open gain. Both are `N/A` if they are not known.
    """

    symbol: str
    chain: str
    contract: str
    wallet: str
    amount: str
    held: str
    short: str
    unasked: str
    total_cost_basis: str
    price: str
    value: str
    open_pnl: str
    closed_pnl: str
    reason: str


class UnexplainedDocument(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An asset that does not close: the portfolio holds more or less than its transactions explain.

    `raw` and `amount` are what is held beyond the transactions, negative if less is held. `place` is `wallet` or
    `protocols`. `firstBlock` is the block of the first transaction that moved the asset: the difference is not older.
    It is null if none did.
    """

    symbol: str
    chain: str
    contract: str
    wallet: str
    place: str
    raw: str
    amount: str
    first_block: int | None
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

    `unexplained` lists assets if the portfolio holds more or less than their transactions explain: their gain is not
    known, but for untrusted tokens, which are in no sum. For all others `value`, what is held now, is
    `totalCostBasis` plus `openPnl`. `transfers` lists what went over chains. `completeness` is `partial` if a wallet or
    a chain is missing; `issues` name it.
    """

    method: str
    addresses: tuple[str, ...]
    open_pnl: str
    closed_pnl: str
    total_cost_basis: str
    value: str
    income: str
    fees: str
    holdings: tuple[HoldingDocument, ...]
    gains: tuple[GainDocument, ...]
    unknown: dict[str, int]
    known: SumsDocument
    unexplained: tuple[UnexplainedDocument, ...] = ()
    transfers: tuple[TransferDocument, ...] = ()
    completeness: Literal["complete", "partial"] = "complete"
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
    current: CurrentHoldings = NOTHING_CHECKED,
) -> PnlDocument:
    """Return the document of gains in order of time, with the holdings valued at `prices`.

    Holdings are ordered by asset and wallet. Assets that do not close by `current` have no known gain.
    """
    gains = without_unclosed(gains, current.unclosed)
    sums, closed = _values_of(gains, current.is_trusted)
    unknown = Counter(gain.reason for gain in gains.gains if gain.gain is None)
    holdings = []
    for lots in [*gains.remaining, *_lots_of_unseen(gains.remaining, current)]:
        holding = _Holding(lots, facts[lots.asset], prices.get(lots.asset), current)
        reason = holding.reason
        if reason:
            unknown[reason] += 1
        if holding.is_counted:
            sums["cost"].append(holding.cost)
            sums["open"].append(holding.open_gain)
            sums["value"].append(holding.value)
        holdings.append(holding.document(total(closed[lots.asset])))
    return PnlDocument(
        method=method,
        addresses=tuple(addresses),
        open_pnl=text(total(sums["open"])),
        closed_pnl=text(total(sums["closed"])),
        total_cost_basis=text(total(sums["cost"])),
        value=text(total(sums["value"])),
        income=text(total(sums["income"])),
        fees=text(total(sums["fee"])),
        holdings=tuple(holdings),
        gains=tuple(gain_document(gain, facts[gain.asset]) for gain in gains.gains),
        unknown=dict(sorted(unknown.items())),
        unexplained=tuple(unexplained_rows(current, facts)),
        issues=tuple(issues),
        known=SumsDocument(
            open_pnl=_known_sum(sums["open"]),
            closed_pnl=_known_sum(sums["closed"]),
            total_cost_basis=_known_sum(sums["cost"]),
            income=_known_sum(sums["income"]),
            fees=_known_sum(sums["fee"]),
        ),
    )


def _values_of(
    gains: Gains, is_trusted: Callable[[str], bool]
) -> tuple[defaultdict[str, list[int | None]], defaultdict[str, list[int | None]]]:
    """Return values of `income`, `closed` (disposals) and `fee`, and disposals by asset; None if unknown.

    Disposals of unsolicited units are left out, and in `closed` those of untrusted assets that do not close.
    """
    sums: defaultdict[str, list[int | None]] = defaultdict(list)
    closed: defaultdict[str, list[int | None]] = defaultdict(list)
    for gain in gains.gains:
        if gain.kind == "income":
            sums["income"].append(gain.gain)
        elif gain.reason != UNASKED:
            closed[gain.asset].append(gain.gain)
            if gain.reason != UNCLOSED or is_trusted(gain.asset):
                sums["closed"].append(gain.gain)
        if gain.kind == "fee":
            sums["fee"].append(gain.proceeds)
    return sums, closed


def _lots_of_unseen(remaining: Sequence[RemainingLots], current: CurrentHoldings) -> list[RemainingLots]:
    """Return lots of nothing for assets that are held and that no transaction moved.

    Their cost is unknown, but 0 for those from pools.
    """
    known = {(lots.asset, lots.wallet) for lots in remaining}
    return [
        RemainingLots(*key, 0, 0) if closing.is_from_pool else RemainingLots(*key, 0, None, NO_LOTS)
        for key, closing in current.closings.items()
        if key not in known
    ]


def unexplained_rows(current: CurrentHoldings, facts: Mapping[str, AssetFacts]) -> Iterator[UnexplainedDocument]:
    """Yield what does not close, by asset and wallet."""
    for (asset, wallet), closing in current.closings.items():
        shown = facts[asset]
        for place, raw, reason in closing.differences:
            yield UnexplainedDocument(
                symbol=shown.symbol,
                chain=shown.chain,
                contract=shown.contract,
                wallet=wallet,
                place=place,
                raw=str(raw),
                amount=amounts.text(amounts.amount(raw, shown.decimals)),
                first_block=current.first_blocks.get(asset),
                reason=reason(shown.decimals),
            )


def _known_sum(parts: Iterable[int | None]) -> str:
    """Return the sum of the known parts as text; "0" if none is known."""
    return text(sum(part for part in parts if part is not None))


@dataclass(frozen=True, slots=True)
class _Holding:
    """The remaining lots of one asset, with what is held of it and its price now."""

    lots: RemainingLots
    facts: AssetFacts
    price: Decimal | None
    current: CurrentHoldings

    @property
    def closing(self) -> ClosingCheck | None:
        """The identity of the asset; None if it was not checked."""
        return self.current.closings.get((self.lots.asset, self.lots.wallet))

    @property
    def is_counted(self) -> bool:
        """False for what does not close, if it is not trusted or was sent by others."""
        closing = self.closing
        is_closed = closing is None or closing.is_closed
        return is_closed or (self.current.is_trusted(self.lots.asset) and not self._is_unasked)

    @property
    def _is_unasked(self) -> bool:
        """True if others sent all that remains of it."""
        return bool(self.lots.unasked) and not self.lots.quantity

    @property
    def fault(self) -> str:
        """The reason for an unknown cost; empty if the cost is known."""
        closing = self.closing
        if self.lots.reason or closing is None:
            return self.lots.reason
        if closing.is_closed:
            return closing.protocols_fault
        return UNASKED if self._is_unasked else UNCLOSED

    @property
    def cost(self) -> int | None:
        """The cost of all that is held."""
        return None if self.fault else self.lots.cost

    @property
    def value(self) -> int | None:
        """The value of the held amount; 0 if nothing is held, None if it is not known."""
        closing = self.closing
        raw = self.lots.quantity
        if closing is not None and not self.fault and closing.held.in_protocols:
            raw += closing.held.in_protocols - closing.deposited  # what positions earned is not in the lots yet
        if not raw:
            return 0 if self.cost is not None else None
        if not self.fault and (self.lots.asset, self.lots.wallet) in self.current.share_values:
            return self.current.share_values[self.lots.asset, self.lots.wallet]
        if self.fault or self.price is None:
            return None
        value_usd = amounts.value_of(amounts.amount(raw, self.facts.decimals), self.price)
        max_value = self.current.max_values.get(self.lots.asset)
        return money(value_usd if max_value is None else min(value_usd, max_value))

    @property
    def open_gain(self) -> int | None:
        """The gain of selling all that is held at the price; None if its cost or the price is not known."""
        return None if self.value is None or self.cost is None else self.value - self.cost

    @property
    def reason(self) -> str:
        """The reason for an unknown number; empty if all are known."""
        return self.fault or (NOT_PRICED if self.open_gain is None else UNASKED if self.lots.unasked else "")

    def document(self, closed: int | None) -> HoldingDocument:
        """Return the holding as it is shown; `closed` is the gain of the asset's disposals."""
        closing, lots, decimals = self.closing, self.lots, self.facts.decimals
        return HoldingDocument(
            symbol=self.facts.symbol,
            chain=self.facts.chain,
            contract=self.facts.contract,
            wallet=lots.wallet,
            amount=amounts.text(amounts.amount(lots.quantity, decimals)),
            held=UNKNOWN if closing is None else amounts.text(amounts.amount(closing.held.raw, decimals)),
            short=amounts.text(amounts.amount(lots.short, decimals)),
            unasked=amounts.text(amounts.amount(lots.unasked, decimals)),
            total_cost_basis=text(self.cost),
            price=UNKNOWN if self.price is None else amounts.text(self.price),
            value=text(self.value),
            open_pnl=text(self.open_gain),
            closed_pnl=text(closed),
            reason=self.reason,
        )


def gain_document(gain: Gain, facts: AssetFacts) -> GainDocument:
    """Return the row of a gain; unknown numbers are `N/A`."""
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


def frame(gains: Sequence[GainDocument], columns: Sequence[str] = COLUMNS) -> pl.DataFrame:
    """Return the rows for Parquet, in the format of `chainfolio.portfolio.frames`.

    `columns` are all fields of the rows.
    """
    rows = ([getattr(gain, name) for name in gain.__struct_fields__] for gain in gains)
    return frames.frame(columns, rows, numbers=NUMBERS, times=MOMENTS)


def text(units: int | None) -> str:
    """Return money as a decimal text; `N/A` for None."""
    return UNKNOWN if units is None else amounts.text(decimal(units))


def total(parts: Iterable[int | None]) -> int | None:
    """Return the sum; None if a part is."""
    amount = 0
    for part in parts:
        if part is None:
            return None
        amount += part
    return amount
