"""A deliverer as a separate process, until nothing is pending: `python -m tests.alerts.delivering FOLDER`."""

from __future__ import annotations

import asyncio
import random
import sys
import time

import sqlalchemy as sa

from chainfolio.alerts import delivery
from chainfolio.alerts.delivery import Deliverer
from chainfolio.alerts.sending import Sender
from chainfolio.environment import SystemClock
from chainfolio.settings import Alerts
from chainfolio.storage.state import State
from chainfolio.storage.state.database import Statement
from chainfolio.transport.reachable import Reachable

LIMIT_S = 60


async def main(folder: str) -> None:
    """Deliver what is due; claims of killed processes end after a fifth of a second.

    A claim of a running one ends as early, but it claims nothing while it sends: on a busy machine that takes long.
    """
    delivery.BATCH_S, delivery.POLL_S, delivery.DELAYS_S = -20.8, 60, (0.05,)  # type: ignore[misc, assignment]
    pending = Statement(sa.text("SELECT count(*) FROM alert_deliveries WHERE state = 'pending'"))
    clock = SystemClock()
    state = State.open(f"sqlite:///{folder}/state.db", b"p" * 32, clock, random.Random())
    deliverer = Deliverer(state, Sender(Reachable(["127.0.0.0/8"]), clock, 20), Alerts())
    end_s = time.monotonic() + LIMIT_S
    while state.database.read(lambda tx: tx.rows(pending))[0][0] and time.monotonic() < end_s:
        await deliverer.run_once()
        await asyncio.sleep(0.01)


asyncio.run(main(sys.argv[1]))
