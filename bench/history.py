"""Measure daily snapshots of a wallet over a year: requests, a second wallet, and repeated kills.

python -m bench.history [--days 365] [--tokens 50] [--positions 5] [--kills 10]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any

from bench.figures import Figure, main
from bench.first import DelayedProxy
from bench.places import ROOT, scratch
from bench.positions import hold, open_positions
from bench.runs import environment
from chainfolio.assets import account
from chainfolio.cli.demo import index_chain, prepare
from chainfolio.engine.history.day_blocks import midnight_us
from chainfolio.engine.service import Engine
from chainfolio.indexer.wiring import System
from chainfolio.localchain.deploy import PRICES, Deployment, deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import set_price
from chainfolio.portfolio.document import encode_one
from chainfolio.settings import Settings
from chainfolio.tables import SNAPSHOT_HOLDINGS, SNAPSHOTS

FIRST = date(2024, 1, 15)  # 29 February is among the days
BLOCKS = 20  # a day
A_DAY, A_SECOND_WALLET = 3.0, 1.2
AGAIN = 12  # days that are read a second time


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the command: requests, seconds, and its output by wallet and day."""

    requests: int
    seconds: float
    days: dict[tuple[str, str], tuple[str | None, str, str]]  # value, completeness, digest by wallet and day


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    first_s = midnight_us(FIRST) // 1_000_000 - 86_400
    with LocalNode(timestamp=first_s) as node, scratch() as folder:
        deployment = deploy(node)
        wallets = [deployment.accounts[name] for name in ("alice", "bob")]
        for wallet in wallets:
            hold(node, deployment, wallet, options.tokens)
            open_positions(node, deployment, wallet, options.positions)
        live(node, deployment, options.days)
        settings = prepare(folder / "data", node, deployment, 0)
        return asyncio.run(_measure(node, settings, [each.lower() for each in wallets], options))


def live(node: LocalNode, deployment: Deployment, days: int) -> None:
    """Add the blocks of some days: each has new prices in its feeds, and a block right before its end."""
    chance = Random(7)
    for number in range(days):
        midnight_s = midnight_us(FIRST + timedelta(days=number)) // 1_000_000
        for symbol in ("ETH", "WBTC"):
            set_price(node, deployment, symbol, PRICES[symbol] * chance.randrange(50, 200) // 100)
        for symbol in ("USDC", "DAI"):
            set_price(node, deployment, symbol, 10**8)
        now_s = int(node.block()["timestamp"], 16)
        node.mine(BLOCKS, max(1, (midnight_s - now_s) // (BLOCKS + 8)))
        node.rpc("evm_setNextBlockTimestamp", midnight_s - 1)
        node.mine()
        node.rpc("evm_setNextBlockTimestamp", midnight_s)
        node.mine()
    node.mine(200)


async def _measure(
    node: LocalNode, settings: Settings, wallets: list[str], options: argparse.Namespace
) -> list[Figure]:
    system = System(settings)
    await index_chain(system, quiet=True)
    await system.close()
    alone = await _run(node, settings, wallets[:1], options.days)
    repeated = await _run(node, settings, wallets[:1], options.days)
    added = await _run(node, settings, wallets, options.days)
    _forget(settings)
    both = await _run(node, settings, wallets, options.days)
    differing = await _recomputed(settings, both, wallets)
    _forget(settings)
    kills, killed = await _killed(node, settings, wallets[:1], options)
    rows, doubled = _rows(settings)
    wrong = sum(both.days[key] != value for key, value in killed.days.items())
    partial = sum(value[1] != "complete" for value in both.days.values())
    subject = f"{options.days} days of a wallet with {_holdings_text(settings, wallets[0])}"
    second = (both.requests - alone.requests) / options.days
    later = added.requests / options.days
    detail = {"seconds": [alone.seconds, both.seconds], "requests": [alone.requests, both.requests]}
    return [
        Figure(
            "history",
            f"{subject}: requests a day",
            f"{alone.requests / options.days:.2f} ({alone.requests}, {alone.seconds:.0f} s)",
            f"≤ {A_DAY:g}",
            alone.requests <= A_DAY * options.days,
            detail,
        ),
        Figure(
            "history",
            f"{subject}: requests a day for a second wallet, at once; later",
            f"{second:.2f}; {later:.2f}",
            f"≤ {A_SECOND_WALLET:g}",
            max(second, later) <= A_SECOND_WALLET,
        ),
        Figure(
            "history",
            f"{subject}: run again: requests",
            str(repeated.requests),
            "the handshake alone: ≤ 3",
            repeated.requests <= 3 and repeated.days == alone.days,
        ),
        Figure(
            "history",
            f"{subject}: {kills} kills: days lost, doubled, other than without kills; requests more",
            f"{options.days - rows}, {doubled}, {wrong}; {killed.requests - alone.requests}",
            "0, 0, 0",
            (rows, doubled, wrong) == (options.days, 0, 0),
        ),
        Figure(
            "history",
            f"{AGAIN} days read anew: documents other than the snapshot; days that are not complete",
            f"{differing}; {partial}",
            "0; 0",
            (differing, partial) == (0, 0),
        ),
    ]


async def _run(node: LocalNode, settings: Settings, wallets: list[str], days: int, kill_s: float | None = None) -> Run:
    """Run the command in a separate process; kill it after `kill_s` if that is given."""
    proxy = DelayedProxy(node.url, 0)
    last = FIRST + timedelta(days=days - 1)
    async with proxy.served() as address:
        env = environment({"PYTHONPATH": str(ROOT), "CHAINFOLIO_CHAINS__LOCAL__RPC": address})
        arguments = ["history", *wallets, "--from", str(FIRST), "--to", str(last), "--json"]
        command = ["-m", "chainfolio.cli.main", *arguments, "--config", str(settings.data_dir / "chainfolio.toml")]
        start_s = time.perf_counter()
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(sys.executable, *command, env=env, stdout=pipe)
        try:
            output, _ = await asyncio.wait_for(child.communicate(), kill_s)
        except TimeoutError:
            os.kill(child.pid, signal.SIGKILL)
            output, _ = await child.communicate()
            return Run(proxy.requests, time.perf_counter() - start_s, {})
        assert child.returncode == 0, output[-500:]
    result = {
        (wallet["address"], day["day"]): (day["value"], day["completeness"], day["chains"][0]["digest"])
        for wallet in json.loads(output)
        for day in wallet["days"]
    }
    return Run(proxy.requests, time.perf_counter() - start_s, result)


async def _killed(
    node: LocalNode, settings: Settings, wallets: list[str], options: argparse.Namespace
) -> tuple[int, Run]:
    """Kill the command at random moments, then run it to its end; return all requests and the last run."""
    chance, requests, kills = Random(options.seed), 0, 0
    for _ in range(options.kills):
        ran = await _run(node, settings, wallets, options.days, 1.5 + chance.random() * options.kill_within)
        requests += ran.requests
        if ran.days:  # it completed before the kill
            break
        kills += 1
    ran = await _run(node, settings, wallets, options.days)
    return kills, Run(requests + ran.requests, ran.seconds, ran.days)


async def _recomputed(settings: Settings, ran: Run, wallets: list[str]) -> int:
    """Return the number of days whose result differs when they are read again from an empty store."""
    import hashlib

    _forget(settings)
    system, wrong = System(settings), 0
    engine = Engine(system)
    chosen = Random(11).sample(sorted({day for _, day in ran.days}), AGAIN)
    for day in chosen:
        accounts = [account(each) for each in wallets]
        for each in await engine.historical(accounts, date.fromisoformat(day)):
            wrong += hashlib.sha256(encode_one(each)).hexdigest() != ran.days[each.address, day][2]
    await system.close()
    return wrong


def _rows(settings: Settings) -> tuple[int, int]:
    """Return the number of stored snapshots, and that of duplicate rows of both tables."""
    system = System(settings)
    counts = []
    for table in (SNAPSHOTS, SNAPSHOT_HOLDINGS):
        rows = system.lake.scan(table).select(table.key).collect()
        counts.append((rows.height, rows.height - rows.unique().height))
    system.tail.close()
    return counts[0][0], sum(doubled for _, doubled in counts)


def _holdings_text(settings: Settings, wallet: str) -> str:
    system = System(settings)
    holdings = system.lake.of_accounts(SNAPSHOT_HOLDINGS, "local", [wallet]).collect()
    holding = holdings.filter(holdings["day"] == holdings["day"].max()).to_dicts()
    system.tail.close()
    positions: set[tuple[Any, ...]] = {
        (row["protocol"], row["name"], row["position"]) for row in holding if row["name"]
    }
    loose = sum(row["side"] == "owned" for row in holding)
    return f"{loose} tokens and {len(positions)} positions"


def _forget(settings: Settings) -> None:
    for table in (SNAPSHOTS, SNAPSHOT_HOLDINGS):
        shutil.rmtree(Path(settings.lake_uri, table.name), ignore_errors=True)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--tokens", type=int, default=50)
    parser.add_argument("--positions", type=int, default=5)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--kill-within", type=float, default=8.0, help="seconds after the start of Python")
    parser.add_argument("--seed", type=int, default=5)


if __name__ == "__main__":
    main(__doc__, run, add)
