"""The work of alerts in a process: reads new blocks, checks conditions, and delivers what is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from chainfolio.alerts.conditions import Holding, holding
from chainfolio.alerts.delivery import Deliverer
from chainfolio.alerts.events import event
from chainfolio.alerts.kinds import KINDS
from chainfolio.alerts.rules import active_of
from chainfolio.alerts.scan import Scanner
from chainfolio.alerts.sending import Sender
from chainfolio.errors import ChainfolioError, Locked
from chainfolio.storage.state import alerts, deliveries
from chainfolio.supervisor import Task, described
from chainfolio.transport.reachable import Reachable

if TYPE_CHECKING:
    from chainfolio.engine.service import Engine
    from chainfolio.storage.state import State
    from chainfolio.storage.state.alerts import Rule
    from chainfolio.storage.state.database import Transaction
    from chainfolio.supervisor import Supervisor

SCAN, CHECK, DELIVER = "alerts of blocks", "alerts of conditions", "deliveries"  # the tasks in logs and metrics
SCAN_S: Final = 2.0
CHECK_S: Final = 5.0
DELIVER_S: Final = 1.0
MAX_CHECKS: Final = 50  # conditions in one run, the longest unchecked first
CHECK_LIMIT_S: Final = 60.0
LOCK: Final = "alerts"  # held among the processes of a tail by the one that reads


@dataclass(slots=True)
class AlertService:
    """Alerts of one process. `state` returns None if there is no state store, and thus no rule."""

    engine: Engine
    state: Callable[[], State | None]
    _sender: Sender = field(init=False)
    _deliverers: dict[int, Deliverer] = field(default_factory=dict)
    _checks: Task = field(default_factory=lambda: Task(CHECK))
    _deliveries: Task = field(default_factory=lambda: Task(DELIVER))

    def __post_init__(self) -> None:
        """Raise BadSettings for an invalid host of the settings."""
        system = self.engine.system
        config = system.settings.alerts
        self._sender = Sender(Reachable(config.allow_hosts), system.environment.clock, config.timeout_s)

    @asynccontextmanager
    async def running(self, supervisor: Supervisor) -> AsyncIterator[None]:
        """Do all the work regularly during the block."""
        tasks = ((SCAN, SCAN_S, self.scan), (CHECK, CHECK_S, self.check), (DELIVER, DELIVER_S, self.deliver))
        for name, seconds, work in tasks:
            supervisor.every(name, seconds, work)
        self._checks, self._deliveries = supervisor.task(CHECK), supervisor.task(DELIVER)
        try:
            yield
        finally:
            for name, _, _ in tasks:
                await supervisor.stop(name)
            await self.close()

    async def close(self) -> None:
        """Close the connections to receivers."""
        await self._sender.close()

    async def run_once(self) -> dict[str, int]:
        """Scan new blocks, check all conditions and deliver; return the counts `events` and `attempts`."""
        scanned, checked = await self.scan(), await self.check(all_rules=True)
        return {"events": scanned + checked, "attempts": await self.deliver()}

    async def scan(self) -> int:
        """Store the events of new blocks and return their number.

        It is 0 if another process does that, or without a state store.
        """
        if (state := self.state()) is None:
            return 0
        try:
            lock = self.engine.system.tail.hold(LOCK, "the reading of blocks for alerts")
            await asyncio.to_thread(lock.__enter__)
        except Locked:
            return 0
        try:
            return await Scanner(self.engine, state).run_once()
        finally:
            await asyncio.to_thread(lock.__exit__, None, None, None)

    async def deliver(self) -> int:
        """Deliver what is due, and return the number of attempts; 0 without a state store."""
        if (state := self.state()) is None:
            return 0
        config = self.engine.system.settings.alerts
        deliverer = self._deliverers.setdefault(id(state), Deliverer(state, self._sender, config))
        return await deliverer.run_once(self._deliveries.progressed)

    async def check(self, *, all_rules: bool = False) -> int:
        """Check due conditions, or all; return the number of new events (0 without a state store).

        A condition is due `check_s` after its last check. At most MAX_CHECKS are checked, the oldest first, unless all
        are.
        """
        if (state := self.state()) is None:
            return 0
        every_us = self.engine.system.settings.alerts.check_s * 1_000_000
        now_us = state.clock.now_us()
        rules = [each for each in await state.database.read_async(alerts.rules) if not KINDS[each.kind].of_blocks]
        due = [each for each in rules if all_rules or not 0 <= now_us - each.checked_us < every_us]
        due = sorted(due, key=lambda each: each.checked_us)
        return sum([await self._check(state, each) for each in (due if all_rules else due[:MAX_CHECKS])])

    async def _check(self, state: State, rule: Rule) -> int:
        """Check a condition; store it, with an event for each thing that it did not hold for before.

        Returns the number of events. If the check fails or is incomplete, what it held for before is kept.
        """
        now, problem = Holding({}, is_complete=False), ""
        try:
            async with asyncio.timeout(CHECK_LIMIT_S):
                now = await holding(self.engine, state, rule)
        except TimeoutError:
            problem = f"the check took longer than {CHECK_LIMIT_S:g} s"
        except ChainfolioError as error:
            problem = error.message
        except Exception as error:  # any error: other rules are checked all the same
            problem = described(error)
            self._checks.record_failure(error)
        at_us, before = state.clock.now_us(), active_of(rule)
        names = sorted(now.facts if now.is_complete else {*before, *now.facts})
        new = {name: facts for name, facts in now.facts.items() if name not in before}
        # The key has the last check: the same thing may happen again later, and a repeated check stores nothing twice.
        events = [event(rule, f"{name} {rule.checked_us}", at_us, facts) for name, facts in new.items()]

        def work(tx: Transaction) -> int:
            active = msgspec.json.encode(names).decode() if names else ""
            if not alerts.store_check(tx, rule, active, problem, at_us):
                return 0
            return deliveries.add(tx, events, at_us)

        return await state.write(work)
