"""Index a chain with a thousand reorgs, across restarts, and compare with a clean index.

Some reorgs then go deeper than final blocks; a worker has to recover by itself.

python -m bench.reorgs [--storms 1000] [--deep 10] [--seed N]
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from bench.figures import Figure, main
from bench.places import scratch
from chainfolio.blocks import Span
from chainfolio.cli.demo import prepare
from chainfolio.environment import Environment, SystemClock
from chainfolio.indexer import materialise
from chainfolio.indexer.collect import Collector
from chainfolio.indexer.follow import Follower
from chainfolio.indexer.progress import Progress
from chainfolio.indexer.wiring import System
from chainfolio.indexer.work import missing
from chainfolio.indexer.worker import Worker
from chainfolio.localchain.deploy import Deployment, deploy
from chainfolio.localchain.evm import Tx, tx
from chainfolio.localchain.node import LocalNode
from chainfolio.settings import Settings
from chainfolio.tables import TABLES

CHAIN, FINALITY = "local", 64
RESTARTS, DERIVED, HANDED_OVER = 0.1, 0.05, 0.03  # of the storms
MAX_DEPTH, PATIENT, PATIENCE_S = 1000, 0.7, 300.0
LEARNT = ("tokens",)  # requested by the benchmark, not caused by the chain


@dataclass(slots=True)
class Storm:
    """Counts of events, and of the rows in which the two indexes differ."""

    reorgs: Counter[int] = field(default_factory=Counter)
    restarts: int = 0
    handovers: int = 0
    recovered_reorgs: int = 0
    rows: int = 0
    differing: dict[str, int] = field(default_factory=dict)


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    seed = options.seed if options.seed is not None else random.randrange(10**6)
    figures = []
    if options.storms:
        with LocalNode(seconds_per_block=1) as node, scratch() as folder:
            deployment = deploy(node)
            node.mine(FINALITY)
            storm = asyncio.run(_storm(node, deployment, folder, options.storms, random.Random(seed)))
        subject = f"{storm.restarts} restarts, {storm.handovers} indexes begun in between"
        figures.append(_figure(storm, subject, seed))
    if options.deep:
        with LocalNode(seconds_per_block=1) as node, scratch() as folder:
            deployment = deploy(node)
            node.mine(MAX_DEPTH + 1)
            storm = asyncio.run(_deep(node, deployment, folder, options.deep, random.Random(seed)))
        subject = (
            f"deeper than the {FINALITY} that are final, recovered {storm.recovered_reorgs} times by a worker alone"
        )
        figures.append(_figure(storm, subject, seed))
    return figures


def _figure(storm: Storm, subject: str, seed: int) -> Figure:
    depths = f"{min(storm.reorgs):,}–{max(storm.reorgs):,}"
    name = (
        f"{storm.reorgs.total():,} reorganisations {depths} deep, {subject}, seed {seed}: "
        "rows that differ from an index made afterwards, derived tables too"
    )
    text = f"{sum(storm.differing.values())} of {storm.rows:,}"
    return Figure("reorgs", name, text, "0", not any(storm.differing.values()), {"differing": storm.differing})


async def _storm(node: LocalNode, deployment: Deployment, folder: Path, storms: int, chance: random.Random) -> Storm:
    storm = Storm()
    settings = _settings(folder / "live", node, deployment)
    live = await _start_system(settings)
    for at in range(storms):
        _trade(node, deployment, chance)
        depth = chance.randint(1, FINALITY) if chance.random() < 0.3 else chance.randint(1, 5)
        if chance.random() < 0.5:
            await _follower(live).step()
        node.reorg(depth, _transactions(deployment, chance))
        storm.reorgs[depth] += 1
        if chance.random() < RESTARTS:
            await live.close()
            live, storm.restarts = System(settings), storm.restarts + 1
        if chance.random() < HANDED_OVER:
            await live.close()
            settings = _settings(folder / f"live-{at}", node, deployment)
            live, storm.handovers = await _back_filled(settings), storm.handovers + 1
            node.reorg(chance.randint(1, FINALITY), _transactions(deployment, chance))
        await _follower(live).step()
        if chance.random() < DERIVED:
            await asyncio.to_thread(materialise.materialise, live.lake, live.tail, CHAIN)
    await _compare(storm, live, node, deployment, folder)
    return storm


async def _deep(node: LocalNode, deployment: Deployment, folder: Path, storms: int, chance: random.Random) -> Storm:
    """Remove final blocks by reorganisations; some begin before the last one is healed."""
    storm = Storm()
    live = System(_settings(folder / "live", node, deployment), Environment(clock=Hasty()))
    worker = Worker(live)
    task = asyncio.create_task(worker.run())
    try:
        await _caught_up(live, worker, node, task)
        for at in range(storms):
            await asyncio.to_thread(_trade, node, deployment, chance)
            depth = chance.randint(FINALITY + 1, MAX_DEPTH) if at else MAX_DEPTH
            await asyncio.to_thread(node.reorg, depth, _transactions(deployment, chance))
            await asyncio.to_thread(node.mine)  # makes the new branch longer than the old one
            storm.reorgs[depth] += 1
            if chance.random() < PATIENT:
                await _caught_up(live, worker, node, task)
        await _caught_up(live, worker, node, task)
        storm.recovered_reorgs = worker.status[CHAIN].recovered_reorgs
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await _compare(storm, live, node, deployment, folder)
    return storm


class Hasty(SystemClock):
    """The system clock with short sleeps."""

    async def sleep(self, seconds: float) -> None:
        """Sleep at most 20 ms."""
        await super().sleep(min(seconds, 0.02))


async def _caught_up(live: System, worker: Worker, node: LocalNode, task: asyncio.Task[None]) -> None:
    """Wait until the newest block of the index is the node's; fails if the worker ends."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            head, top = await asyncio.to_thread(node.block), live.tail.top(CHAIN)
            if top is not None and top.hash == head["hash"] and not worker.status[CHAIN].halted:
                return
            assert not task.done(), task.exception()
            await asyncio.sleep(0.05)


async def _compare(storm: Storm, live: System, node: LocalNode, deployment: Deployment, folder: Path) -> None:
    """Count, in `storm`, the rows of all tables that differ from those of a new index."""
    node.mine(2 * FINALITY)  # all of it is final now
    clean = await _start_system(_settings(folder / "clean", node, deployment))
    for system in (live, clean):
        follower = _follower(system)
        await follower.step()
        await follower.finalise_all()
        await asyncio.to_thread(materialise.materialise, system.lake, system.tail, CHAIN)
    live_rows, theirs = _all_rows(live), _all_rows(clean)
    storm.rows = sum(rows.total() for rows in theirs.values())
    storm.differing = {
        name: ((live_rows[name] - theirs[name]) + (theirs[name] - live_rows[name])).total() for name in theirs
    }
    for system in (live, clean):
        await system.close()


def _settings(folder: Path, node: LocalNode, deployment: Deployment) -> Settings:
    settings = prepare(folder, node, deployment, 0)
    facts = folder / "local.toml"
    facts.write_text(facts.read_text().replace("finality = 8", f"finality = {FINALITY}"))
    return settings


async def _start_system(settings: Settings) -> System:
    """Return a new index that has caught up."""
    system = await _back_filled(settings)
    await _follower(system).step()
    return system


async def _back_filled(settings: Settings) -> System:
    """Return a new index of the final blocks, which does not follow yet."""
    system = System(settings)
    chain = system.chain(CHAIN)
    span = Span(0, (await chain.heads()).finalized)
    progress = Progress(system.environment.clock, len(span))
    work = missing(system.tail, CHAIN, span, system.datasets(chain), ())
    await Collector(chain, system.lake, system.tail, system.environment, progress).run(work)
    return system


def _follower(system: System) -> Follower:
    chain = system.chain(CHAIN)
    return Follower(chain, system.lake, system.tail, system.environment, system.datasets(chain))


def _trade(node: LocalNode, deployment: Deployment, chance: random.Random) -> None:
    with node.by_hand():
        for _ in range(chance.randint(1, 4)):
            for action in _transactions(deployment, chance):
                node.send(action)
            node.mine(1)


def _transactions(deployment: Deployment, chance: random.Random) -> list[Tx]:
    """Return one transaction of each kind that leaves rows."""
    alice, bob, carol = chance.sample([*deployment.accounts.values()], 3)
    token, weth = (deployment.tokens[symbol].address for symbol in (chance.choice(["USDC", "DAI"]), "WETH"))
    raw = chance.randrange(1, 10**6)
    return [
        Tx(alice, carol, value=raw, gas=21_000),
        tx(alice, token, "transfer(address,uint256)", bob, raw),
        tx(bob, token, "approve(address,uint256)", carol, raw),
        tx(carol, weth, "deposit()", value=raw),
        tx(carol, weth, "withdraw(uint256)", raw // 2),
    ]


def _all_rows(system: System) -> dict[str, Counter[str]]:
    """Return the count of every row of each table, with those of the tail."""
    from chainfolio.indexer import arrow_ipc

    tables = {}
    for name, table in TABLES.items():
        if name not in LEARNT:
            stored = system.lake.window(table, CHAIN, Span(0, 2**62))
            fresh = arrow_ipc.load((stream for _, stream in system.tail.rows(CHAIN, name, 0, 2**40)), table)
            tables[name] = Counter(map(repr, pa.concat_tables([stored, fresh]).to_pylist()))
    return tables


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--storms", type=int, default=1000)
    parser.add_argument("--deep", type=int, default=10, help=f"storms up to {MAX_DEPTH:,} deep; 0 for none")
    parser.add_argument("--seed", type=int, help="to have the same storms again")


if __name__ == "__main__":
    main(__doc__, run, add)
