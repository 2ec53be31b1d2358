"""`chainfolio demo`: a real local chain with real contracts and trades, indexed, priced, shown and served."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from chainfolio.errors import Missing
from chainfolio.settings import Chain, Settings
from cli.common import Commands

if TYPE_CHECKING:
    from localchain.deploy import Deployment
    from localchain.node import LocalNode

WALLETS = ("alice", "bob", "carol", "dave", "erin", "frank")
HEARTBEAT_S = 365 * 86400  # the demo's feeds move when its script says so


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("demo", parents=[common], help="see it work on a real local chain", description=__doc__)
    command.add_argument("--blocks", type=int, default=300, help="blocks of trading (default 300)")
    command.add_argument("--port", type=int, default=8080)
    command.add_argument("--data", default="data/demo", help="where the demo keeps its data; emptied first")
    command.add_argument("--once", action="store_true", help="end after the portfolios are shown, without serving")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    from localchain.deploy import deploy
    from localchain.errors import LocalChainError
    from localchain.node import LocalNode
    from localchain.trade import trade

    start_s = time.monotonic()

    def say(line: str) -> None:
        if not options.json:
            print(f"{time.monotonic() - start_s:5.1f} s  {line}", file=sys.stderr, flush=True)

    try:
        with LocalNode() as node:
            say(f"anvil runs at {node.url}")
            deployment = deploy(node)
            say(f"{len(deployment.contracts)} contracts deployed: WETH9, Uniswap V2 and V3, Aave V3, ERC-4626, MasterChef, Chainlink…")
            traded = trade(node, deployment, blocks=options.blocks)
            say(f"{sum(traded.transactions.values()):,} transactions in {options.blocks} blocks, {len(traded.failed)} of them failed")
            given = prepare(Path(options.data), node, deployment, options.port)
            return asyncio.run(_show(given, deployment, options, say))
    except LocalChainError as error:
        raise Missing(str(error)) from None


def prepare(folder: Path, node: LocalNode, deployment: Deployment, port: int) -> Settings:
    """Facts of this chain, its price feeds and the settings, as files like any operator's."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    facts = {
        "key": "local", "family": "evm", "chain_id": 31337, "name": "Local", "block_time_ms": 1000, "finality": 8,
        "color": "#888888", "native": {"symbol": "ETH", "name": "Ether", "decimals": 18, "slip44": 60},
        "wrapped": {"address": deployment.contracts["WETH"].lower(), "symbol": "WETH"},
        "multicall3": {"address": deployment.contracts["Multicall3"].lower(), "born": 0},
    }  # fmt: skip
    (folder / "local.toml").write_bytes(msgspec.toml.encode(facts))
    feeds = {f"eip155:31337/erc20:{token.address.lower()}": symbol for symbol, token in deployment.tokens.items()}
    feeds["eip155:31337/slip44:60"] = "ETH"
    section = {
        asset: {"feed": deployment.feeds["ETH" if symbol == "WETH" else symbol].lower(), "decimals": 8, "heartbeat_s": HEARTBEAT_S}
        for asset, symbol in feeds.items()
    }
    (folder / "prices.toml").write_bytes(msgspec.toml.encode({"chainlink": {"local": section}}))
    tree = {
        "data": str(folder), "prices_file": str(folder / "prices.toml"), "server": {"port": port},
        "chains": {"local": {"facts": str(folder / "local.toml"), "rpc": [node.url]}},
    }  # fmt: skip
    (folder / "chainfolio.toml").write_bytes(msgspec.toml.encode(tree))
    return msgspec.convert(tree, Settings)


async def _show(given: Settings, deployment: Deployment, options: argparse.Namespace, say: object) -> int:
    from chainfolio.assets import account
    from cli.index import watcher
    from cli.portfolio import read, show
    from indexer.wiring import System

    assert callable(say)
    system = System(given)
    chain = system.chain("local")
    indexed = await index_all(system, watcher("local", quiet=options.json))
    say(f"{indexed.blocks:,} blocks indexed: {indexed.rows:,} rows, {chain.requests} requests")
    accounts = {name: account(deployment.accounts[name]) for name in WALLETS}
    documents = await read(system, list(accounts.values()), None, None, False)
    await system.close()
    if options.json:
        print(json.dumps({"wallets": {name: a.address for name, a in accounts.items()},
                          "portfolios": json.loads(msgspec.json.encode(documents))}))  # fmt: skip
    else:
        for name, document in zip(accounts, documents, strict=True):
            print(f"\n{name}")
            show(document)
    if not options.once:
        await _serve(given, accounts["alice"].address, Path(options.data), say)
    return 0


async def index_all(system: object, watch: object) -> object: ...


async def _serve(given: Settings, address: str, folder: Path, say: object) -> None: ...
