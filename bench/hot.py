"""Measure requests about a busy account while a chain with a block each 0.25 s is followed.

python -m bench.hot [--minutes 20] [--requests 30]

The server and the follower are those of `bench.soak`, in virtual time. The account takes part in one of 40 blocks. The
time of a request is that of the processor, with the steps of the follower that it waits for, and a millisecond for
each request to the node.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from bench.figures import Figure, main
from bench.places import scratch
from bench.soak_run import Plan, Run, quiet_loop

ACCOUNT = 7
NODE_MS = 1.0
# What is asked, and the most milliseconds that it may take in the median.
BARS = {"wallet?addresses={}": 60, "portfolio?addresses={}&waitForSync=true": 80}


class HotRun(Run):
    """A run in which one account is asked about each second. Nodes announce each block then."""

    def __post_init__(self) -> None:
        """Begin without times."""
        super().__post_init__()
        self.times_ms: dict[str, list[float]] = {path: [] for path in BARS}

    async def _measure(self, number: float) -> None:
        """Send one of the requests, and record its time."""
        self.ledger.announce_s = self.plan.block_ms / 1000
        path = list(BARS)[int(number) % len(BARS)]
        account = self.ledger.addresses[ACCOUNT].as_py()
        requests, started_s = self.ledger.requests, time.process_time()
        assert await self.send("GET", f"/v1/{path.format(account)}") == 200
        passed_ms = 1000 * (time.process_time() - started_s)
        self.times_ms[path].append(passed_ms + NODE_MS * (self.ledger.requests - requests))


def measured(plan: Plan, folder: Path, minutes: float, count: int) -> dict[str, list[float]]:
    """Return the times by path: after some minutes of following, send each request `count` times."""
    events = [(60 * minutes + number, "measure", float(number)) for number in range(len(BARS) * count)]
    with quiet_loop() as loop:
        run = HotRun(plan, folder, loop, lambda hour: None)
        loop.run_until_complete(run.perform(events))
    return run.times_ms


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    with scratch() as folder:
        times_ms = measured(Plan(accounts=500), folder, options.minutes, options.requests)
    return [
        Figure("hot", f"/{path.format('…')}: ms in the median", f"{median:.0f}", f"≤ {bar}", median <= bar)
        for path, bar in BARS.items()
        for median in [statistics.median(times_ms[path])]
    ]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--requests", type=int, default=30)


if __name__ == "__main__":
    main(__doc__, run, add)
