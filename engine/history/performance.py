"""The performance of some wallets: their kept days, and what the index says came from outside between them.

Where the index does not cover the span, or a flow has no price, the returns are not known: a deposit is never taken for
a gain.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from chainfolio import amounts
from chainfolio.blocks import Block
from chainfolio.engine.answers import TransactionFilter
from chainfolio.engine.history.day_blocks import midnight_us
from chainfolio.engine.history.day_values import DayValue, day_values
from chainfolio.engine.history.past_days import ABSENT, PENDING, addresses_of
from chainfolio.engine.history.snapshot_store import UNREADABLE, DaySnapshot
from chainfolio.engine.prices.conversion import Conversion
from chainfolio.errors import NotIndexed, SourceError
from chainfolio.messages import public
from chainfolio.portfolio.compose import issue_documents
from chainfolio.portfolio.metrics.exposure import Exposure, exposure
from chainfolio.portfolio.metrics.flows import ValuationScope, flow_of
from chainfolio.portfolio.metrics.report import FlowDocument, PerformanceData, PerformanceDocument, document
from chainfolio.portfolio.metrics.value_series import Flow, value_series

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.chains import Chain
    from chainfolio.contracts import Issue
    from chainfolio.engine.service import Engine
    from chainfolio.portfolio.document import IssueDocument
    from chainfolio.portfolio.transactions import TransactionDocument

log = logging.getLogger("chainfolio.engine")
NOTHING_KEPT: Final = Exposure({}, {}, {}, frozenset(), {})
MAX_REASONS: Final = 5  # of one period
Held = Mapping[date, tuple[frozenset[str], frozenset[str], frozenset[str]]]  # valued, without a value, protocols


async def performance(
    engine: Engine,
    accounts: Sequence[Account],
    chains: Sequence[Chain],
    values: Sequence[DayValue],
    currency: str,
    unserved: Sequence[Issue] = (),
) -> PerformanceDocument:
    """The performance of wallets, as those of one owner, over the days of `values`, which are kept. `unserved` are the
    issues of wallets that are not among them."""
    days, remarks = _known_days(values)
    is_partial = any(value.completeness in ("partial", UNREADABLE) for value in values)
    held = await asyncio.to_thread(_held, engine, chains, accounts, list(days)) if days else {}
    flows, faults, issues = await _flows(engine, accounts, chains, held)
    conversion = await Conversion.of(
        engine, currency, [*(midnight_us(day) - 1 for day in days), *(flow.time_us for flow, _ in flows)]
    )
    points = value_series(
        {midnight_us(day): conversion.value(value, midnight_us(day) - 1) for day, value in days.items()},
        [Flow(flow.time_us, conversion.value(flow.value, flow.time_us)) for flow, _ in flows],
    )
    shown = await asyncio.to_thread(_exposure, engine, chains, accounts, max(days)) if days else NOTHING_KEPT
    return document(
        PerformanceData(
            [each.address for each in accounts],
            currency,
            points,
            [_document(flow, record, conversion) for flow, record in flows],
            faults,
            shown,
            [*remarks, *conversion.remarks],
            (*issue_documents(unserved), *issues),
            "partial" if unserved or is_partial else "complete",
        )
    )


async def values_of(
    engine: Engine, accounts: Sequence[Account], chains: Sequence[Chain], days: Sequence[date]
) -> list[DayValue]:
    """What accounts were worth on some days, within the time of a request. The days of a chain that could not be read
    by then are unreadable; what was read is kept. The error of a chain is raised if no day is known."""
    found = await asyncio.gather(*(_within(engine, chain, accounts, days) for chain in chains))
    values = day_values([each.address for each in accounts], days, (each for some, _ in found for each in some))
    errors = [error for _, error in found if error is not None]
    if errors and all(value.value is None for value in values):
        raise errors[0]
    return values


async def _within(
    engine: Engine, chain: Chain, accounts: Sequence[Account], days: Sequence[date]
) -> tuple[list[DaySnapshot], SourceError | None]:
    """The days of accounts on one chain, those that could not be read as unreadable, and the error that ended it."""
    wanted = dict.fromkeys(days, addresses_of(chain, accounts))
    found: list[DaySnapshot] = []
    try:
        async with engine.history.budget(chain):
            async for some in engine.history.read(chain, wanted):
                found += some
    except SourceError as error:
        log.warning("%s could not be read: %s", chain.key, error.message)
        read = {(each.account, each.day) for each in found}
        reason, nowhere = f"the chain could not be read: {public(error.reason)}", Block(0, "", "", 0)
        found += [
            DaySnapshot(chain.key, address, day, nowhere, UNREADABLE, reason, retry=True)
            for day, addresses in wanted.items()
            for address in addresses
            if (address, day) not in read
        ]
        return found, error
    return found, None


def _known_days(values: Iterable[DayValue]) -> tuple[dict[date, Decimal], list[str]]:
    """The values of the days that are known whole, of all wallets together; and which days are not."""
    by_day: defaultdict[date, list[DayValue]] = defaultdict(list)
    for each in values:
        by_day[each.day].append(each)
    known, left = dict[date, Decimal](), defaultdict[tuple[str, str], list[date]](list)
    for day, some in sorted(by_day.items()):
        there = [each for each in some if each.completeness != ABSENT]
        parts = [each.value for each in there if each.completeness == "complete" and each.value is not None]
        if there and len(parts) == len(there):
            known[day] = amounts.total(parts)
            continue
        first = next((each for each in there if each.completeness != "complete"), some[0])
        if first.completeness not in (ABSENT, PENDING) or known:
            left[first.completeness, first.reason].append(day)
    return known, [_left_out(days, *why) for why, days in left.items()]


def _left_out(days: Sequence[date], completeness: str, reason: str) -> str:
    which = f"{days[0]} is" if len(days) == 1 else f"{len(days)} days from {days[0]} to {days[-1]} are"
    return f"{which} left out, {completeness}: {reason}"


# --- what the days have in them ---------------------------------------------------------------------------------------


def _held(engine: Engine, chains: Sequence[Chain], accounts: Sequence[Account], days: Sequence[date]) -> Held:
    """By day the assets that have a value, those that have none, and the protocols with a value, of kept snapshots."""
    import polars as pl

    found: dict[date, tuple[set[str], set[str], set[str]]] = {day: (set(), set(), set()) for day in days}
    if (store := engine.history.store) is None:
        return {}
    for chain in chains:
        rows = store.holdings(chain.key, addresses_of(chain, accounts), days)
        is_valued = pl.col("value").is_not_null() & ~pl.col("spam")
        rows = rows.with_columns(is_valued.alias("valued")).select("day", "asset", "protocol", "valued").unique()
        for day, asset, protocol, valued in rows.iter_rows():
            inside, outside, protocols = found[day.date()]
            (inside if valued else outside).add(f"{chain.key}:{asset}")
            if valued:
                protocols.add(protocol)
    return {
        day: (frozenset(inside), frozenset(outside - inside), frozenset(protocols))
        for day, (inside, outside, protocols) in found.items()
    }


def _exposure(engine: Engine, chains: Sequence[Chain], accounts: Sequence[Account], day: date) -> Exposure:
    """Where the value of a kept day lies."""
    if (store := engine.history.store) is None:
        return NOTHING_KEPT
    kept = [
        each
        for chain in chains
        for each in store.newest(chain.key, addresses_of(chain, accounts), [day]).values()
        if each.document is not None
    ]
    return exposure(each.portfolio for each in kept)


# --- what came and left between them ----------------------------------------------------------------------------------

Valued = tuple[Flow, "TransactionDocument"]


async def _flows(
    engine: Engine, accounts: Sequence[Account], chains: Sequence[Chain], held: Held
) -> tuple[list[Valued], dict[int, list[str]], tuple[IssueDocument, ...]]:
    """All flows between the days, and by the point after them why some are not known."""
    days, faults = sorted(held), defaultdict[int, list[str]](list)
    if len(days) < 2:
        return [], {}, ()
    for before, after in pairwise(days):
        faults[midnight_us(after)] += _changes(held, before, after)
    wallets = {account.address for account in accounts}
    system = engine.system
    since_us, until_us = midnight_us(days[0]), midnight_us(days[-1]) - 1
    asked = TransactionFilter(
        system.settings.server.max_transactions * len(accounts) + 1,
        0,
        newest_first=False,
        networks=tuple(chain.key for chain in chains),
        since_us=since_us,
        until_us=until_us,
    )
    try:
        page = (await engine.records(accounts, asked))[0].document
    except NotIndexed as error:
        whose = " ".join(sorted(wallets))
        faults[midnight_us(days[-1])].append(
            f"what came from outside is not known: {error.message}; "
            f"chainfolio watch {whose} --chain {error.chain} reads it"
        )
        return [], _told(faults), ()
    if page.completeness != "complete":
        said = "; ".join(f"{each.subject}: {each.reason}" for each in page.issues)
        faults[midnight_us(days[-1])].append(f"what came from outside may not be known whole: {said}")
    found, vouched = [], cache(engine.is_trusted_contract)
    for before, after, records in _by_period(days, page.transactions):
        measured = ValuationScope(*(held[before][part] | held[after][part] for part in range(3)))
        for record in records:
            value = flow_of(record, wallets, measured, vouched)
            if value is None:
                faults[midnight_us(after)].append(
                    f"what {record.hash} moved has no known worth at block {record.block_number} of {record.chain.key}"
                )
            elif value:
                found.append((Flow(_time_us(record), value), record))
    return found, _told(faults), page.issues


def _changes(held: Held, before: date, after: date) -> list[str]:
    """Assets that have a value on one of two days and none on the other: the difference is no gain and no loss."""
    (valued, without, _), (valued_after, without_after, _) = held[before], held[after]
    changed = sorted((valued & without_after) | (without & valued_after))
    return [f"{key} has a value on one of {before} and {after} only" for key in changed]


def _by_period(
    days: Sequence[date], records: Sequence[TransactionDocument]
) -> Iterable[tuple[date, date, list[TransactionDocument]]]:
    """The records between each day and the next one."""
    rest = sorted(records, key=_time_us)
    place = 0
    for before, after in pairwise(days):
        first = place
        while place < len(rest) and _time_us(rest[place]) < midnight_us(after):
            place += 1
        yield before, after, rest[first:place]


def _told(faults: Mapping[int, list[str]]) -> dict[int, list[str]]:
    """The reasons of each period that has some, not more than can be read."""
    return {
        at: [*some[:MAX_REASONS], *([f"and {len(some) - MAX_REASONS:,} more"] if len(some) > MAX_REASONS else [])]
        for at, some in sorted(faults.items())
        if some
    }


def _time_us(record: TransactionDocument) -> int:
    return int(record.timestamp) * 1_000_000


def _document(flow: Flow, record: TransactionDocument, conversion: Conversion) -> FlowDocument:
    return FlowDocument(
        time=f"{datetime.fromtimestamp(flow.time_us // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}",
        chain=record.chain.key,
        wallet=record.user.address,
        transaction=record.hash,
        type=record.type,
        value=amounts.text(conversion.value(flow.value, flow.time_us)),
    )
