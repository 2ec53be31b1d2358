"""GET /v1/nav: one net asset value over all addresses, in a chosen currency."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import msgspec

from chainfolio.amounts import text
from chainfolio.api.addresses import Addresses
from chainfolio.api.context import Context
from chainfolio.api.failures import READING
from chainfolio.api.fields import Reader, Refused, one_of, quoted
from chainfolio.api.router import get
from chainfolio.currencies import served
from chainfolio.portfolio.document import IssueDocument
from chainfolio.settings import Settings


def read_currency(values: list[str], settings: Settings) -> str:
    """One of the currencies that this server has; Refused lists them."""
    if len(values) > 1:
        raise Refused("is given more than once")
    if values[0] not in (currencies := served(settings.rates)):
        raise Refused(f"cannot be {quoted(values[0])}: {one_of(currencies)}")
    return values[0]


def _currencies(settings: Settings) -> dict[str, Any]:
    return {"type": "string", "enum": list(served(settings.rates))}


Currency = Annotated[
    str,
    Reader(read_currency, _currencies),
    msgspec.Meta(description="Currency of the values; case matters. The settings may add more under `[rates]`."),
]
# A JSON number with every digit of the decimal it is made of: no float comes between.
Number = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "number"})]


class NavQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which wallets, in which currency."""

    addresses: Addresses
    wait_for_sync: Annotated[
        bool, msgspec.Meta(description="Wait for fresh data where what is kept is older than the cache time.")
    ] = False
    currency: Currency = "USD"


class NetAssetValue(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A net asset value. Fiat: `nav = usd × conversionPrice`; crypto: `nav = usd ÷ conversionPrice`."""

    nav: Number
    currency: str
    conversion_price: Number
    unpriced_assets: Annotated[int, msgspec.Meta(description="Assets without a price: they are not in the value.")]
    completeness: Annotated[str, msgspec.Meta(description="`partial` where a read failed, else `complete`.")]
    issues: Annotated[
        tuple[IssueDocument, ...],
        msgspec.Meta(description="What could not be read: it is not in the value. The chain or part is named."),
    ]
    conversion_source: Annotated[
        str | msgspec.UnsetType,
        msgspec.Meta(
            description="Where `conversionPrice` is from, and of which day: a reference rate that is carried forward "
            "over a weekend or a holiday says so. Absent for USD."
        ),
    ] = msgspec.UNSET


@get(
    "/v1/nav",
    tag="Portfolio",
    summary="Net asset value in a chosen currency",
    needs="portfolio",
    fails={**READING, 501: "This server has no rate of that currency, or no chain for any of the addresses."},
    example={
        "nav": 1600.25,
        "currency": "USD",
        "conversionPrice": 1,
        "unpricedAssets": 0,
        "completeness": "complete",
        "issues": [],
    },
)
async def nav(request: Context, query: NavQuery) -> NetAssetValue:
    """One value over all the addresses together. What could not be read is not in it: then `completeness` is `partial`,
    and `issues` name the chains that are missing. If nothing could be read, the answer is 503. A currency that this
    server has no rate of is 501."""
    value = await request.engine.nav(query.addresses, query.currency, wait=query.wait_for_sync)
    return NetAssetValue(
        nav=number(value.nav),
        currency=query.currency,
        conversion_price=number(value.conversion_price),
        unpriced_assets=value.unpriced_assets,
        completeness=value.completeness,
        issues=tuple(value.issues),
        conversion_source=value.conversion_source or msgspec.UNSET,
    )


def number(value: Decimal) -> msgspec.Raw:
    """A decimal as a JSON number in plain notation."""
    assert value.is_finite(), f"not a number: {value}"
    return msgspec.Raw(text(value).encode())
