"""What accounts held on stored days, with the lots of all their transactions up to each day.

If the index does not reach back to the beginning, what was held on the first day is a lot without a known cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from chainfolio.engine.account_support import addresses_of
from chainfolio.engine.gains.pnl import AccountRecords, GainsResult, PnlRequest, all_records, gains_until
from chainfolio.engine.history.day_blocks import midnight_us
from chainfolio.engine.history.snapshot_store import DaySnapshot, SnapshotStore
from chainfolio.engine.prices.conversion import Conversion
from chainfolio.engine.record_source import RecordSource
from chainfolio.errors import NotIndexed
from chainfolio.portfolio.metrics.changes import DayState, day_holdings
from chainfolio.portfolio.pnl.closing import (
    closings,
    held_assets,
    owed_assets,
    shown_pools,
    spam_assets,
    with_rents,
)
from chainfolio.portfolio.pnl.debts import open_debts
from chainfolio.portfolio.pnl.entries import Entry
from chainfolio.portfolio.pnl.methods import gains_of
from chainfolio.portfolio.pnl.share_lots import positions_of, share_lots
from chainfolio.portfolio.transactions import raw_balance

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.chains import Chain
    from chainfolio.portfolio.document import Portfolio

OPENING: Final = "it was held before the first indexed block: its cost is not known"
BEFORE: Final = -1  # the height of a chain that had not begun
IN_USD: Final = Conversion()


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

    def lacks_shares_of(self, later: Day) -> bool:
        """Return True if a position names no shares, and names some on a later day.

        Then it may have been stored before positions named their shares.
        """
        return not self._keys(with_shares=False).isdisjoint(later._keys(with_shares=True))

    def _keys(self, *, with_shares: bool) -> set[tuple[str, str, str]]:
        """Return account, pool and name of the positions that name shares, or of those that do not."""
        positions = ((each.address, position) for each in self.portfolios for position in positions_of(each))
        return {
            (address, position.pool_address, position.name)
            for address, position in positions
            if (position.shares is not UNSET) is with_shares
        }

    def blocks(self, chains: Iterable[Chain]) -> dict[str, int]:
        """Return the block at which each chain was read; -1 if it had not begun."""
        heights = {each.chain: each.block.height for each in self.snapshots if each.document is not None}
        return {chain.key: heights.get(chain.key, BEFORE) for chain in chains}


@dataclass(frozen=True, slots=True)
class AccountDays:
    """Transactions of accounts, and their stored days.

    Attributes:
        values: The values of days that are known, in USD; two at least.
        is_whole: True if the records reach back to the beginning; else to the first day.
    """

    source: RecordSource
    store: SnapshotStore
    accounts: Sequence[Account]
    chains: Sequence[Chain]
    values: Mapping[date, Decimal]
    request: PnlRequest
    records: AccountRecords
    is_whole: bool

    @classmethod
    async def read(
        cls,
        source: RecordSource,
        store: SnapshotStore,
        accounts: Sequence[Account],
        chains: Sequence[Chain],
        values: Mapping[date, Decimal],
        method: str,
    ) -> AccountDays:
        """Read all transactions of accounts, or those since the first day if the index does not reach back.

        Raises:
            NotIndexed: The index does not reach back to the first day.
        """
        request = PnlRequest(method, networks=tuple(chain.key for chain in chains))
        records, is_whole = await _records(source, accounts, request, midnight_us(min(values)))
        return cls(source, store, accounts, chains, values, request, records, is_whole)

    async def day(self, day: date) -> Day:
        """Read the stored snapshots of a day; KeyError if the day is not in `values`."""
        return Day(
            day, self.values[day], await asyncio.to_thread(_snapshots, self.store, self.chains, self.accounts, day)
        )

    async def gains(self, day: Day, per_usd: Callable[[int], Decimal] | None = None) -> GainsResult:
        """Return the gains of all transactions before a day; `per_usd` as of `gains_until`.

        If the records do not reach back to the beginning, what was held on the first day is a lot without a known cost.
        """
        blocks = day.blocks(self.chains)
        result = gains_until(self.source, self.accounts, self.request, self.records, blocks, per_usd)
        if self.is_whole:
            return result
        first = await self.day(min(self.values))
        opening = list(_opening_entries(first.portfolios, result.aliases, first.moment_us))
        return _with_opening(result, opening, self.request)

    async def state(self, day: date) -> tuple[DayState, Mapping[str, str]]:
        """Return an account as a known day began, in USD, and the keys of assets that count as another one."""
        stored = await self.day(day)
        result = await self.gains(stored)
        return day_state(stored, result, IN_USD), result.aliases


def _snapshots(
    store: SnapshotStore, chains: Sequence[Chain], accounts: Sequence[Account], day: date
) -> list[DaySnapshot]:
    """Return the newest stored snapshots of a day."""
    return [
        snapshot
        for chain in chains
        for snapshot in store.newest(chain.key, addresses_of(chain, accounts), [day]).values()
    ]


async def _records(
    source: RecordSource, accounts: Sequence[Account], request: PnlRequest, since_us: int
) -> tuple[AccountRecords, bool]:
    """Return the records, and True if they are all since the beginning.

    If the index does not reach back so far, they are those since `since_us`.
    """
    try:
        return await all_records(source, accounts, request), True
    except NotIndexed:
        return await all_records(source, accounts, request, since_us), False


def day_state(day: Day, result: GainsResult, conversion: Conversion, *, with_shares: bool = True) -> DayState:
    """Return what was held and owed as a day began, with the remaining lots of `result`.

    Values are in the currency of `conversion`. Lots of shares have a part of positions only `with_shares`.
    """

    def converted(value: Decimal) -> Decimal:
        return conversion.value(value, day.moment_us)

    portfolios = day.portfolios
    lots = result.gains.remaining if with_shares else ()
    shares = share_lots(portfolios, lots, result.contents, result.aliases)
    holdings, rewards = day_holdings(portfolios, result.aliases, converted, shares)
    left_out = spam_assets(portfolios) | result.shares
    checks = closings(
        result.gains.remaining,
        with_rents(held_assets(portfolios, result.aliases, shares=shares), result.rents),
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
