"""GET /v1/nav: one net asset value over all addresses, in a chosen currency."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

import msgspec

from chainfolio.amounts import text
from chainfolio.api.addresses import Addresses
from chainfolio.api.context import Context
from chainfolio.api.failures import READING
from chainfolio.api.fields import InvalidParameter, JsonObject, Reader, one_of, quoted
from chainfolio.api.portfolio import WaitForSync
from chainfolio.api.router import get
from chainfolio.currencies import served
from chainfolio.portfolio.document import IssueDocument
from chainfolio.settings import Settings


def read_currency(values: list[str], settings: Settings) -> str:
    """Return the currency; case matters.

    Raises:
        InvalidParameter: The parameter is repeated, or this server has no rate of the currency.
    """
    if len(values) > 1:
        raise InvalidParameter("is given more than once")
    if values[0] not in (currencies := served(settings.rates)):
        raise InvalidParameter(f"cannot be {quoted(values[0])}: {one_of(currencies)}")
    return values[0]


def _currencies(settings: Settings) -> JsonObject:
    return {"type": "string", "enum": list(served(settings.rates))}


Currency = Annotated[
    str,
    Reader(read_currency, _currencies),
    msgspec.Meta(description="Currency of the values; case matters. The settings may add more under `[rates]`."),
]
# A JSON number with all digits of its decimal, without conversion to a float.
Number = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "number"})]


class NavQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Wallets and currency."""

    addresses: Addresses
    wait_for_sync: WaitForSync = False
    currency: Currency = "USD"


class NetAssetValue(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A net asset value.

    For fiat, `nav = usd × conversionPrice`; for crypto, `nav = usd ÷ conversionPrice`.
    """

    nav: Number
    currency: str
    conversion_price: Number
    unpriced_assets: Annotated[int, msgspec.Meta(description="Assets without a price, which are not in the value.")]
    completeness: Annotated[str, msgspec.Meta(description="`partial` if a read failed, else `complete`.")]
    issues: Annotated[
        tuple[IssueDocument, ...],
        msgspec.Meta(description="Failed reads, by chain or part of it. Their assets are not in the value."),
    ]
    conversion_source: Annotated[
        str | msgspec.UnsetType,
        msgspec.Meta(
            description="Source and day of `conversionPrice`. It says if a reference rate was carried forward over a "
            "weekend or a holiday. Absent for USD."
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
    """Returns one value over all the addresses together.

    If a read failed, its assets are not in the value, `completeness` is `partial`, and `issues` name the missing
    chains. If nothing could be read, the answer is 503. If the server has no rate of the currency, it is 501.
    """
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
    """Return a finite decimal as a JSON number in plain notation."""
    assert value.is_finite(), f"not a number: {value}"
    return msgspec.Raw(text(value).encode())
