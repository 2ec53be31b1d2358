"""GET /v1/token-overview: balances of each token over all wallets, chains and protocols on a day."""

from __future__ import annotations

from typing import Final

import msgspec

from chainfolio.api.addresses import Addresses
from chainfolio.api.context import Context
from chainfolio.api.dates import Day, check_begun
from chainfolio.api.failures import READING, completeness_headers
from chainfolio.api.historical import NO_SNAPSHOT, require_subscriptions
from chainfolio.api.router import get
from chainfolio.engine.account_support import split_supported
from chainfolio.portfolio.overview import TokenRow, overview

_IMAGE: Final = "https://images.example/eth.svg"


class OverviewQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Wallets and day."""

    addresses: Addresses
    date: Day


@get(
    "/v1/token-overview",
    tag="Portfolio",
    summary="Tokens over all wallets on a day",
    needs="pro",
    envelope="historical",
    check=check_begun,
    allow=lambda request, query: require_subscriptions(request, query.addresses),
    fails={
        403: "The account has no Pro subscription, or an address has no historical subscription.",
        404: NO_SNAPSHOT,
        **READING,
    },
    example=[
        {
            "image": _IMAGE,
            "symbol": "ETH",
            "name": "ether",
            "price": "2000",
            "balance": "0.75",
            "value": "1500",
            "percentage": "100",
            "protocolsDetailed": [
                {"key": "wallet", "name": "Wallet", "value": "1000", "balance": "0.5", "image": _IMAGE},
                {"key": "aave3", "name": "Aave V3", "value": "500", "balance": "0.25", "image": _IMAGE},
            ],
        }
    ],
)
async def token_overview(request: Context, query: OverviewQuery) -> list[TokenRow]:
    """Returns one row per token (by symbol and name), largest value first.

    Borrowed amounts are subtracted. Assets without a price have rows of their own, with null as price and value. The
    header `X-Completeness` is `partial` if a read of a wallet failed, else `complete`; `X-Issues` lists the addresses
    without a configured chain. Each address needs a historical subscription.
    """
    portfolios = await request.engine.historical(query.addresses, query.date)
    _, unserved = split_supported(query.addresses, request.engine.kinds(), "the tokens")
    request.headers.update(completeness_headers(unserved.values()))
    if any(each.completeness == "partial" for each in portfolios):
        request.headers["X-Completeness"] = "partial"
    return overview(portfolios, request.engine.pictures())
