"""Kill servers, workers and PostgreSQL, and let S3 refuse requests; count lost rows and wrong charges.

python -m bench.outages [--kills 200] [--away 60] [--clients 8] [--seed N]

Two servers answer requests. A worker follows one chain and schedules the recurring jobs; two workers of the queue index
another chain. All share one PostgreSQL and a lake in an S3 service. Processes are killed by SIGKILL and restarted at
once, as are processes that end because a store is not available. PostgreSQL gets an immediate shutdown. A few times, S3
refuses all requests for `--away` seconds. Afterwards the rows of both chains are compared with an undisturbed index.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from bench.balancer import Balancer, Charges, Client, Record, charges, follow_events
from bench.figures import Figure, main
from bench.installation import Installation
from bench.places import MissingPrerequisite, scratch
from bench.runs import environment, product, run
from chainfolio.blocks import Span
from chainfolio.indexer import arrow_ipc
from chainfolio.indexer.wiring import System
from chainfolio.localchain.deploy import Deployment, deploy
from chainfolio.localchain.evm import tx
from chainfolio.localchain.node import LocalNode, free_port
from chainfolio.tables import TABLES

if TYPE_CHECKING:
    from tests.storage.s3_server import S3
    from tests.storage.stores import Server

FOLLOWED, QUEUED = "local", "queued"  # chains
POSTGRES, STORE = "postgresql", "s3"
PAUSE_S: Final = (1.0, 4.0)  # between two kills
DOWN_S: Final = 1.5  # of PostgreSQL, at most
REFUSALS: Final = ("slow", "closed")  # 503 SlowDown, and no answer
STORE_EVERY: Final = 40  # kills for each outage of S3
TABLES_READ: Final = ("blocks", "transactions", "transfers", "approvals", "logs")
MINED: Final = 40  # blocks of the queued chain at a time, so that ranges are due
INDEX_S: Final = 600.0
REPORT_EVERY: Final = 20  # kills
STEADY_S: Final = 5.0  # of requests at the end: a server releases reservations of dead ones after its first request
RESTART_S: Final = 1.0  # after which a process that ended is started again


@dataclass(frozen=True)
class Trial:
    """Number of kills, of clients, and of seconds for which S3 refuses."""

    kills: int
    clients: int
    away_s: float
    seed: int


@dataclass
class Services:
    """Services of the processes: a node for each chain, PostgreSQL, and S3."""

    nodes: Mapping[str, LocalNode]
    postgres: Server
    s3: S3


@dataclass
class Outcome:
    """Kills by process, calls with their charges, and rows by chain and table."""

    record: Record
    kills: Counter[str] = field(default_factory=Counter)
    charges: Charges = field(default_factory=Charges)
    missing: Counter[str] = field(default_factory=Counter)
    doubled: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)  # rows that only the killed index has
    rows: int = 0
    ended: int = 0  # processes that ended by themselves, and were started again
    took_s: float = 0.0


def run_all(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures; MissingPrerequisite without PostgreSQL."""
    from tests.storage.s3_server import serving  # only some benchmarks need the tests
    from tests.storage.stores import own_server

    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    trial = Trial(options.kills, options.clients, options.away, seed)
    with own_server() as postgres, scratch() as folder, LocalNode() as node, LocalNode(chain_id=31338) as second_node:
        if postgres is None:
            raise MissingPrerequisite("PostgreSQL's programs were not found: install postgresql")
        with serving(folder) as s3:
            services = Services({FOLLOWED: node, QUEUED: second_node}, postgres, s3)
            outcome = asyncio.run(measured(services, folder, trial))
    return _figures(outcome, trial)


async def measured(services: Services, folder: Path, trial: Trial) -> Outcome:
    """Kill processes `trial.kills` times, then compare calls with the ledger, and rows with a clean index."""
    deployments = {key: deploy(node) for key, node in services.nodes.items()}
    addresses = [each.lower() for each in deployments[FOLLOWED].accounts.values()]
    installation, ports = _installation(services, folder / "killed", addresses), [free_port(), free_port()]
    state, outcome, over = installation.state(), Outcome(Record()), asyncio.Event()
    chance, began_s = random.Random(trial.seed), time.monotonic()
    for port in ports:
        installation.add(f"server {port}", "serve", "--no-indexing", port=port)
    installation.add("worker", "worker", chains=[FOLLOWED])
    for number in (1, 2):
        installation.add(f"jobs {number}", "worker", "--jobs", chains=[QUEUED])
    try:
        key, balancer = installation.key(state), Balancer(ports)
        for process in installation.processes.values():
            process.start()
        async with _background(balancer, services, deployments), asyncio.TaskGroup() as group:
            restarting = group.create_task(_restart(installation, outcome))
            await balancer.until_ready(ports)
            following = group.create_task(follow_events(balancer, key, addresses[:2], outcome.record))
            for _ in range(trial.clients):
                client = Client(balancer, key, addresses, outcome.record, random.Random(chance.random()))
                group.create_task(client.run_until(over))
            await _kill(installation, services, trial, chance, outcome)
            await balancer.until_ready(ports)
            await asyncio.sleep(STEADY_S)
            over.set()
            for task in (following, restarting):
                task.cancel()
        outcome.charges = await charges(state.database, outcome.record, limit_s=120)
        outcome.took_s = time.monotonic() - began_s
    finally:
        await asyncio.to_thread(installation.close)
        state.close()
    (folder / "clean").mkdir()
    await compare(installation, Installation(folder / "clean", installation.chains, "", "", watch=addresses), outcome)
    return outcome


def _installation(services: Services, folder: Path, watch: Sequence[str]) -> Installation:
    folder.mkdir()
    os.environ.update(services.s3.environment())  # this process compares rows, so it needs them too
    chains = {key: (node.url, node.chain_id) for key, node in services.nodes.items()}
    database = services.postgres.new_database("matrix")
    return Installation(folder, chains, database, services.s3.bucket(), services.s3.environment(), watch)


@asynccontextmanager
async def _background(
    balancer: Balancer, services: Services, deployments: Mapping[str, Deployment]
) -> AsyncIterator[None]:
    """Check the servers and let both chains grow within the context."""

    async def grow(key: str, empty: int) -> None:
        while True:
            await asyncio.to_thread(_grow, services.nodes[key], deployments[key], empty)
            await asyncio.sleep(1)

    tasks = [asyncio.create_task(each) for each in (balancer.watch(), grow(FOLLOWED, 1), grow(QUEUED, MINED))]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


async def _restart(installation: Installation, outcome: Outcome) -> None:
    """Start processes again that end by themselves, until cancelled."""
    while True:
        for reason in installation.restart_ended():
            print(reason, flush=True)
            outcome.ended += 1
        await asyncio.sleep(RESTART_S)


def _grow(node: LocalNode, deployment: Deployment, empty: int) -> None:
    """Make a block with a transfer, one with an approval, and empty ones."""
    sender, recipient = deployment.accounts["alice"], deployment.accounts["bob"]
    token = deployment.tokens["USDC"].address
    node.send(tx(sender, token, "transfer(address,uint256)", recipient, 1))
    node.send(tx(sender, token, "approve(address,uint256)", recipient, node.height))
    node.mine(empty)


async def _kill(
    installation: Installation, services: Services, trial: Trial, chance: random.Random, outcome: Outcome
) -> None:
    """Kill a random process that has begun to work, again and again; S3 refuses meanwhile."""
    refusing = asyncio.create_task(asyncio.sleep(0))
    names = [*installation.processes, POSTGRES]
    while outcome.kills.total() < trial.kills:
        await asyncio.sleep(chance.uniform(*PAUSE_S))
        if refusing.done() and outcome.kills.total() // STORE_EVERY >= outcome.kills[STORE]:
            refusing = asyncio.create_task(_refuse(services.s3, chance.choice(REFUSALS), trial.away_s))
            outcome.kills[STORE] += 1
        name = chance.choice(names)
        if name == POSTGRES:
            await asyncio.to_thread(services.postgres.stop)
            await asyncio.sleep(chance.uniform(0, DOWN_S))
            await asyncio.to_thread(services.postgres.start)
        else:
            process = installation.processes[name]
            if not process.has_begun:
                continue
            await asyncio.to_thread(process.end, signal.SIGKILL)
            process.start()
        outcome.kills[name] += 1
        if outcome.kills.total() % REPORT_EVERY == 0:
            print(f"{outcome.kills.total()} kills, {len(outcome.record.calls):,} requests", flush=True)
    await refusing


async def _refuse(s3: S3, how: str, seconds: float) -> None:
    with s3.failing(how):
        await asyncio.sleep(seconds)


async def compare(installation: Installation, clean: Installation, outcome: Outcome) -> None:
    """Index what is missing, index both chains into `clean` without disturbance, and count different rows."""
    for each in (installation, clean):
        config = each.config("first", each.chains)
        for key in each.chains:
            command = [*product(), "index", key, "--config", str(config), "--json"]
            (await asyncio.to_thread(run, command, environment(installation.variables), limit_s=INDEX_S)).checked()
    systems = System(installation.settings), System(clean.settings)
    try:
        for key in clean.chains:
            for table in TABLES_READ:
                stored, expected = (_rows(system, key, table) for system in systems)
                surplus = stored - expected
                outcome.missing[f"{key} {table}"] += (expected - stored).total()
                outcome.doubled[f"{key} {table}"] += sum(count for row, count in surplus.items() if row in expected)
                outcome.wrong[f"{key} {table}"] += sum(count for row, count in surplus.items() if row not in expected)
                outcome.rows += expected.total()
    finally:
        for system in systems:
            await system.close()


def _rows(system: System, chain: str, table: str) -> Counter[str]:
    """Count the rows of lake and tail, as text."""
    final = system.lake.window(TABLES[table], chain, Span(0, 2**62))
    fresh = arrow_ipc.load((stream for _, stream in system.tail.rows(chain, table, 0, 2**40)), TABLES[table])
    return Counter(repr(sorted(row.items())) for row in pa.concat_tables([final, fresh]).to_pylist())


def _figures(outcome: Outcome, trial: Trial) -> list[Figure]:
    record, charges, kills = outcome.record, outcome.charges, outcome.kills
    missing, doubled, wrong = outcome.missing.total(), outcome.doubled.total(), outcome.wrong.total()
    times = ", ".join(f"{name.partition(' ')[0]} {count}" for name, count in sorted(_by_kind(kills).items()))
    of_stores = kills[POSTGRES] + sum(count for name, count in kills.items() if name.startswith("server"))
    detail = {
        "lost": dict(outcome.missing),
        "doubled": dict(outcome.doubled),
        "wrong": dict(outcome.wrong),
        "charges": asdict(charges),
        "failed": dict(record.failed),
        "ended": outcome.ended,
    }
    return [
        Figure(
            "outages",
            f"{kills.total()} kills ({times}; S3 refused {trial.away_s:g} s each time) during indexing and serving, "
            f"seed {trial.seed}: rows lost, doubled, wrong",
            f"{missing}, {doubled}, {wrong} of {outcome.rows:,}",
            "0, 0, 0",
            missing == doubled == wrong == 0,
            detail,
        ),
        Figure(
            "outages",
            f"{len(record.calls):,} requests, {record.failed.total():,} of them failed: wrong charges",
            f"{charges.wrong} of {charges.paid:,}",
            "0",
            charges.wrong == 0 and charges.paid > 0,
        ),
        Figure(
            "outages",
            "answers that were not charged",
            str(charges.unpaid),
            f"≤ {of_stores * trial.clients}, one of each client at a kill of a server or of PostgreSQL",
            charges.unpaid <= of_stores * trial.clients,
        ),
    ]


def _by_kind(kills: Counter[str]) -> Counter[str]:
    kinds = Counter[str]()
    for name, count in kills.items():
        kinds[name.partition(" ")[0]] += count
    return kinds


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--away", type=float, default=60, help="seconds for which S3 refuses, once in 40 kills")
    parser.add_argument("--seed", type=int, help="of calls, victims and moments")


if __name__ == "__main__":
    main(__doc__, run_all, add)
