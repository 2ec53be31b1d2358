"""The parts of a change of value between two stored days, from all transactions of accounts.

If the index does not reach back to the beginning, what was held on the first day is a lot without a known cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Final

from chainfolio.currencies import is_coin
from chainfolio.engine.gains.pnl import GainsResult, PnlRequest, all_records, gains_until
from chainfolio.engine.history.day_blocks import midnight_us
from chainfolio.engine.history.past_days import History, addresses_of
from chainfolio.engine.history.snapshot_store import DaySnapshot, SnapshotStore
from chainfolio.engine.prices.conversion import Conversion
from chainfolio.engine.record_source import RecordSource
from chainfolio.errors import ChainfolioError, NotIndexed
from chainfolio.messages import public
from chainfolio.portfolio.metrics.changes import ChangesDocument, DayState, ValueChange, day_holdings
from chainfolio.portfolio.pnl.closing import (
    closings,
    held_assets,
    owed_assets,
    shown_pools,
    spam_assets,
)
from chainfolio.portfolio.pnl.debts import open_debts
from chainfolio.portfolio.pnl.entries import Entry, sort_entries, without_loans
from chainfolio.portfolio.pnl.lots import LOTS
from chainfolio.portfolio.pnl.methods import gains_of
from chainfolio.portfolio.transactions import raw_balance

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.chains import Chain
    from chainfolio.engine.gains.position_changes import Changes
    from chainfolio.engine.results import TransactionsPage
    from chainfolio.portfolio.document import Portfolio

FEWER: Final = "fewer than two days are known"
NO_COINS: Final = "costs are converted to fiat money only"
NOT_STORED: Final = "what was held on past days is not stored"
OPENING: Final = "it was held before the first indexed block: its cost is not known"
BEFORE: Final = -1  # the height of a chain that had not begun


@dataclass(frozen=True, slots=True)
class Day:
    """A day whose value is known, with the stored snapshots of all chains and accounts as it began."""

    day: date
    value: Decimal
    snapshots: Sequence[DaySnapshot]

    @property
    def moment_us(self) -> int:
        """The last microsecond before the day: the time of its rate."""
        return midnight_us(self.day) - 1

    @property
    def portfolios(self) -> list[Portfolio]:
        """The portfolios of the day."""
        return [each.portfolio for each in self.snapshots if each.document is not None]

    def blocks(self, chains: Iterable[Chain]) -> dict[str, int]:
        """Return the block at which each chain was read; -1 if it had not begun."""
        heights = {each.chain: each.block.height for each in self.snapshots if each.document is not None}
        return {chain.key: heights.get(chain.key, BEFORE) for chain in chains}


async def value_changes(
    source: RecordSource,
    history: History,
    accounts: Sequence[Account],
    chains: Sequence[Chain],
    values: Mapping[date, Decimal],
    currency: str,
) -> tuple[ChangesDocument, frozenset[str]]:
    """Return the parts of the change between the first and the last day of `values`, and assets that close.

    The deposits of assets that close are in the values. Parts that are not known have a reason.

    Failures that concern only the transactions are a reason, and are not raised.
    """
    method = source.system.settings.pnl.method
    method = method if method in LOTS else "fifo"
    if len(values) < 2 or is_coin(currency) or history.store is None:
        reason = FEWER if len(values) < 2 else NO_COINS if is_coin(currency) else NOT_STORED
        return ChangesDocument(method=method, reason=reason), frozenset()
    days = min(values), max(values)
    snapshots = await asyncio.to_thread(_snapshots, history.store, chains, accounts, days)
    ends = [Day(day, values[day], snapshots[day]) for day in days]
    request = PnlRequest(method, networks=tuple(chain.key for chain in chains))
    since_us = midnight_us(ends[0].day)
    try:
        page, changes, is_whole = await _records(source, accounts, request, since_us)
        moments_us = [int(each.timestamp) * 1_000_000 for each in page.document.transactions]
        conversion = await Conversion.of(history, currency, [*moments_us, *(each.moment_us for each in ends)])
    except ChainfolioError as error:
        return ChangesDocument(method=method, reason=public(error.message)), frozenset()

    def per_usd(time_us: int) -> Decimal:
        return conversion.value(Decimal(1), time_us)

    first, last = (gains_until(source, accounts, request, page, changes, each.blocks(chains), per_usd) for each in ends)
    if not is_whole:
        opening = list(_opening_entries(ends[0].portfolios, first.aliases, since_us - 1))
        first, last = (_with_opening(each, opening, request) for each in (first, last))
    entries = without_loans(sort_entries(last.entries), {}, per_wallet=False)
    change = ValueChange(
        _state(ends[0], first, conversion),
        _state(ends[1], last, conversion),
        [each for each in entries if each.time_us >= since_us],
        [each for each in last.gains.gains if each.time_us >= since_us],
        first.shares | last.shares,
        last.first_blocks,
        cache(source.is_trusted_contract),
    )
    closed = change.closed_assets()
    aliases = {key for key, asset in first.aliases.items() if asset in closed}
    return change.document(method), closed | aliases


def _snapshots(
    store: SnapshotStore, chains: Sequence[Chain], accounts: Sequence[Account], days: Sequence[date]
) -> Mapping[date, list[DaySnapshot]]:
    """Return the newest stored snapshots of some days."""
    snapshots: dict[date, list[DaySnapshot]] = {day: [] for day in days}
    for chain in chains:
        for (_, day), snapshot in store.newest(chain.key, addresses_of(chain, accounts), days).items():
            snapshots[day].append(snapshot)
    return snapshots


async def _records(
    source: RecordSource, accounts: Sequence[Account], request: PnlRequest, since_us: int
) -> tuple[TransactionsPage, Changes, bool]:
    """Return records, changes of positions, and True if the records are all since the beginning.

    If the index does not reach back so far, they are those since `since_us`.
    """
    try:
        return *(await all_records(source, accounts, request)), True
    except NotIndexed:
        return *(await all_records(source, accounts, request, since_us)), False


def _state(day: Day, result: GainsResult, conversion: Conversion) -> DayState:
    """Return what was held and owed as a day began, with the lots of its transactions."""

    def converted(value: Decimal) -> Decimal:
        return conversion.value(value, day.moment_us)

    portfolios = day.portfolios
    holdings, rewards = day_holdings(portfolios, result.aliases, converted)
    left_out = spam_assets(portfolios) | result.shares
    checks = closings(
        result.gains.remaining,
        held_assets(portfolios, result.aliases),
        lambda asset: asset not in left_out,
        shown_pools(portfolios, result.aliases, result.pools),
    )
    return DayState(
        converted(day.value),
        holdings,
        rewards,
        {each.asset: each for each in result.gains.remaining},
        {asset: check for (asset, _), check in checks.items()},
        open_debts(result.entries),
    )


def _opening_entries(portfolios: Sequence[Portfolio], aliases: Mapping[str, str], time_us: int) -> Iterator[Entry]:
    """Yield entries that bring what was held and owed at a time, without a known cost."""
    for (asset, _), held in held_assets(portfolios, aliases).items():
        if held.raw:
            yield Entry(time_us, "received", asset, held.raw, order=-1, reason=OPENING)
        if held.in_protocols:
            yield Entry(time_us, "deposit", asset, held.in_protocols)
    for document in portfolios:
        for owed in owed_assets(document):
            if raw := raw_balance(owed):
                asset = aliases.get(owed.chain_contract, owed.chain_contract)
                yield Entry(time_us, "borrow", asset, raw, order=-3, reason=OPENING)
                yield Entry(time_us, "sent", asset, raw, order=-2, reason=OPENING)


def _with_opening(result: GainsResult, opening: Sequence[Entry], request: PnlRequest) -> GainsResult:
    """Return gains with what was held before all records."""
    entries = [*opening, *result.entries]
    return replace(result, entries=entries, gains=gains_of(entries, request.method))
