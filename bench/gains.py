"""Measure the report of gains of wallets that trade, lend and provide liquidity: the second time, and by transaction.

python -m bench.gains [--blocks 700]

Six wallets of a local chain act as one owner. A block has four to five of their transactions: 22,600 blocks make
100,000. The collector of garbage runs as rarely as in a command.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, main
from bench.first import Away
from bench.places import scratch
from chainfolio.assets import Account, account
from chainfolio.cli.demo import index_chain, prepare
from chainfolio.cli.process import rare_garbage_collection
from chainfolio.engine.gains.pnl import PnlRequest, pnl
from chainfolio.engine.service import Engine
from chainfolio.indexer.wiring import System
from chainfolio.localchain.deploy import Deployment, deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import HABITS, trade
from chainfolio.settings import Settings
from chainfolio.settings_file import load

MAX_S = 0.5
LARGE, MAX_LARGE_S = 100_000, 30.0


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure one wallet and all wallets together, the first time and again."""
    with LocalNode() as node, scratch() as folder:
        deployment = deploy(node)
        trade(node, deployment, options.blocks, may_fail=True)
        node.mine(20)
        prepare(folder / "data", node, deployment, 0)
        with rare_garbage_collection():
            return asyncio.run(_measure(node, deployment, folder / "data" / "chainfolio.toml"))


def _settings(file: Path, node: LocalNode, address: str) -> Settings:
    """Return the settings of the chain with another address of its node."""
    file.write_text(file.read_text().replace(node.url, address))
    return load(file, {})


async def _measure(node: LocalNode, deployment: Deployment, file: Path) -> list[Figure]:
    proxy = Away(node.url, 0)
    async with proxy.served() as address:
        settings = await asyncio.to_thread(_settings, file, node, address)
        system = System(settings)
        await index_chain(system, quiet=True)
        await system.close()
        everyone = [account(deployment.accounts[name]) for name in HABITS]
        figures = []
        for subject, accounts in (("one wallet", everyone[:1]), ("six wallets", everyone)):
            first = await _reported(settings, accounts, proxy)
            figures += _figures(subject, first, await _reported(settings, accounts, proxy))
    return figures


class Report(NamedTuple):
    """The cost of a report by a system that has read nothing yet."""

    took_s: float
    cpu_s: float
    transactions: int
    requests: int


async def _reported(settings: Settings, accounts: Sequence[Account], proxy: Away) -> Report:
    """Make a report with a new system, and return its cost."""
    system = System(settings, shares_answers=True)
    before, counts = proxy.requests, [0]
    began_s, before_s = time.perf_counter(), time.process_time()
    engine = Engine(system, max_lookups=None, progress=lambda done, total: counts.append(total), adds_gains=False)
    await pnl(engine, accounts, PnlRequest())
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - before_s
    await system.close()
    return Report(took_s, cpu_s, max(counts), proxy.requests - before)


def _figures(subject: str, first: Report, again: Report) -> list[Figure]:
    name = f"gains of {subject}, {again.transactions:,} transactions with positions"
    large_s = again.took_s / again.transactions * LARGE
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        Figure(
            "gains",
            f"{name}: seconds of the first report and of the second; processor seconds and requests of the second",
            f"{first.took_s:.2f}, {again.took_s:.2f}; {again.cpu_s:.2f}, {again.requests}",
            f"second ≤ {MAX_S}; 0",
            again.took_s <= MAX_S and not again.requests,
        ),
        Figure(
            "gains",
            f"{name}: seconds for {LARGE:,} at this rate; peak memory so far, MB",
            f"{large_s:.0f}; {peak_mb:,.0f}",
            f"≤ {MAX_LARGE_S:.0f}",
            large_s <= MAX_LARGE_S,
        ),
    ]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the size of the chain to the options."""
    parser.add_argument("--blocks", type=int, default=700, help="blocks with activity")


if __name__ == "__main__":
    main(__doc__, run, add)
