"""GET /v1/performance: what wallets were worth day by day, and what they earned, apart from what was paid in."""

from __future__ import annotations

import datetime
from typing import Annotated, Final

import msgspec

from chainfolio.api.addresses import Addresses
from chainfolio.api.context import Context
from chainfolio.api.dates import Day, check_span
from chainfolio.api.example_addresses import WALLET
from chainfolio.api.failures import READING
from chainfolio.api.historical import NO_SNAPSHOT, require_subscriptions
from chainfolio.api.nav import Currency
from chainfolio.api.router import get
from chainfolio.portfolio.metrics.report import DayDocument, ExposureDocument, PerformanceDocument

MAX_DAYS: Final = 366
_EXAMPLE: Final = PerformanceDocument(
    addresses=(WALLET,),
    currency="USD",
    first_day="2026-02-01",
    last_day="2026-02-02",
    start_value="1600.25",
    end_value="1680.2625",
    net_flows="0",
    gain="80.0125",
    time_weighted_return="0.05",
    time_weighted_yearly="N/A",
    money_weighted_return="0.05",
    money_weighted_yearly="N/A",
    drawdown=None,
    exposure=ExposureDocument(chains=(), protocols=(), assets=(), unpriced=()),
    days=(
        DayDocument(day="2026-02-01", value="1600.25", flow="0", growth="1"),
        DayDocument(day="2026-02-02", value="1680.2625", flow="0", growth="1.05"),
    ),
    flows=(),
    reasons=(),
    remarks=(),
)


class PerformanceQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which wallets, over which days, in which currency."""

    addresses: Addresses
    start_date: Annotated[
        Day, msgspec.Meta(description="The first day, `YYYY-MM-DD`: its 00:00 UTC.", examples=["2026-02-01"])
    ]
    end_date: Annotated[
        Day, msgspec.Meta(description="The last day, today at the latest: its 00:00 UTC.", examples=["2026-03-01"])
    ]
    currency: Currency = "USD"

    @property
    def days(self) -> list[datetime.date]:
        """Every day of the span."""
        count = (self.end_date - self.start_date).days + 1
        return [self.start_date + datetime.timedelta(days=each) for each in range(count)]


@get(
    "/v1/performance",
    tag="Portfolio",
    summary="Worth and returns day by day",
    needs="pro",
    envelope="historical",
    check=lambda request, query: check_span(request, query, MAX_DAYS),
    allow=lambda request, query: require_subscriptions(request, query.addresses),
    fails={
        403: "The account has no Pro subscription, or an address has no historical subscription.",
        404: NO_SNAPSHOT,
        **READING,
        501: "No chain of this server can say what such addresses held, or nobody has a rate of that currency then.",
    },
    example=_EXAMPLE,
)
async def performance(request: Context, query: PerformanceQuery) -> PerformanceDocument:
    """The wallets are taken for those of one owner. `days` has what they were worth together as each day began, what
    came from outside since the day before, and what one unit of money had become. Days that are kept are not read
    again; others are read and kept, so that a span that takes longer than a request goes on where it ended. A day that
    could not be read is left out: `remarks` name its chain and `completeness` is `partial`; 503 if no day is known.
    Returns need an index of what the wallets did; else they are `N/A`, and `reasons` say why. At most 366 days; each
    address needs a historical subscription."""
    return await request.engine.performance(query.addresses, query.days, query.currency)
