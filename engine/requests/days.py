"""Days of a request, and the values of accounts on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from chainfolio.engine.account_support import addresses_of
from chainfolio.engine.history.day_blocks import day_count, days_from
from chainfolio.engine.history.day_values import DayValue, day_values
from chainfolio.engine.history.missing_prices import with_missing_prices
from chainfolio.errors import BadRequest

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.chains import Chain
    from chainfolio.engine.history.snapshot_store import DaySnapshot
    from chainfolio.engine.service import Engine
    from chainfolio.environment import Clock

MAX_VALUES: Final = 20_000  # days times addresses
REMEDY: Final = "--interval week or month, or fewer addresses at a time"
DEFAULT_DAYS: Final = 30
INTERVALS: Final = ("day", "week", "month")


def today(clock: Clock) -> date:
    """Return the current day in UTC."""
    return datetime.fromtimestamp(clock.now_us() // 1_000_000, UTC).date()


def parse_day(name: str, text: str) -> date:
    """Return the day that the option `name` has as YYYY-MM-DD; raise BadRequest if it is none."""
    try:
        if len(text) == 10:
            return date.fromisoformat(text)
    except ValueError:  # no day of the calendar
        pass
    raise BadRequest(name, f"{text!r} is not a day", remedy="YYYY-MM-DD, for example 2024-02-29")


def days_between(first: str | None, last: str | None, interval: str, now: date) -> list[date]:
    """Return the days from `first` to `last`, both included, one `interval` apart.

    By default, `last` is `now` and `first` is `DEFAULT_DAYS` before `last`.

    Raises:
        BadRequest: A text is no day, a day is in the future, `first` is after `last`, the interval is unknown, or there
            are more than `MAX_VALUES` days.
    """
    until = now if last is None else parse_day("to", last)
    if first is None:
        since = until - min(timedelta(days=DEFAULT_DAYS), until - date.min)
    else:
        since = parse_day("from", first)
    for name, day in (("from", since), ("to", until)):
        if day > now:
            raise BadRequest(name, f"{day} is in the future: today is {now} (UTC)")
    if since > until:
        raise BadRequest("from", f"{since} is after {until}")
    if interval not in INTERVALS:
        raise BadRequest("interval", f"{interval!r} is none of {', '.join(INTERVALS)}")
    count = day_count(since, until, interval)
    if count > MAX_VALUES:  # before the list is built
        raise BadRequest("from", f"{count:,} days are more than {MAX_VALUES:,}", remedy=REMEDY)
    return days_from(since, until, interval)


async def read_day_values(
    engine: Engine,
    accounts: Sequence[Account],
    chains: Sequence[Chain],
    days: Sequence[date],
    *,
    retry: bool,
    progress: Callable[[int], None] = lambda count: None,
) -> list[DayValue]:
    """Return the values of accounts at 00:00 UTC of days; days that are not stored are read and stored.

    Args:
        retry: Read days again that could not be read before.
        progress: Gets the number of values of each read.

    Raises:
        BadRequest: There are more than `MAX_VALUES` values.
        SourceError: A chain failed; days that were read before are stored.
    """
    if len(days) * len(accounts) > MAX_VALUES:
        reason = f"{len(days) * len(accounts):,} values are more than {MAX_VALUES:,}"
        raise BadRequest("from", reason, remedy=REMEDY)

    async def read_chain(chain: Chain) -> list[DaySnapshot]:
        wallets = addresses_of(chain, accounts)
        snapshots: list[DaySnapshot] = []
        async for batch in engine.history.read(chain, dict.fromkeys(days, wallets), retry=retry):
            snapshots += await with_missing_prices(engine.history, chain, batch)
            progress(len(batch))
        return snapshots

    by_chain = await asyncio.gather(*map(read_chain, chains))
    return day_values([each.address for each in accounts], days, (each for part in by_chain for each in part))
