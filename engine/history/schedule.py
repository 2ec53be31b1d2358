"""Daily snapshots: every day at 00:00 UTC, of every account that is wanted, and of the days that were missed.

What there is to do is what is not kept, so nothing else has to be remembered: a process that was down, killed or begun
anew makes up for all days that are missing. Of several processes one works on a chain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from chainfolio.assets import Account
from chainfolio.engine.history.day_blocks import day_of, days_from, midnight_us
from chainfolio.engine.history.past_days import PENDING, History
from chainfolio.engine.history.snapshot_store import UNREADABLE, DaySnapshot
from chainfolio.engine.snapshots.replay import has_past
from chainfolio.errors import Locked
from chainfolio.storage.disk import lock_file
from chainfolio.supervisor import Supervisor, Task

if TYPE_CHECKING:
    from chainfolio.chains import Chain

SNAPSHOTS: Final = "snapshots"  # the tasks, as logs and metrics name them
POLL_S: Final = 30.0  # while the last block of the day before is not final
LOOK_EVERY_S: Final = 900.0  # for new subscriptions
Wanted = Mapping[Account, date | None]  # the first day of each; None: the first that is kept, else today


@dataclass(slots=True)
class DailyStatus:
    """What the schedule knows of a chain: the accounts that it takes snapshots of; snapshots taken since the process
    began; days of accounts that are still to be taken; and those that could not be read, or not whole."""

    accounts: int = 0
    taken: int = 0
    missing: int = 0
    failed: int = 0


@dataclass(slots=True)
class _Looked:
    """What was looked at of a chain: up to which day of each account, and what has to be tried again once a day."""

    until: dict[str, date] = field(default_factory=dict)
    failed: set[tuple[str, date]] = field(default_factory=set)
    tried: date | None = None


@dataclass(slots=True)
class Schedule:
    """Takes the snapshots, a task of the supervisor for each chain; `status` is what it knows of each."""

    history: History
    supervisor: Supervisor
    wanted: Callable[[], Awaitable[Wanted]]
    status: dict[str, DailyStatus] = field(default_factory=dict)
    _looked: dict[str, _Looked] = field(default_factory=dict)

    def start(self) -> None:
        """Begin with every chain that keeps a past."""
        for chain in self.history.system.account_chains:
            if has_past(chain):
                self.supervisor.start(SNAPSHOTS, partial(self._run, chain), chain=chain.key)

    async def stop(self) -> None:
        """End all tasks; what is kept stays."""
        for chain in self.history.system.account_chains:
            await self.supervisor.stop(SNAPSHOTS, chain=chain.key)

    async def _run(self, chain: Chain, task: Task) -> None:
        clock, folder = self.history.system.environment.clock, self.history.system.tail.path.parent
        while True:
            try:
                with lock_file(
                    folder / "locks" / f"{chain.key}.daily.lock", store="lake", subject=f"snapshots of {chain.key}"
                ):
                    while True:
                        pending = await self.once(chain, task)
                        task.progressed()
                        await clock.sleep(POLL_S if pending else self._pause_s())
            except Locked:  # another process takes them, and may end
                task.progressed()
                await clock.sleep(LOOK_EVERY_S)

    def _pause_s(self) -> float:
        """Until the next day begins, or there may be new accounts."""
        now_us = self.history.system.environment.clock.now_us()
        return min(LOOK_EVERY_S, (midnight_us(day_of(now_us) + timedelta(days=1)) - now_us) / 1_000_000)

    async def once(self, chain: Chain, task: Task) -> bool:
        """Take what is missing now; whether the block of some day is not final yet."""
        status, looked = self.status.setdefault(chain.key, DailyStatus()), self._looked.setdefault(chain.key, _Looked())
        today = day_of(self.history.system.environment.clock.now_us())
        firsts = await self._firsts(chain, today)
        asked: dict[date, list[str]] = {}
        for account, first in firsts.items():
            begin = max(first, looked.until.get(account, date.min) + timedelta(days=1))
            for day in days_from(begin, today):
                asked.setdefault(day, []).append(account)
        if looked.tried != today:
            for account, day in looked.failed:
                asked.setdefault(day, []).append(account)
        status.accounts, status.missing = len(firsts), sum(map(len, asked.values()))
        pending: dict[str, date] = {}
        async for some in self.history.read(chain, asked, again=True):
            task.progressed()
            _note(some, looked, status, pending)
        looked.tried = today
        looked.until |= {each: pending.get(each, today + timedelta(days=1)) - timedelta(days=1) for each in firsts}
        return bool(pending)

    async def _firsts(self, chain: Chain, today: date) -> dict[str, date]:
        """The first day of each account that is wanted on a chain."""
        wanted = {each.address: first for each, first in (await self.wanted()).items() if each.kind == chain.kind}
        open_ = [address for address, first in wanted.items() if first is None]
        store = self.history.store
        kept = await asyncio.to_thread(store.first_days, chain.key, open_) if open_ and store else {}
        return {address: first or kept.get(address, today) for address, first in wanted.items()}


def _note(some: list[DaySnapshot], looked: _Looked, status: DailyStatus, pending: dict[str, date]) -> None:
    for each in some:
        key = each.account, each.day
        if each.completeness == PENDING:
            pending[each.account] = min(pending.get(each.account, each.day), each.day)
            continue
        status.missing -= 1
        if each.completeness == UNREADABLE or each.retry:
            looked.failed.add(key)
        else:
            looked.failed.discard(key)
        if each.document is not None:
            status.taken += 1
    status.failed = len(looked.failed)


class DailySnapshots:
    """The schedule for Prometheus, at the moment it is asked for."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def collect(self) -> Iterator[Any]:
        """All metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        said = {
            "accounts": ("chainfolio_snapshot_accounts", "accounts with daily snapshots"),
            "missing": ("chainfolio_snapshots_missing", "days of accounts to be taken"),
            "failed": ("chainfolio_snapshots_failed", "days of accounts that could not be read, or not whole"),
        }
        gauges = {name: GaugeMetricFamily(*words, labels=["chain"]) for name, words in said.items()}
        taken = CounterMetricFamily("chainfolio_snapshots_taken", "snapshots taken by this process", labels=["chain"])
        for key, status in self._schedule.status.items():
            for name, gauge in gauges.items():
                gauge.add_metric([key], getattr(status, name))
            taken.add_metric([key], status.taken)
        yield from (*gauges.values(), taken)
