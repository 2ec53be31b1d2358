"""GET /v1/performance: values of wallets day by day, and their returns net of deposits."""

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
from chainfolio.engine.results import MAX_DAYS
from chainfolio.portfolio.metrics.report import DayDocument, ExposureDocument, PerformanceDocument

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
    """Wallets, days and currency."""

    addresses: Addresses
    start_date: Annotated[
        Day, msgspec.Meta(description="The first day, `YYYY-MM-DD`, from 00:00 UTC.", examples=["2026-02-01"])
    ]
    end_date: Annotated[
        Day, msgspec.Meta(description="The last day, not in the future, up to 00:00 UTC.", examples=["2026-03-01"])
    ]
    currency: Currency = "USD"

    @property
    def days(self) -> list[datetime.date]:
        """Days of the span, first and last included."""
        count = (self.end_date - self.start_date).days + 1
        return [self.start_date + datetime.timedelta(days=each) for each in range(count)]


@get(
    "/v1/performance",
    tag="Portfolio",
    summary="Values and returns day by day",
    needs="pro",
    envelope="historical",
    check=lambda request, query: check_span(request, query, MAX_DAYS),
    allow=lambda request, query: require_subscriptions(request, query.addresses),
    fails={
        403: "The account has no Pro subscription, or an address has no historical subscription.",
        404: NO_SNAPSHOT,
        **READING,
        501: "No chain of this server has past balances of such addresses, or there is no rate of that currency then.",
    },
    example=_EXAMPLE,
)
async def performance(request: Context, query: PerformanceQuery) -> PerformanceDocument:
    """Returns values and returns of the wallets, which count as one owner's.

    `days` has the total value at the start of each day, the net inflow since the day before, and the growth of one unit
    of money. Days that were read once are stored; if a request times out, the next one continues where it ended. A day
    that could not be read is left out: `remarks` name its chain, and `completeness` is `partial`; if no day is known,
    the answer is 503. Returns need an index of the wallets' transactions; otherwise they are `N/A`, and `reasons` say
    why. At most 366 days. Each address needs a historical subscription.
    """
    return await request.engine.performance(query.addresses, query.days, query.currency)
