"""Flood one key through eight processes and check that its limit holds exactly in every minute.

python -m bench.limits [--seconds 75] [--servers 8] [--postgres URL]

Two keys are flooded, one of them at a block. Two more send exactly as many requests as the limit allows; none of
them may be refused.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from array import array
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa
import uvloop

from bench.figures import Figure, main
from bench.fleet import address, fleet, opened
from bench.places import scratch
from bench.wire import ConnectionLost, Line, encode_request
from chainfolio.settings import Limits
from chainfolio.storage.state import State
from chainfolio.storage.state.database import Statement
from chainfolio.storage.state.meter_transaction import WINDOW_US

LINES = 16  # of each key that is flooded
LOOK_S = 5.0  # less than the minute that a bucket stores
PAUSE_S = 0.005  # leaves processor time to the other tasks
PATHS = {
    "all": f"/v1/portfolio?addresses={address('quick')}",
    "at-block": f"/v1/portfolio/at-block?addresses={address('quick')}&chainKey=ethereum&blockNumber=19000000",
}
_MOMENTS = Statement(sa.text("SELECT key_id, name, moments FROM buckets"))


@dataclass
class Flow:
    """Requests of one key, and their results."""

    bucket: str
    limit: int
    key_id: str
    token: str
    statuses: Counter[int] = field(default_factory=Counter)
    workers: set[bytes] = field(default_factory=set)
    moments: Counter[int] = field(default_factory=Counter)  # accepted requests by time

    def merge(self, packed: bytes) -> None:
        """Merge the times of a bucket, with the greatest count of each time."""
        for time_us, times in Counter(array("q", packed)).items():
            self.moments[time_us] = max(self.moments[time_us], times)

    @property
    def let_in(self) -> int:
        """Number of responses other than 429."""
        return self.statuses.total() - self.statuses[429]

    def fullest(self) -> int:
        """Return the greatest number of accepted requests within any minute."""
        every = sorted(self.moments.elements())
        return max((at + 1 - bisect_right(every, time_us - WINDOW_US) for at, time_us in enumerate(every)), default=0)


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    with scratch() as folder:
        url = options.postgres or f"sqlite:///{folder}/state.db"
        state = opened(url, 60)
        try:
            floods, paced = _flows(state), _flows(state)
            with fleet(url, options.servers, 60) as servers:
                uvloop.run(_all(state, servers.port, floods, paced, options.seconds))
        finally:
            state.close()
    subject = f"{options.servers} processes, {options.seconds} s on {url.partition(':')[0]}"
    return [*(_flooded(flow, subject) for flow in floods), *(_kept_to(flow, options.seconds) for flow in paced)]


def _flows(state: State) -> list[Flow]:
    limits = Limits()
    flows = []
    for bucket, limit in (("all", limits.per_minute), ("at-block", limits.at_block_per_minute)):
        account, token = state.create_account(bucket, "PRO", 10**6, ["portfolio", "at-block"])
        flows.append(Flow(bucket, limit, state.keys(account.id)[0].id, token))
    return flows


async def _all(state: State, port: int, floods: Sequence[Flow], paced: Sequence[Flow], seconds: float) -> None:
    last_s = time.monotonic() + seconds
    watching = asyncio.create_task(_watch(state, [*floods, *paced]))
    async with asyncio.TaskGroup() as group:
        for flow in floods:
            for _ in range(LINES):
                group.create_task(_flood(flow, port, last_s))
        for flow in paced:
            group.create_task(_keep_to(flow, port, last_s))
    watching.cancel()
    await _look(state, [*floods, *paced])


async def _watch(state: State, flows: Sequence[Flow]) -> None:
    while True:
        await _look(state, flows)
        await asyncio.sleep(LOOK_S)


async def _look(state: State, flows: Sequence[Flow]) -> None:
    stored = {(key_id, name): moments for key_id, name, moments in await state.read(lambda tx: tx.rows(_MOMENTS))}
    for flow in flows:
        flow.merge(bytes(stored.get((flow.key_id, flow.bucket), b"")))


async def _flood(flow: Flow, port: int, last_s: float) -> None:
    """Send requests without pause until `last_s`, over a new connection after each 50."""
    line = Line(port)
    while time.monotonic() < last_s:
        for _ in range(50):
            await _ask(flow, line)
            await asyncio.sleep(PAUSE_S)
        line.leave()


async def _keep_to(flow: Flow, port: int, last_s: float) -> None:
    """Send requests evenly at exactly the limit, each a minute after the response `limit` requests before."""
    line, answered, next_s = Line(port), deque[float](maxlen=flow.limit), 0.0
    while time.monotonic() < last_s:
        now_s = time.time()  # the clock of the servers: a minute of another clock may be shorter
        due_s = max(next_s, answered[0] + WINDOW_US / 1e6 if len(answered) == flow.limit else 0.0)
        if now_s < due_s:
            await asyncio.sleep(due_s - now_s)
            continue
        next_s = max(next_s, now_s - 1) + WINDOW_US / 1e6 / flow.limit
        await _ask(flow, line)
        answered.append(time.time())
        if sum(flow.statuses.values()) % 20 == 0:
            line.leave()
    line.leave()


async def _ask(flow: Flow, line: Line) -> None:
    try:
        answer = await line.ask(encode_request("GET", PATHS[flow.bucket], {"Authorization": f"Bearer {flow.token}"}))
    except ConnectionLost:
        raise AssertionError("a server went away") from None
    assert answer.status in (200, 429), answer.body
    flow.statuses[answer.status] += 1
    flow.workers.add(answer.headers[b"x-worker"])


def _flooded(flow: Flow, subject: str) -> Figure:
    exact = flow.fullest() == flow.limit and flow.let_in == flow.moments.total()
    return Figure(
        "limits",
        f"a key flooded over {subject}, bucket `{flow.bucket}`: most let in within any minute",
        f"{flow.fullest()} (let in {flow.let_in:,}, moments kept {flow.moments.total():,}, "
        f"refused {flow.statuses[429]:,}, by {len(flow.workers)} processes)",
        f"exactly {flow.limit}",
        exact,
        {"statuses": dict(flow.statuses)},
    )


def _kept_to(flow: Flow, seconds: float) -> Figure:
    return Figure(
        "limits",
        f"a client that keeps to the limit of `{flow.bucket}`: refused",
        f"{flow.statuses[429]} of {flow.statuses.total():,} ({flow.fullest()} in its fullest minute)",
        "0",
        flow.statuses[429] == 0 and flow.let_in == flow.moments.total(),
        {"per_minute": flow.statuses.total() / seconds * 60},
        in_readme=False,
    )


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--seconds", type=float, default=75, help="more than the minute of a limit")
    parser.add_argument("--servers", type=int, default=8)
    parser.add_argument("--postgres", default="", metavar="URL", help="an empty database, instead of an SQLite file")


if __name__ == "__main__":
    main(__doc__, run, add)
