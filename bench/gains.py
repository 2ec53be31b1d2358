"""Measure the report of gains of wallets that trade, lend and provide liquidity: the second time, and by transaction.

python -m bench.gains [--blocks 3000]

Six wallets of a local chain act as one owner. Every third block has about ten transactions of protocols.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from bench.figures import Figure, main
from bench.first import Away
from bench.places import scratch
from chainfolio.assets import Account, account
from chainfolio.cli.demo import index_chain, prepare
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
        trade(node, deployment, options.blocks)
        node.mine(20)
        prepare(folder / "data", node, deployment, 0)
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
            first_s, _, _ = await _reported(settings, accounts, proxy)
            again_s, count, requests = await _reported(settings, accounts, proxy)
            figures += _figures(subject, count, first_s, again_s, requests)
    return figures


async def _reported(settings: Settings, accounts: Sequence[Account], proxy: Away) -> tuple[float, int, int]:
    """Return the seconds, transactions and requests of a report by a system that has read nothing yet."""
    system = System(settings, shares_answers=True)
    before = proxy.requests
    began_s, counts = time.perf_counter(), [0]
    engine = Engine(system, max_lookups=None, progress=lambda done, total: counts.append(total), adds_gains=False)
    await pnl(engine, accounts, PnlRequest())
    took_s = time.perf_counter() - began_s
    await system.close()
    return took_s, max(counts), proxy.requests - before


def _figures(subject: str, count: int, first_s: float, again_s: float, requests: int) -> list[Figure]:
    name = f"gains of {subject}, {count:,} transactions with positions"
    large_s = again_s / count * LARGE
    return [
        Figure(
            "gains",
            f"{name}: seconds of the first report and of the second; requests of the second",
            f"{first_s:.2f}, {again_s:.2f}; {requests}",
            f"second ≤ {MAX_S}; 0",
            again_s <= MAX_S and not requests,
        ),
        Figure(
            "gains",
            f"{name}: seconds for {LARGE:,} at this rate",
            f"{large_s:.0f}",
            f"≤ {MAX_LARGE_S:.0f}",
            large_s <= MAX_LARGE_S,
        ),
    ]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the size of the chain to the options."""
    parser.add_argument("--blocks", type=int, default=3000, help="blocks with activity")


if __name__ == "__main__":
    main(__doc__, run, add)
