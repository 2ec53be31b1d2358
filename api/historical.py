"""GET /v1/historical: what wallets held as a past day began, at the prices of that moment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Annotated, Any

import msgspec

from api.addresses import Addresses
from api.context import Context
from api.errors import Flaw, Problem, invalid
from api.examples import EXAMPLE
from api.failures import READING
from api.fields import Reader, Refused, shown
from api.router import get
from chainfolio.assets import Account
from chainfolio.settings import Settings
from portfolio.document import Portfolio

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z", re.ASCII)


def read_day(values: list[str], settings: Settings) -> date:
    """A day of the calendar, written `YYYY-MM-DD` and no other way."""
    if len(values) > 1:
        raise Refused("is given more than once")
    try:
        if _DAY.match(values[0]):
            return date.fromisoformat(values[0])
    except ValueError:
        raise Refused(f"cannot be {shown(values[0])}: the calendar has no such day (format YYYY-MM-DD)") from None
    raise Refused(f"cannot be {shown(values[0])}: its format is YYYY-MM-DD")


def _schema(settings: Settings) -> dict[str, Any]:
    return {"type": "string", "format": "date"}


Day = Annotated[
    date,
    Reader(read_day, _schema),
    msgspec.Meta(
        description="The day, `YYYY-MM-DD`, today at the latest. Its beginning is meant: 00:00 UTC.",
        examples=["2026-03-01"],
    ),
]


class HistoricalQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which wallets, on which day."""

    addresses: Addresses
    date: Day


@get(
    "/v1/historical",
    tag="Portfolio",
    summary="Holdings as a past day began",
    needs="portfolio",
    envelope="historical",
    fails={
        403: "An address has no historical subscription.",
        404: "No snapshot can be built for that date: the nodes keep no state of that time.",
        **READING,
    },
    example=EXAMPLE,
)
async def historical(request: Context, query: HistoricalQuery) -> list[Portfolio]:
    """One portfolio per address, read at the last block of each chain before 00:00 UTC of the date. A chain that began
    later is absent. Each address needs a historical subscription; a date before its start is answered too."""
    today = datetime.fromtimestamp(request.parts.seams.clock.now_us() // 1_000_000, UTC).date()
    if query.date > today:
        words = f"`date` cannot be {query.date}: it is in the future, today is {today} (format YYYY-MM-DD, UTC)"
        raise invalid("query", [Flaw(words, ["date"])])
    await require_subscriptions(request, query.addresses)
    return await request.engine.historical(query.addresses, query.date)


async def require_subscriptions(request: Context, accounts: Sequence[Account]) -> None:
    """403, naming the addresses that the caller's account has no historical subscription for."""
    assert request.principal is not None, "the caller is known before a handler is called"
    addresses = [account.address for account in accounts]
    now_us = request.parts.seams.clock.now_us()
    subscribed = await request.parts.state.subscribed(request.principal.account_id, addresses, now_us)
    lacking = [address for address in addresses if address not in subscribed]
    if lacking:
        raise Problem(403, f"no historical subscription for {', '.join(lacking)}: see POST /v1/subscribe-snapshot")
