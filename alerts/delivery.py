"""Delivers stored events: at least once, each target in order, with a growing delay for three days.

A target is claimed, its first events are sent one after another, and the results are stored. If the process is killed
in between, the claim ends after some seconds and the events are sent again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chainfolio.alerts.signing import PURPOSE, secret_of
from chainfolio.storage.state import deliveries
from chainfolio.storage.state.deliveries import Attempt, Delivery
from chainfolio.supervisor import described

if TYPE_CHECKING:
    from chainfolio.alerts.sending import Outcome, Sender
    from chainfolio.settings import Alerts
    from chainfolio.storage.state import State
    from chainfolio.storage.state.alerts import Target

log = logging.getLogger("chainfolio.alerts")

DELAYS_S: Final = (5, 30, 120, 600, 1800, 3600, 7200, 14400)  # after each failure in a row; then the last one
TRIED_US: Final = 3 * 86_400_000_000
POLL_S: Final = 1.0
BATCH_S: Final = 2.0  # no event is sent later after its claim
MAX_TARGETS: Final = 64
MAX_EVENTS: Final = 200
PURGE_US: Final = 3_600_000_000
_JITTER: Final = random.Random()  # spreads retries; no stored data depends on it


@dataclass(slots=True)
class Deliverer:
    """Sends due events of all accounts. Any number of processes may deliver from one store."""

    state: State
    sender: Sender
    settings: Alerts
    _purged_us: int = 0

    async def run_once(self, progressed: Callable[[], None] = lambda: None) -> int:
        """Deliver what is due, also what becomes due meanwhile, and return the number of attempts.

        A receiver that does not answer delays no other one. An event whose result cannot be stored is sent again
        after its claim has ended.

        Args:
            progressed: Called after each round.
        """
        running: set[asyncio.Task[int]] = set()
        attempts = 0
        try:
            while True:
                await self._purge(self.state.clock.now_us())
                free = MAX_TARGETS - len(running)
                running |= {asyncio.create_task(self._deliver(*each)) for each in await self._claim(free)}
                if not running:
                    break
                done, running = await asyncio.wait(running, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
                attempts += sum(map(_result, done))
                progressed()
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return attempts

    async def _claim(self, max_targets: int) -> list[tuple[Target, list[Delivery]]]:
        """Claim due deliveries for some time, and return them by target; empty for 0 targets."""
        if not max_targets:
            return []
        now_us = self.state.clock.now_us()
        until_us = now_us + int((self.sender.timeout_s + BATCH_S + 1) * 1_000_000)
        return await self.state.write(lambda tx: deliveries.claim(tx, now_us, until_us, max_targets, MAX_EVENTS))

    async def _deliver(self, target: Target, events: Sequence[Delivery]) -> int:
        """Send events of a target in order, store the results, and return the number of attempts.

        It stops after an event that is to be sent again later, and after BATCH_S.
        """
        clock, failures, delay_s = self.state.clock, target.failures, 0.0
        key, last_s = self.state.secret(PURPOSE), clock.monotonic_s() + BATCH_S
        attempts: list[Attempt] = []
        for event in events:
            now_us = clock.now_us()
            secrets = [secret_of(key, target.id, number) for number in target.valid_secrets(now_us)]
            outcome = await self.sender.send(target, event, secrets)
            attempts.append(_attempt(event, outcome, now_us))
            failures = failures + 1 if outcome.error else 0
            if attempts[-1].state == "pending":
                delay_s = max(_delay_s(failures), outcome.retry_after_s)
                break
            if clock.monotonic_s() > last_s:
                break
        next_us = clock.now_us() + int(delay_s * 1_000_000)
        await self.state.write(lambda tx: deliveries.record(tx, target, attempts, next_us, failures))
        return len(attempts)

    async def _purge(self, now_us: int) -> None:
        """Delete old deliveries, once an hour."""
        if now_us - self._purged_us < PURGE_US:
            return
        self._purged_us = now_us
        keep_us = self.settings.keep_days * 86_400_000_000
        await self.state.write(lambda tx: deliveries.purge(tx, now_us, keep_us, self.settings.max_deliveries))


def _result(task: asyncio.Task[int]) -> int:
    """Return the number of attempts of a finished task; log the error of one that failed."""
    if (error := task.exception()) is None:
        return task.result()
    log.error("the result of a delivery was not stored: %s", described(error))
    return 0


def _attempt(event: Delivery, outcome: Outcome, now_us: int) -> Attempt:
    """Return the result of an attempt; the event is dead after three days, or if it is refused for ever."""
    if not outcome.error:
        return Attempt(event.id, now_us, "done", outcome.status)
    is_dead = outcome.is_final or now_us - event.queued_us >= TRIED_US
    return Attempt(event.id, now_us, "dead" if is_dead else "pending", outcome.status, outcome.error)


def _delay_s(failures: int) -> float:
    return DELAYS_S[min(failures, len(DELAYS_S)) - 1] * _JITTER.uniform(0.9, 1.1)
