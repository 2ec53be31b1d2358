"""What commands and sessions answer alike: portfolios, days, transactions and reconciliations of accounts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import structs

from chainfolio.assets import Account, Asset, asset
from chainfolio.blocks import Block
from chainfolio.engine.answers import TransactionFilter
from chainfolio.engine.history.day_blocks import days_from
from chainfolio.engine.history.day_values import DayValue, day_values
from chainfolio.engine.history.past_days import addresses_of
from chainfolio.engine.history.snapshot_store import DaySnapshot
from chainfolio.engine.named_accounts import chains_with_past, pinned_chain
from chainfolio.errors import BadRequest, NotIndexed, SourceError, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from chainfolio.chains import Chain
    from chainfolio.contracts import Token
    from chainfolio.engine.reconcile.results import Reconciliation
    from chainfolio.engine.service import Engine
    from chainfolio.indexer.wiring import System
    from chainfolio.portfolio.document import Portfolio
    from chainfolio.portfolio.facts import Options
    from chainfolio.portfolio.transactions import Transactions

MAX_VALUES: Final = 20_000  # days of addresses
USUAL_DAYS: Final = 30
INTERVALS: Final = ("day", "week", "month")
PAGE: Final = 250  # transactions that are read at once; as over HTTP
MAX_OFFSET: Final = 10**9
DAY_US: Final = 86_400_000_000
T = TypeVar("T")
log = logging.getLogger("chainfolio.prices")


# --- portfolios ------------------------------------------------------------------------------------------------------


async def portfolios(
    engine: Engine, accounts: Sequence[Account], chain: str | None, block: int | None, shown: Options
) -> list[Portfolio]:
    """Portfolios over all chains now, or of one chain at a block."""
    if block is None and chain is None:
        return await engine.portfolios(accounts, shown, wait=True, wallet_only=False)
    key = pinned_chain(engine.system, chain, block, accounts)
    if block is None:
        head = (await engine.system.chain(key).heads()).latest
        return await engine.at_pinned(accounts, key, head, shown, past=False)
    return await engine.at_block(accounts, key, block, shown)


def settle_prices(system: System) -> None:
    """Move the prices of final blocks that a process used to the lake: no server may ever run that does it."""
    used = [] if system.keeps_nothing else [chain.key for chain in system.used_chains]
    for key in used:
        if system.tail.has_prices(key):
            from chainfolio.engine.prices.store import PriceStore

            try:
                PriceStore(key, system.lake, system.tail).settle_final()
            except StoreError as error:  # they are kept where they are, and the answer is there
                log.warning("%s: prices were not moved to the lake: %s", key, error.message)


# --- days ------------------------------------------------------------------------------------------------------------


def today(system: System) -> date:
    """The day of now, in UTC."""
    return datetime.fromtimestamp(system.environment.clock.now_us() // 1_000_000, UTC).date()


def parse_day(name: str, written: str) -> date:
    """Return the day that the option `name` has as YYYY-MM-DD; BadRequest if it is none."""
    try:
        if len(written) == 10:
            return date.fromisoformat(written)
    except ValueError:  # a day that no calendar has
        pass
    raise BadRequest(name, f"{written!r} is not a day", remedy="YYYY-MM-DD, for example 2024-02-29")


def days_between(first: str | None, last: str | None, interval: str, now: date) -> list[date]:
    """The days asked for; BadRequest for what is no day, for one in the future, and for none at all."""
    until = now if last is None else parse_day("to", last)
    since = until - timedelta(days=USUAL_DAYS) if first is None else parse_day("from", first)
    for name, day in (("from", since), ("to", until)):
        if day > now:
            raise BadRequest(name, f"{day} is in the future: today is {now} (UTC)")
    if since > until:
        raise BadRequest("from", f"{since} is after {until}")
    if interval not in INTERVALS:
        raise BadRequest("interval", f"{interval!r} is none of {', '.join(INTERVALS)}")
    return days_from(since, until, interval)


async def values(
    engine: Engine,
    accounts: Sequence[Account],
    chains: Sequence[Chain],
    days: Sequence[date],
    *,
    again: bool,
    progress: Callable[[int], None] = lambda count: None,
) -> list[DayValue]:
    """What accounts were worth on some days; what was not kept is by now. `progress` gets the number of values that
    were read each time."""
    if len(days) * len(accounts) > MAX_VALUES:
        asked = f"{len(days) * len(accounts):,} values are more than {MAX_VALUES:,}"
        raise BadRequest("from", asked, remedy="--interval week or month, or fewer addresses at a time")

    async def of_chain(chain: Chain) -> list[DaySnapshot]:
        wallets, found = addresses_of(chain, accounts), list[DaySnapshot]()
        async for some in engine.history.read(chain, dict.fromkeys(days, wallets), retry=again):
            found += some
            progress(len(some))
        return found

    read = await asyncio.gather(*map(of_chain, chains))
    return day_values([each.address for each in accounts], days, (each for some in read for each in some))


# --- transactions ----------------------------------------------------------------------------------------------------


def transaction_filter(
    chain: str | None, limit: int, offset: int, first: str | None, last: str | None
) -> TransactionFilter:
    """Which transactions are asked for: `limit` at a time behind the first `offset`, from a day up to a day.

    Raises:
        BadRequest: for an offset or a day out of range.
    """
    if not 0 <= offset <= MAX_OFFSET:
        raise BadRequest("offset", f"{offset} is not between 0 and {MAX_OFFSET}")
    since_us = None if first is None else _day_us("from", first)
    until_us = None if last is None else _day_us("to", last) + DAY_US - 1
    if since_us is not None and until_us is not None and since_us > until_us:
        raise BadRequest("from", f"{first} is after {last}")
    networks = (chain,) if chain else ()
    return TransactionFilter(limit, offset, networks=networks, since_us=since_us, until_us=until_us)


def _day_us(name: str, written: str) -> int:
    """Return the beginning of a day in UTC as microseconds."""
    day = parse_day(name, written)
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000


async def transaction_pages(
    engine: Engine, owner: Account, question: TransactionFilter, *, every: bool
) -> AsyncIterator[Transactions]:
    """Yield one page, or every page from its place on. A page goes on behind the one before it, whatever blocks came or
    were replaced meanwhile."""
    while True:
        page = await engine.transactions([owner], question)
        yield page.document
        if not every or page.end is None:
            return
        question = replace(question, offset=page.end.count, after=page.end)


def joined_pages(pages: Sequence[Transactions]) -> Transactions:
    """Return one document of several pages: partial if one of them is, each issue once."""
    if len(pages) == 1:
        return pages[0]
    partial = [page for page in pages if page.completeness == "partial"]
    issues = {msgspec.json.encode(issue): issue for page in pages for issue in page.issues}
    return structs.replace(
        (partial or pages)[0],
        transactions=tuple(each for page in pages for each in page.transactions),
        issues=tuple(issues.values()),
    )


# --- reconciliations -------------------------------------------------------------------------------------------------


async def on_each_chain(
    system: System,
    accounts: Sequence[Account],
    named: Sequence[str],
    work: Callable[[Chain, Sequence[str]], Awaitable[list[T]]],
) -> list[T]:
    """Some work on each chain in turn, with the accounts of its kind; of chains that nobody named, on those where they
    are indexed."""
    found: list[T] = []
    lacking: list[NotIndexed] = []
    for chain in chains_with_past(system, accounts, named):
        addresses = [each.address for each in accounts if each.kind == chain.kind]
        try:
            found += await work(chain, addresses) if addresses else []
        except NotIndexed as error:
            lacking.append(error)
    if lacking and (named or not found):
        raise lacking[0]
    return found


def check_reconcile(first: int | None, checkpoints: int, max_requests: int | None) -> None:
    """BadRequest for numbers that no reconciliation can have."""
    if first is not None and first < 0:
        raise BadRequest("from", "a block height is at least 0")
    for name, value in (("checkpoints", checkpoints), ("max-requests", max_requests)):
        if value is not None and value < 1:
            raise BadRequest(name, "at least 1")


async def reconciliations(
    system: System,
    chain: Chain,
    addresses: Sequence[str],
    first: int | None,
    last: int | None,
    checkpoints: int,
    max_requests: int | None,
    told: Callable[[str], None] = lambda text: None,
) -> tuple[list[Reconciliation], Mapping[Asset, Token]]:
    """The reconciliations of accounts on a chain, and the tokens of them that have names."""
    from chainfolio.engine.reconcile.reconciler import Reconciler
    from chainfolio.engine.wiring import snapshotter_of

    snapshotter, native = snapshotter_of(system, chain), chain.info.native
    reconciler = Reconciler(
        chain,
        system.lake,
        system.tail,
        checkpoints,
        max_requests=max_requests,
        on_progress=told,
        trust_of=snapshotter.trust,
    )
    results = await reconciler.run(addresses, first, last)
    assets: set[Asset] = {asset(each.asset).collection for result in results for each in result.assets}
    end = Block(results[0].last_block, results[0].block_hash, "", 0)
    known = snapshotter.book.described_at(assets, end) | {native.asset: native}
    differing = {asset(each.asset).collection for result in results for each in result.differences} - known.keys()
    if differing:
        with suppress(SourceError):  # without names the result is the same
            known |= (await snapshotter.token_context(differing, end)).tokens
    return results, known
