"""Measure the report of gains of wallets that trade, lend and provide liquidity: time and requests.

python -m bench.gains [--blocks 700] [--pegs]

Six wallets of a local chain act as one owner. A block has four to five of their transactions: 22,600 blocks make
100,000. The node computes the state of each of these blocks for the first report, unless prices are fixed (`--pegs`).
The garbage collector runs as rarely as in a command.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, main
from bench.first import DelayedProxy
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
    """Measure the first and the second report of one wallet, and of all wallets together."""
    with LocalNode() as node, scratch() as folder:
        deployment = deploy(node)
        trade(node, deployment, options.blocks, may_fail=True)
        node.mine(20)
        prepare(folder / "data", node, deployment, 0)
        if options.pegs:
            _peg_prices(folder / "data" / "prices.toml")
        with rare_garbage_collection():
            return asyncio.run(_measure(node, deployment, folder / "data" / "chainfolio.toml"))


def _peg_prices(file: Path) -> None:
    """Replace the feeds of a file of prices by pegs of one dollar."""
    feeds = tomllib.loads(file.read_text())["chainlink"]["local"]
    file.write_text("[peg]\n" + "".join(f'"{asset}" = "1"\n' for asset in feeds))


def _settings(file: Path, node: LocalNode, address: str) -> Settings:
    """Return the settings of the chain with another address of its node."""
    file.write_text(file.read_text().replace(node.url, address))
    return load(file, {})


async def _measure(node: LocalNode, deployment: Deployment, file: Path) -> list[Figure]:
    proxy = DelayedProxy(node.url, 0)
    async with proxy.served() as address:
        settings = await asyncio.to_thread(_settings, file, node, address)
        system = System(settings)
        await index_chain(system, quiet=True)
        await system.close()
        everyone = [account(deployment.accounts[name]) for name in HABITS]
        reports = list[Report]()
        figures = []
        for subject, accounts in (("one wallet", everyone[:1]), ("six wallets", everyone)):
            first = await _reported(settings, accounts, proxy)
            reports.append(await _reported(settings, accounts, proxy))
            figures.append(_second_report_figure(subject, first, reports[-1]))
    return [*figures, _large(*reports)]


class Report(NamedTuple):
    """The cost of a report by a system that has read nothing yet."""

    took_s: float
    cpu_s: float
    transactions: int
    requests: int


async def _reported(settings: Settings, accounts: Sequence[Account], proxy: DelayedProxy) -> Report:
    """Make a report with a new system, and return its cost."""
    system = System(settings, shares_answers=True)
    before, counts = proxy.requests, [0]
    began_s, before_s = time.perf_counter(), time.process_time()
    engine = Engine(system, max_lookups=None, progress=lambda done, total: counts.append(total), adds_gains=False)
    await pnl(engine, accounts, PnlRequest())
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - before_s
    await system.close()
    return Report(took_s, cpu_s, max(counts), proxy.requests - before)


def _second_report_figure(subject: str, first: Report, second: Report) -> Figure:
    name = f"gains of {subject}, {second.transactions:,} transactions with positions"
    return Figure(
        "gains",
        f"{name}: seconds of the first report and of the second; processor seconds and requests of the second",
        f"{first.took_s:.2f}, {second.took_s:.2f}; {second.cpu_s:.2f}, {second.requests}",
        f"second ≤ {MAX_S}; 0",
        second.took_s <= MAX_S and not second.requests,
    )


def _large(single: Report, six: Report) -> Figure:
    """Return the figure of LARGE transactions, extrapolated from the reports of one and of six wallets."""
    added = six.transactions - single.transactions
    seconds = [
        start + (end - start) / added * (LARGE - single.transactions)
        for start, end in ((single.took_s, six.took_s), (single.cpu_s, six.cpu_s))
    ]
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Figure(
        "gains",
        f"gains of {LARGE:,} transactions at the rate of the {added:,} from one wallet to six: seconds, processor "
        f"seconds; peak memory of all reports, MB",
        f"{seconds[0]:.1f}, {seconds[1]:.1f}; {peak_mb:,.0f}",
        f"≤ {MAX_LARGE_S:.0f}",
        seconds[0] <= MAX_LARGE_S,
    )


def add(parser: argparse.ArgumentParser) -> None:
    """Add the size of the chain to the options."""
    parser.add_argument("--blocks", type=int, default=700, help="blocks with activity")
    parser.add_argument("--pegs", action="store_true", help="fixed prices in place of feeds")


if __name__ == "__main__":
    main(__doc__, run, add)
