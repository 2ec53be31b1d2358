"""Performance of accounts: stored daily values, and flows between them by the index.

If the index does not cover the span, or a flow has no price, the returns are unknown: a deposit never counts as a gain.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol

from chainfolio import amounts
from chainfolio.blocks import Block
from chainfolio.engine.account_support import addresses_of
from chainfolio.engine.history.contained_deposits import ContainedDeposits
from chainfolio.engine.history.day_blocks import midnight_us
from chainfolio.engine.history.day_values import DayValue, day_values
from chainfolio.engine.history.missing_prices import with_missing_prices
from chainfolio.engine.history.past_days import ABSENT, PENDING, History
from chainfolio.engine.history.snapshot_store import UNREADABLE, DaySnapshot
from chainfolio.engine.history.value_changes import value_changes
from chainfolio.engine.prices.conversion import Conversion
from chainfolio.engine.record_source import RecordSource
from chainfolio.engine.results import MAX_DAYS, TransactionFilter
from chainfolio.errors import BadRequest, NotIndexed, SourceError
from chainfolio.messages import public
from chainfolio.portfolio.compose import issue_documents
from chainfolio.portfolio.metrics.exposure import Exposure, exposure
from chainfolio.portfolio.metrics.flows import CONTAINED, ValuationScope, flow_of
from chainfolio.portfolio.metrics.report import FlowDocument, PerformanceData, PerformanceDocument, document
from chainfolio.portfolio.metrics.value_series import Flow, value_series
from chainfolio.portfolio.pnl.transaction_records import TransactionRecord, record_of

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.chains import Chain
    from chainfolio.contracts import Issue
    from chainfolio.portfolio.document import IssueDocument

log = logging.getLogger("chainfolio.engine")
NO_EXPOSURE: Final = Exposure({}, {}, {}, frozenset(), {})
MAX_REASONS: Final = 5  # of one period
HoldingsByDay = Mapping[
    date, tuple[frozenset[str], frozenset[str], frozenset[str]]
]  # valued, without a value, protocols


class PerformanceSource(RecordSource, Protocol):
    """Reads past days in addition to records."""

    @property
    def history(self) -> History:
        """The past days of accounts."""


async def performance(
    source: PerformanceSource,
    accounts: Sequence[Account],
    chains: Sequence[Chain],
    values: Sequence[DayValue],
    currency: str,
    unserved: Sequence[Issue] = (),
) -> PerformanceDocument:
    """Return the performance of accounts, as those of one owner, over the stored days of `values`.

    Flows are read from the index, and days from the store. Unknown flows make returns unknown. Days that are not
    complete are left out, with a remark.

    Args:
        unserved: Issues of accounts that are left out.

    Raises:
        BadRequest: The currency is unknown.
        NotSupported: A rate of the currency is unknown.
        NotFound: An account has more than `server.max_transactions`.
        SourceError: A node could not be read for records or rates.
    """
    days, remarks = _known_days(values)
    is_partial = any(value.completeness in ("partial", UNREADABLE) for value in values)
    holdings = await asyncio.to_thread(_holdings_by_day, source.history, chains, accounts, list(days)) if days else {}
    changes, deposits = await value_changes(source, source.history, accounts, chains, days, currency)
    flows, faults, issues = await _flows(source, accounts, chains, holdings, deposits)
    moments_us = [*(midnight_us(day) - 1 for day in days), *(flow.time_us for flow, _ in flows)]
    conversion = await source.rates.conversion(currency, moments_us)
    points = value_series(
        {midnight_us(day): conversion.value(value, midnight_us(day) - 1) for day, value in days.items()},
        [Flow(flow.time_us, conversion.value(flow.value, flow.time_us)) for flow, _ in flows],
    )
    current_exposure = (
        await asyncio.to_thread(_exposure, source.history, chains, accounts, max(days)) if days else NO_EXPOSURE
    )
    return document(
        PerformanceData(
            [each.address for each in accounts],
            currency,
            points,
            [_document(flow, record, conversion) for flow, record in flows],
            faults,
            current_exposure,
            [*remarks, *conversion.remarks],
            (*issue_documents(unserved), *issues),
            "partial" if unserved or is_partial else "complete",
            changes,
        )
    )


async def read_values(
    history: History, accounts: Sequence[Account], chains: Sequence[Chain], days: Sequence[date]
) -> list[DayValue]:
    """Read a value for each account and day, in this order, within the time of a request.

    Days of a chain that were not read in time, or failed, are unreadable; days that were read are stored.

    Raises:
        BadRequest: There are more than `MAX_DAYS` days.
        SourceError: A chain failed, and no value is known.
    """
    if len(days) > MAX_DAYS:
        raise BadRequest("from", f"{days[0]} to {days[-1]} are {len(days):,} days: at most {MAX_DAYS}")
    results = await asyncio.gather(*(_read_chain(history, chain, accounts, days) for chain in chains))
    values = day_values(
        [each.address for each in accounts], days, (each for snapshots, _ in results for each in snapshots)
    )
    errors = [error for _, error in results if error is not None]
    if errors and all(value.value is None for value in values):
        raise errors[0]
    return values


async def _read_chain(
    history: History, chain: Chain, accounts: Sequence[Account], days: Sequence[date]
) -> tuple[list[DaySnapshot], SourceError | None]:
    """Read the days of accounts on one chain; also return the error that ended it, or None.

    Days that were not read are unreadable; the error is logged.
    """
    accounts_by_day = dict.fromkeys(days, addresses_of(chain, accounts))
    snapshots: list[DaySnapshot] = []
    try:
        async with history.budget(chain):
            async for batch in history.read(chain, accounts_by_day):
                snapshots += await with_missing_prices(history, chain, batch)
    except SourceError as error:
        log.warning("%s could not be read: %s", chain.key, error.message)
        read = {(each.account, each.day) for each in snapshots}
        reason, nowhere = f"the chain could not be read: {public(error.reason)}", Block(0, "", "", 0)
        snapshots += [
            DaySnapshot(chain.key, address, day, nowhere, UNREADABLE, reason, retry=True)
            for day, addresses in accounts_by_day.items()
            for address in addresses
            if (address, day) not in read
        ]
        return snapshots, error
    return snapshots, None


def _known_days(values: Iterable[DayValue]) -> tuple[dict[date, Decimal], list[str]]:
    """Return the sum over the accounts of each complete day, and remarks about the other days.

    A day counts if all accounts that exist on it have a complete value. Days before the first such day that are absent
    or pending have no remark.
    """
    by_day: defaultdict[date, list[DayValue]] = defaultdict(list)
    for each in values:
        by_day[each.day].append(each)
    totals, omitted = dict[date, Decimal](), defaultdict[tuple[str, str], list[date]](list)
    for day, values_of_day in sorted(by_day.items()):
        existing = [each for each in values_of_day if each.completeness != ABSENT]
        parts = [each.value for each in existing if each.completeness == "complete" and each.value is not None]
        if existing and len(parts) == len(existing):
            totals[day] = amounts.total(parts)
            continue
        first = next((each for each in existing if each.completeness != "complete"), values_of_day[0])
        if first.completeness not in (ABSENT, PENDING) or totals:
            omitted[first.completeness, first.reason].append(day)
    return totals, [_omission_remark(days, *cause) for cause, days in omitted.items()]


def _omission_remark(days: Sequence[date], completeness: str, reason: str) -> str:
    subject = f"{days[0]} is" if len(days) == 1 else f"{len(days)} days from {days[0]} to {days[-1]} are"
    return f"{subject} left out, {completeness}: {reason}"


# --- what the days have in them ---------------------------------------------------------------------------------------


def _holdings_by_day(
    history: History, chains: Sequence[Chain], accounts: Sequence[Account], days: Sequence[date]
) -> HoldingsByDay:
    """Return the valued assets, unvalued assets and valued protocols of stored snapshots, by day.

    Assets are `chain:asset`. Spam counts as unvalued. Each of `days` has an entry; without a store there are none.
    """
    import polars as pl

    holdings: dict[date, tuple[set[str], set[str], set[str]]] = {day: (set(), set(), set()) for day in days}
    if (store := history.store) is None:
        return {}
    for chain in chains:
        rows = store.holdings(chain.key, addresses_of(chain, accounts), days)
        is_valued = pl.col("value").is_not_null() & ~pl.col("spam")
        rows = rows.with_columns(is_valued.alias("valued")).select("day", "asset", "protocol", "valued").unique()
        for day, asset, protocol, valued in rows.iter_rows():
            valued_assets, unvalued_assets, protocols = holdings[day.date()]
            (valued_assets if valued else unvalued_assets).add(f"{chain.key}:{asset}")
            if valued:
                protocols.add(protocol)
    return {
        day: (frozenset(valued_assets), frozenset(unvalued_assets - valued_assets), frozenset(protocols))
        for day, (valued_assets, unvalued_assets, protocols) in holdings.items()
    }


def _exposure(history: History, chains: Sequence[Chain], accounts: Sequence[Account], day: date) -> Exposure:
    """Return how the value of a stored day is distributed; NO_EXPOSURE without a store."""
    if (store := history.store) is None:
        return NO_EXPOSURE
    snapshots = [
        each
        for chain in chains
        for each in store.newest(chain.key, addresses_of(chain, accounts), [day]).values()
        if each.document is not None
    ]
    return exposure(each.portfolio for each in snapshots)


# --- what came and left between them ----------------------------------------------------------------------------------

FlowRecord = tuple[Flow, TransactionRecord]


async def _flows(
    source: RecordSource,
    accounts: Sequence[Account],
    chains: Sequence[Chain],
    holdings: HoldingsByDay,
    deposits: ContainedDeposits,
) -> tuple[list[FlowRecord], dict[int, list[str]], tuple[IssueDocument, ...]]:
    """Return all flows between the days, the reasons for unknown ones by the day after them, and issues.

    Keys of reasons are microseconds of midnight. With fewer than two days all are empty. If transactions are not
    indexed, there are no flows, and the last day has the reason.

    Args:
        deposits: Compares days if a deposit is in a contract that no file names.
    """
    days, faults = sorted(holdings), defaultdict[int, list[str]](list)
    if len(days) < 2:
        return [], {}, ()
    for before, after in pairwise(days):
        faults[midnight_us(after)] += _changes(holdings, before, after)
    wallets = {account.address for account in accounts}
    since_us, until_us = midnight_us(days[0]), midnight_us(days[-1]) - 1
    record_filter = TransactionFilter(
        source.system.settings.server.max_transactions * len(accounts) + 1,
        0,
        newest_first=False,
        networks=tuple(chain.key for chain in chains),
        since_us=since_us,
        until_us=until_us,
    )
    try:
        page = (await source.records(accounts, record_filter))[0].document
    except NotIndexed as error:
        addresses = " ".join(sorted(wallets))
        faults[midnight_us(days[-1])].append(
            f"what came from outside is not known: {error.message}; "
            f"chainfolio watch {addresses} --chain {error.chain} reads it"
        )
        return [], _shorten(faults), ()
    if page.completeness != "complete":
        reasons = "; ".join(f"{each.subject}: {each.reason}" for each in page.issues)
        faults[midnight_us(days[-1])].append(f"what came from outside may not be known whole: {reasons}")
    flows, is_trusted = [], cache(source.is_trusted_contract)
    for before, after, records in _by_period(days, map(record_of, page.transactions)):
        parts = (holdings[before][part] | holdings[after][part] for part in range(3))
        scope = ValuationScope(*parts)
        for record in records:
            value, reason = await _flow_value(record, wallets, scope, is_trusted, deposits, (before, after))
            if value is None:
                faults[midnight_us(after)].append(reason)
            elif value:
                flows.append((Flow(record.time_us, value), record))
    return flows, _shorten(faults), page.issues


async def _flow_value(
    record: TransactionRecord,
    wallets: Collection[str],
    scope: ValuationScope,
    is_trusted: Callable[[str], bool],
    deposits: ContainedDeposits,
    period: tuple[date, date],
) -> tuple[Decimal | None, str]:
    """Return the flow of a record in USD, or None with the reason why it is not known.

    Days are compared only for a deposit or withdrawal that is no flow if closed assets are contained in values.
    """
    value = flow_of(record, wallets, scope, is_trusted)
    if value != 0 and record.type in CONTAINED:
        contained = await deposits.closed()
        if contained and flow_of(record, wallets, scope._replace(contained=contained), is_trusted) == 0:
            contained = await deposits.assets(*period)
        if contained is None:
            return None, f"{record.hash} is a deposit or a withdrawal: {deposits.reason}"
        value = flow_of(record, wallets, scope._replace(contained=contained), is_trusted)
    if value is None:
        return (
            None,
            f"what {record.hash} moved has no known worth at block {record.height} of {record.chain}",
        )
    return value, ""


def _changes(holdings: HoldingsByDay, before: date, after: date) -> list[str]:
    """Return a reason for each asset that has a value on one of the days only: no gain and no loss."""
    (valued, without, _), (valued_after, without_after, _) = holdings[before], holdings[after]
    changed = sorted((valued & without_after) | (without & valued_after))
    return [f"{key} has a value on one of {before} and {after} only" for key in changed]


def _by_period(
    days: Sequence[date], records: Iterable[TransactionRecord]
) -> Iterable[tuple[date, date, list[TransactionRecord]]]:
    """Yield each day, the next one in `days`, and the records between their midnights (UTC).

    Records before the first day are yielded with it; those from the last midnight on are left out.

    Args:
        days: Ascending.
        records: In any order.
    """
    ordered = sorted(records, key=lambda record: record.time_us)
    position = 0
    for before, after in pairwise(days):
        first = position
        while position < len(ordered) and ordered[position].time_us < midnight_us(after):
            position += 1
        yield before, after, ordered[first:position]


def _shorten(faults: Mapping[int, list[str]]) -> dict[int, list[str]]:
    """Return the reasons of each period that has some, at most `MAX_REASONS` and the number of the others."""
    return {
        at: [
            *reasons[:MAX_REASONS],
            *([f"and {len(reasons) - MAX_REASONS:,} more"] if len(reasons) > MAX_REASONS else []),
        ]
        for at, reasons in sorted(faults.items())
        if reasons
    }


def _document(flow: Flow, record: TransactionRecord, conversion: Conversion) -> FlowDocument:
    """Return a flow with its value in the currency, by the rate of its time."""
    return FlowDocument(
        time=f"{datetime.fromtimestamp(flow.time_us // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}",
        chain=record.chain,
        wallet=record.wallet,
        transaction=record.hash,
        type=record.type,
        value=amounts.text(conversion.value(flow.value, flow.time_us)),
    )
