"""The performance of some wallets over a period, as one document.

Unknown values are `N/A`, with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal

import msgspec

from chainfolio import amounts
from chainfolio.portfolio.document import UNKNOWN, IssueDocument, rounded
from chainfolio.portfolio.metrics.changes import ChangesDocument
from chainfolio.portfolio.metrics.drawdown import drawdown
from chainfolio.portfolio.metrics.exposure import Exposure, largest_first
from chainfolio.portfolio.metrics.money_weighted import money_weighted, yearly
from chainfolio.portfolio.metrics.time_weighted import growths
from chainfolio.portfolio.metrics.value_series import Point

PLACES: Final = 12
NO_CAPITAL: Final = "{day}: the value changed without a flow, and there was no capital that could have earned it"
NO_RATE: Final = "money-weighted: no rate fits the payments, or more than one"
TOO_FEW: Final = "fewer than two days are known"
NO_CHANGES: Final = ChangesDocument(method="fifo", reason=TOO_FEW)


@dataclass(frozen=True, slots=True)
class PerformanceData:
    """The data of a performance, in one currency.

    Attributes:
        points: The days with a point, each at its beginning.
        faults: Reasons why the flows before a point are not known, by the time of that point.
    """

    addresses: Sequence[str]
    currency: str
    points: Sequence[Point]
    flows: Sequence[FlowDocument]
    faults: Mapping[int, Sequence[str]]
    exposure: Exposure
    remarks: Sequence[str] = ()
    issues: Sequence[IssueDocument] = ()
    completeness: Literal["complete", "partial"] = "complete"
    changes: ChangesDocument = NO_CHANGES


class FlowDocument(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The value that one transaction brought from outside, in the currency of the performance.

    Negative if value was taken out.
    """

    time: str
    chain: str
    wallet: str
    transaction: str
    type: str
    value: str


class DayDocument(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The value at the beginning of a day, and the flows since the day before it in the list.

    `growth` is the value of one unit of money invested on the first day.
    """

    day: str
    value: str
    flow: str
    growth: str
    reason: str = ""


class DrawdownDocument(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The largest fall from a peak, as a part of it, and the days of both."""

    part: str
    peak: str
    low: str


class ShareDocument(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The value of a part in USD, less debt, and its share of the total; an asset has its symbol."""

    key: str
    value: str
    share: str
    symbol: str = ""


class ExposureDocument(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The value of the last day by part, the largest first.

    `unpriced` are assets without a price; they are in no value.
    """

    chains: tuple[ShareDocument, ...]
    protocols: tuple[ShareDocument, ...]
    assets: tuple[ShareDocument, ...]
    unpriced: tuple[str, ...]


class PerformanceDocument(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The performance of some wallets, treated as those of one owner.

    Returns are fractions, 0.1 for ten per cent, to twelve places; yearly ones are `N/A` for a period shorter than a
    year. `reasons` explain each `N/A`; `remarks` say what was left out. `completeness` is `partial` if a wallet or a
    day could not be read completely.
    """

    addresses: tuple[str, ...]
    currency: str
    first_day: str
    last_day: str
    start_value: str
    end_value: str
    net_flows: str
    gain: str
    time_weighted_return: str
    time_weighted_yearly: str
    money_weighted_return: str
    money_weighted_yearly: str
    drawdown: DrawdownDocument | None
    exposure: ExposureDocument
    days: tuple[DayDocument, ...]
    flows: tuple[FlowDocument, ...]
    reasons: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    issues: tuple[IssueDocument, ...] = ()
    completeness: Literal["complete", "partial"] = "complete"
    changes: ChangesDocument = NO_CHANGES


def document(data: PerformanceData) -> PerformanceDocument:
    """Return the document of a performance; figures that are unknown are `N/A` or null, with the reasons.

    Returns need two points and no faults.
    """
    points, cumulative = data.points, _growths(data)
    reasons = [
        f"{day_of(time_us)}: {each}"
        for time_us, reasons_of_day in sorted(data.faults.items())
        for each in reasons_of_day
    ]
    reasons += [TOO_FEW, *data.remarks] if len(points) < 2 else _breaks(data, cumulative) if not data.faults else []
    flow = amounts.total([point.flow for point in points[1:]])
    time_weighted = cumulative[-1] - 1 if len(points) > 1 and cumulative[-1] is not None else None
    money = None if data.faults else money_weighted(points)
    if money is None and len(points) > 1 and not data.faults:
        reasons.append(NO_RATE)
    fall = None if time_weighted is None else drawdown(points)
    is_known = len(points) > 1 and not data.faults
    start, end = (points[time_us].value if points else None for time_us in (0, -1))
    assert (start is None) == (end is None) == (not points), "only days that are known are measured"
    gain = None if start is None or end is None else amounts.total([end, start.copy_negate(), flow.copy_negate()])
    return PerformanceDocument(
        addresses=tuple(data.addresses),
        currency=data.currency,
        first_day=str(day_of(points[0].time_us)) if points else "",
        last_day=str(day_of(points[-1].time_us)) if points else "",
        start_value=_text(start),
        end_value=_text(end),
        net_flows=_text(flow if is_known else None),
        gain=_text(gain if is_known else None),
        time_weighted_return=_part(time_weighted),
        time_weighted_yearly=_text(None if time_weighted is None else yearly(time_weighted, points)),
        money_weighted_return=_text(money),
        money_weighted_yearly=_text(None if money is None else yearly(money, points)),
        drawdown=None
        if fall is None
        else DrawdownDocument(
            part=_part(fall.part),
            peak=str(day_of(fall.peak_us)),
            low=str(day_of(fall.low_us)),
        ),
        exposure=_exposure(data.exposure),
        days=tuple(_days(data, cumulative)),
        flows=tuple(data.flows),
        reasons=tuple(reasons),
        remarks=tuple(data.remarks) if len(points) > 1 else (),
        issues=tuple(data.issues),
        completeness=data.completeness,
        changes=data.changes,
    )


def day_of(time_us: int) -> date:
    """Return the UTC day of a time in microseconds."""
    return date(1970, 1, 1) + timedelta(microseconds=time_us)


def _growths(data: PerformanceData) -> list[Fraction | None]:
    """Return the growth up to each point; None from the first point with a fault on."""
    known_count = next((i for i, point in enumerate(data.points) if point.time_us in data.faults), len(data.points))
    return [*growths(data.points[:known_count]), *[None] * (len(data.points) - known_count)]


def _breaks(data: PerformanceData, cumulative: Sequence[Fraction | None]) -> list[str]:
    """Return the reason for the first unknown growth; empty if all are known."""
    i = next((i for i, each in enumerate(cumulative) if each is None), None)
    return [] if i is None else [NO_CAPITAL.format(day=day_of(data.points[i].time_us))]


def _days(data: PerformanceData, cumulative: Sequence[Fraction | None]) -> list[DayDocument]:
    """Return the days with their values; the flow of a day with faults is unknown, with the reasons."""
    return [
        DayDocument(
            day=str(day_of(point.time_us)),
            value=_text(point.value),
            flow=UNKNOWN if point.time_us in data.faults else _text(point.flow),
            growth=_part(growth),
            reason="; ".join(data.faults.get(point.time_us, ())),
        )
        for point, growth in zip(data.points, cumulative, strict=True)
    ]


def _exposure(exposure: Exposure) -> ExposureDocument:
    """Return the shares of chains, protocols and assets, the largest first; unknown if the total is 0."""
    total = amounts.total(list(exposure.chains.values()))

    def shares(values: Mapping[str, Decimal]) -> tuple[ShareDocument, ...]:
        return tuple(
            ShareDocument(
                key=key,
                value=_text(value),
                share=_part(Fraction(value) / Fraction(total) if total else None),
                symbol=exposure.symbols.get(key, ""),
            )
            for key, value in largest_first(dict(values))
        )

    return ExposureDocument(
        chains=shares(exposure.chains),
        protocols=shares(exposure.protocols),
        assets=shares(exposure.assets),
        unpriced=tuple(sorted(exposure.unpriced)),
    )


def _text(value: Decimal | None) -> str:
    return UNKNOWN if value is None else amounts.text(value)


def _part(value: Fraction | None) -> str:
    return _text(None if value is None else rounded(value, PLACES))
