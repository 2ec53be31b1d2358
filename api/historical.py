"""GET /v1/historical: holdings of wallets at 00:00 UTC of a past day, at the prices of that time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from chainfolio.api.addresses import Addresses
from chainfolio.api.context import Context
from chainfolio.api.dates import Day, check_begun
from chainfolio.api.errors import Problem
from chainfolio.api.examples import EXAMPLE
from chainfolio.api.failures import READING
from chainfolio.api.router import get
from chainfolio.assets import Account
from chainfolio.portfolio.document import Portfolio

NO_SNAPSHOT: Final = (
    "No snapshot of an address can be built for that date: no chain for it existed then, or the nodes have pruned the "
    "state of that time."
)


class HistoricalQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Wallets and day."""

    addresses: Addresses
    date: Day


@get(
    "/v1/historical",
    tag="Portfolio",
    summary="Holdings at the start of a past day",
    needs="portfolio",
    envelope="historical",
    check=check_begun,
    allow=lambda request, query: require_subscriptions(request, query.addresses),
    fails={
        403: "An address has no historical subscription.",
        404: NO_SNAPSHOT,
        **READING,
    },
    example=EXAMPLE,
)
async def historical(request: Context, query: HistoricalQuery) -> list[Portfolio]:
    """Returns one portfolio per address, as of the last block of each chain before 00:00 UTC of the date.

    Chains that did not exist then are absent; if none of an address's chains existed, the answer is 404. Each address
    needs a historical subscription, which also covers dates before its start.
    """
    return await request.engine.historical(query.addresses, query.date)


async def require_subscriptions(request: Context, accounts: Sequence[Account]) -> None:
    """Check that the caller's account has a historical subscription for every account.

    Raises:
        Problem: 403, with the addresses without a subscription.
    """
    addresses = [account.address for account in accounts]
    subscribed = await request.parts.state.subscribed(request.principal.account_id, addresses)
    unsubscribed = [address for address in addresses if address not in subscribed]
    if unsubscribed:
        raise Problem(403, f"no historical subscription for {', '.join(unsubscribed)}: see POST /v1/subscribe-snapshot")
