"""Restart two servers in turn under load, repeatedly: count failed requests and wrong charges.

python -m bench.rolling [--rounds 10] [--clients 12] [--seed N]

Both are `chainfolio serve` on one PostgreSQL and one lake. The one that holds the chain's lock indexes a growing
chain. Clients choose a server by `/readyz`, as a load balancer does, and never repeat a request. It needs PostgreSQL.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.balancer import Balancer, Charges, Client, Record, charges, follow_events
from bench.figures import Figure, main
from bench.installation import Installation
from bench.places import MissingPrerequisite, scratch
from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.node import LocalNode, free_port
from chainfolio.localchain.trade import trade

STEADY_S = 1.0  # between two restarts
BLOCK_S = 0.5


@dataclass(frozen=True)
class Trial:
    """Number of restarts of both servers, and of clients that call them."""

    rounds: int
    clients: int
    seed: int


@dataclass
class Outcome:
    """The calls, their charges, and the exit codes and times in seconds of the ended servers."""

    record: Record
    charges: Charges = field(default_factory=Charges)
    exit_codes: list[int] = field(default_factory=list)
    end_s: list[float] = field(default_factory=list)
    took_s: float = 0.0


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures; MissingPrerequisite without PostgreSQL."""
    from tests.storage.stores import own_server  # only some benchmarks need the tests

    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    with LocalNode() as node, own_server() as database, scratch() as folder:
        if database is None:
            raise MissingPrerequisite("PostgreSQL's programs were not found: install postgresql")
        trial = Trial(options.rounds, options.clients, seed)
        outcome = asyncio.run(measured(node, database.new_database("rolling"), folder, trial))
    return _figures(outcome, trial)


async def measured(node: LocalNode, database: str, folder: Path, trial: Trial) -> Outcome:
    """Restart both servers `rounds` times under load, and compare the calls with the ledger.

    The folder is empty, and so is the database.
    """
    deployment = deploy(node)
    trade(node, deployment, 20)
    installation = Installation(folder, {"local": (node.url, node.chain_id)}, database, str(folder / "lake"))
    state, ports, outcome = installation.state(), [free_port(), free_port()], Outcome(Record())
    addresses = [each.lower() for each in deployment.accounts.values()]
    balancer, over, began_s = Balancer(ports), asyncio.Event(), time.monotonic()
    servers = [installation.add(f"server-{port}", "serve", port=port) for port in ports]
    try:
        key = installation.key(state)
        for server in servers:
            server.start()
        async with running(balancer, node), asyncio.TaskGroup() as group:
            await balancer.until_ready(ports)
            following = group.create_task(follow_events(balancer, key, addresses[:2], outcome.record))
            for number in range(trial.clients):
                client = Client(balancer, key, addresses, outcome.record, random.Random(trial.seed + number))
                group.create_task(client.run_until(over))
            for server, port in trial.rounds * list(zip(servers, ports, strict=True)):
                await asyncio.sleep(STEADY_S)
                end_s = time.monotonic()
                outcome.exit_codes.append(await asyncio.to_thread(server.end))
                outcome.end_s.append(time.monotonic() - end_s)
                server.start()
                await balancer.until_ready([port])
            await asyncio.sleep(STEADY_S)
            over.set()
            following.cancel()
        outcome.took_s = time.monotonic() - began_s
        await asyncio.to_thread(installation.close)
        outcome.charges = await charges(state.database, outcome.record)
    finally:
        await asyncio.to_thread(installation.close)
        state.close()
    return outcome


@asynccontextmanager
async def running(balancer: Balancer, node: LocalNode) -> AsyncIterator[None]:
    """Check the servers and mine blocks within the context."""

    async def mine_blocks() -> None:
        while True:
            await asyncio.to_thread(node.mine, 1)
            await asyncio.sleep(BLOCK_S)

    tasks = [asyncio.create_task(balancer.watch()), asyncio.create_task(mine_blocks())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _figures(outcome: Outcome, trial: Trial) -> list[Figure]:
    record, charges = outcome.record, outcome.charges
    failed = record.failed.total() + record.broken_streams
    restarts = len(outcome.exit_codes)
    subject = f"{len(record.calls):,} requests and {record.streams} streams of events during {restarts} restarts"
    detail = {
        "failed": dict(record.failed),
        "charges": charges,
        "exit_codes": outcome.exit_codes,
        "end_s": outcome.end_s,
    }
    slow_s = max((call.took_s for call in record.calls), default=0.0)
    return [
        Figure(
            "rolling",
            f"{subject} of 2 servers on one PostgreSQL, {trial.clients} clients, seed {trial.seed}: failed",
            str(failed),
            "0",
            failed == 0 and not any(outcome.exit_codes),
            detail,
        ),
        Figure(
            "rolling",
            f"charged not exactly once of {charges.paid:,}",
            str(charges.wrong + charges.unpaid),
            "0",
            charges.wrong == charges.unpaid == 0,
        ),
        Figure(
            "rolling", "slowest request; seconds to end a server", f"{slow_s:.1f} s; {_median(outcome.end_s):.1f} s"
        ),
    ]


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--seed", type=int, help="of the calls")


if __name__ == "__main__":
    main(__doc__, run, add)
