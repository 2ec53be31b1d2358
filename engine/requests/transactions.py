"""Transactions of an account: the filter of a request, and all pages of a list."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from chainfolio.engine.requests.days import parse_day
from chainfolio.engine.results import TransactionFilter
from chainfolio.errors import BadRequest

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.engine.service import Engine
    from chainfolio.portfolio.transactions import Transactions

MAX_OFFSET: Final = 10**9
DAY_US: Final = 86_400_000_000


def transaction_filter(
    chain: str | None, limit: int, offset: int, first: str | None, last: str | None
) -> TransactionFilter:
    """Return a filter for `limit` transactions behind the first `offset`, from day `first` to day `last`.

    Both days count as a whole, in UTC; None is no bound. Without `chain`, all chains count. The limit is not checked.

    Raises:
        BadRequest: The offset or a day is out of range.
    """
    if not 0 <= offset <= MAX_OFFSET:
        raise BadRequest("offset", f"{offset} is not between 0 and {MAX_OFFSET}")
    since_us = None if first is None else _day_us("from", first)
    until_us = None if last is None else _day_us("to", last) + DAY_US - 1
    if since_us is not None and until_us is not None and since_us > until_us:
        raise BadRequest("from", f"{first} is after {last}")
    networks = (chain,) if chain else ()
    return TransactionFilter(limit, offset, networks=networks, since_us=since_us, until_us=until_us)


def _day_us(name: str, text: str) -> int:
    """Return the beginning of a day in UTC, in microseconds."""
    day = parse_day(name, text)
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000


async def transaction_pages(
    engine: Engine, owners: Sequence[Account], filters: TransactionFilter, *, all_pages: bool
) -> AsyncIterator[Transactions]:
    """Yield one page, or all pages from there on.

    A page continues behind the one before it, whatever blocks came or were replaced meanwhile.
    """
    while True:
        page = await engine.transactions(owners, filters)
        yield page.document
        if not all_pages or page.end is None:
            return
        filters = replace(filters, offset=page.end.count, after=page.end)


def joined_pages(pages: Sequence[Transactions]) -> Transactions:
    """Return one document of several pages in their order: partial if one is, with each issue once.

    There is at least one page. Other fields are those of the first partial page, else of the first page.
    """
    if len(pages) == 1:
        return pages[0]
    partial = [page for page in pages if page.completeness == "partial"]
    issues = {msgspec.json.encode(issue): issue for page in pages for issue in page.issues}
    return structs.replace(
        (partial or pages)[0],
        transactions=tuple(each for page in pages for each in page.transactions),
        issues=tuple(issues.values()),
    )
