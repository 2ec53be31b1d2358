"""Daily snapshots at 00:00 UTC of all scheduled accounts, and of days that were missed.

Work to do is what is not stored, so no other state is needed: after a stop or crash, all missing days are read. One
process at a time works on a chain.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from chainfolio.assets import Account
from chainfolio.engine.history.day_blocks import day_of, days_from
from chainfolio.engine.history.past_days import PENDING, History
from chainfolio.engine.history.snapshot_store import UNREADABLE, DaySnapshot
from chainfolio.engine.snapshots.replay import has_past
from chainfolio.errors import Locked
from chainfolio.supervisor import Task

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.indexer.schedule import JobSchedule

SNAPSHOTS: Final = "snapshots"  # name of the jobs
POLL_S: Final = 30.0  # until the last block of the day before is final
FirstDays = Mapping[Account, date | None]  # by account; None: the first stored day, else today


@dataclass(slots=True)
class DailyStatus:
    """State of the schedule of one chain.

    Attributes:
        accounts: Number of scheduled accounts.
        taken_count: Snapshots taken since the process began.
        missing: Days of accounts that are not taken yet.
        failed: Days of accounts that could not be read completely.
    """

    accounts: int = 0
    taken_count: int = 0
    missing: int = 0
    failed: int = 0


@dataclass(slots=True)
class _Progress:
    """Progress on one chain: the last finished day by account, and snapshots that are retried once a day."""

    finished_until: dict[str, date] = field(default_factory=dict)
    failed: set[tuple[str, date]] = field(default_factory=set)
    retried_on: date | None = None

    def keep(self, firsts: Mapping[str, date]) -> None:
        """Drop accounts that are not scheduled, and failed days before the first one of their account."""
        self.finished_until = {each: day for each, day in self.finished_until.items() if each in firsts}
        self.failed = {(each, day) for each, day in self.failed if each in firsts and day >= firsts[each]}


@dataclass(slots=True)
class Schedule:
    """Takes the snapshots, with one job for each chain; `first_days` returns the accounts."""

    history: History
    jobs: JobSchedule
    first_days: Callable[[], Awaitable[FirstDays]]
    status: dict[str, DailyStatus] = field(default_factory=dict)
    _progress: dict[str, _Progress] = field(default_factory=dict)
    _locks: dict[str, ExitStack] = field(default_factory=dict)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Schedule a job for every chain that has past balances, for the duration of the block."""
        chains = [chain for chain in self.history.system.account_chains if has_past(chain)]
        for chain in chains:
            self.jobs.add(SNAPSHOTS, partial(self.run, chain), chain=chain.key, at_start=True)
        try:
            yield
        finally:
            for chain in chains:
                await self.jobs.remove(SNAPSHOTS, chain=chain.key)
            self.release()

    def release(self) -> None:
        """Release the locks of all chains, so that another process can take their snapshots."""
        for lock in self._locks.values():
            lock.close()
        self._locks.clear()

    async def run(self, chain: Chain) -> None:
        """Take all missing snapshots; wait for those whose block is not final yet.

        Does nothing if another process takes them: the first process that runs is the only one until `release`.

        Raises:
            SourceError: The chain could not be read.
        """
        if chain.key not in self._locks:
            lock = ExitStack()
            try:
                lock.enter_context(
                    self.history.system.tail.hold(f"{chain.key}.daily", f"snapshots of {chain.key}", store="lake")
                )
            except Locked:
                return
            self._locks[chain.key] = lock
        task = self.jobs.supervisor.task(SNAPSHOTS, chain=chain.key)
        while await self.take_missing(chain, task):
            task.progressed()
            await self.history.system.environment.clock.sleep(POLL_S)

    async def take_missing(self, chain: Chain, task: Task) -> bool:
        """Take all missing snapshots, and return True if the block of some day is not final yet.

        Days that failed are read again once a day. The status of the chain is updated.

        Raises:
            SourceError: The chain could not be read.
        """
        status, progress = (
            self.status.setdefault(chain.key, DailyStatus()),
            self._progress.setdefault(chain.key, _Progress()),
        )
        today = day_of(self.history.system.environment.clock.now_us())
        firsts = await self._first_days(chain, today)
        progress.keep(firsts)
        accounts_by_day: dict[date, list[str]] = {}
        for account, first in firsts.items():
            begin = max(first, progress.finished_until.get(account, date.min) + timedelta(days=1))
            for day in days_from(begin, today):
                accounts_by_day.setdefault(day, []).append(account)
        if progress.retried_on != today:
            for account, day in progress.failed:
                accounts_by_day.setdefault(day, []).append(account)
        status.accounts, status.missing = len(firsts), sum(map(len, accounts_by_day.values()))
        status.failed = len(progress.failed)
        pending: dict[str, date] = {}
        async for snapshots in self.history.read(chain, accounts_by_day, retry=True):
            task.progressed()
            _record(snapshots, progress, status, pending)
        progress.retried_on = today
        progress.finished_until |= {
            each: pending.get(each, today + timedelta(days=1)) - timedelta(days=1) for each in firsts
        }
        return bool(pending)

    async def _first_days(self, chain: Chain, today: date) -> dict[str, date]:
        """Return the first day of each scheduled account of a chain.

        Without a given one it is the first stored day, else `today`.
        """
        first_days = {
            each.address: first for each, first in (await self.first_days()).items() if each.kind == chain.kind
        }
        open_ = [address for address, first in first_days.items() if first is None]
        store = self.history.store
        stored = await asyncio.to_thread(store.first_days, chain.key, open_) if open_ and store else {}
        return {address: first or stored.get(address, today) for address, first in first_days.items()}


def _record(snapshots: list[DaySnapshot], progress: _Progress, status: DailyStatus, pending: dict[str, date]) -> None:
    """Count snapshots in `progress` and `status`, and note in `pending` each account's first pending day."""
    for each in snapshots:
        key = each.account, each.day
        if each.completeness == PENDING:
            pending[each.account] = min(pending.get(each.account, each.day), each.day)
            continue
        status.missing -= 1
        if each.completeness == UNREADABLE or each.retry:
            progress.failed.add(key)
        else:
            progress.failed.discard(key)
        if each.document is not None:
            status.taken_count += 1
    status.failed = len(progress.failed)


class DailySnapshots:
    """Collector of the schedule's Prometheus metrics."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def collect(self) -> Iterator[Any]:
        """Yield all metrics at their current values, with the chain as label."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        descriptions = {
            "accounts": ("chainfolio_snapshot_accounts", "accounts with daily snapshots"),
            "missing": ("chainfolio_snapshots_missing", "days of accounts to be taken"),
            "failed": ("chainfolio_snapshots_failed", "days of accounts that could not be read, or not whole"),
        }
        gauges = {name: GaugeMetricFamily(*description, labels=["chain"]) for name, description in descriptions.items()}
        counter = CounterMetricFamily("chainfolio_snapshots_taken", "snapshots taken by this process", labels=["chain"])
        for key, status in self._schedule.status.items():
            for name, gauge in gauges.items():
                gauge.add_metric([key], getattr(status, name))
            counter.add_metric([key], status.taken_count)
        yield from (*gauges.values(), counter)
