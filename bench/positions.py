"""Measure a portfolio with protocol positions: round trips, and time compared with one batch.

python -m bench.positions [--tokens 200] [--positions 10] [--repeat 7]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import aiohttp

from bench.figures import Figure, main, spread
from bench.places import scratch
from chainfolio.adapters.evm.call import encode
from chainfolio.adapters.evm.reads import Call
from chainfolio.assets import account
from chainfolio.blocks import Block
from chainfolio.cli.demo import index_chain, prepare
from chainfolio.engine.service import Engine
from chainfolio.engine.wiring import snapshotter_of
from chainfolio.indexer.wiring import System
from chainfolio.localchain.actions import Scene, add_liquidity_v2, open_position_v3, stake_chef, stake_rewards
from chainfolio.localchain.deploy import PRICES, Deployment, deploy
from chainfolio.localchain.evm import Tx, tx
from chainfolio.localchain.node import LocalNode
from chainfolio.portfolio.facts import Options
from chainfolio.reads import Read, Value

ROUND_TRIPS, WALL = 6, 4.0
BASE = 0x70C0 << 140


@dataclass(slots=True)
class Runs:
    """Requests and seconds of each run, and the contents of the wallet."""

    first: int = 0
    requests: list[int] = field(default_factory=list)
    ours_s: list[float] = field(default_factory=list)
    floor_s: list[float] = field(default_factory=list)
    tokens: int = 0
    positions: int = 0
    calls: int = 0


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    with LocalNode() as node, scratch() as folder:
        deployment = deploy(node)
        wallet = deployment.accounts["alice"]
        hold(node, deployment, wallet, options.tokens)
        open_positions(node, deployment, wallet, options.positions)
        runs = asyncio.run(_measure(node, deployment, wallet, folder, options.repeat))
    return _figures(runs)


def hold(node: LocalNode, deployment: Deployment, wallet: str, count: int) -> None:
    """Mint `count` more tokens to a wallet, so that the index finds them: copies of a token with code."""
    maker = deployment.accounts["deployer"]
    code = node.rpc("eth_getCode", deployment.tokens["DAI"].address, "latest")
    tokens = [f"0x{BASE + k:040x}" for k in range(1, count + 1)]
    node.batch(("anvil_setCode", (token, code)) for token in tokens)
    node.settle([tx(maker, token, "mint(address,uint256)", wallet, 10**18 + k) for k, token in enumerate(tokens)])


def open_positions(node: LocalNode, deployment: Deployment, wallet: str, count: int) -> None:
    """Open positions of every kind for a wallet; those beyond six are positions of Uniswap V3."""
    context = Scene(node, deployment, Random(5), {"alice": wallet}, dict(PRICES))
    pool, vault = deployment.contracts["Pool"], deployment.contracts["Vault"]
    dai, weth = deployment.tokens["DAI"], deployment.tokens["WETH"]
    node.settle(
        [
            tx(wallet, dai.address, "approve(address,uint256)", vault, dai.units(100)),
            tx(wallet, vault, "deposit(uint256,address)", dai.units(100), wallet),
            tx(wallet, weth.address, "approve(address,uint256)", pool, weth.units(5)),
            tx(wallet, pool, "supply(address,uint256,address,uint16)", weth.address, weth.units(5), wallet, 0),
            tx(
                wallet, pool, "borrow(address,uint256,uint256,uint16,address)", dai.address, dai.units(50), 2, 0, wallet
            ),
        ]
    )
    actions = [add_liquidity_v2] * 6 + [stake_chef, stake_rewards] + [open_position_v3] * max(1, count - 6)
    for action in actions:
        txs: Sequence[Tx] = action(context, wallet)
        node.settle(list(txs))


async def _measure(node: LocalNode, deployment: Deployment, wallet: str, folder: Path, repeat: int) -> Runs:
    system = System(prepare(folder / "data", node, deployment, 0))
    runs = Runs()
    try:
        await index_chain(system, quiet=True)
        asks, block = await _first(system, wallet, node.height, runs)
        for _ in range(repeat):
            await _repeat(system, wallet, node.height, runs)
            runs.floor_s.append(await _floor(node.url, asks, block))
    finally:
        await system.close()
    return runs


async def _first(system: System, wallet: str, height: int, runs: Runs) -> tuple[list[Call], Block]:
    """Read the portfolio with a new system, including the handshake; return its calls and the block."""
    fresh = System(system.settings)
    chain, asks = fresh.chain("local"), list[Read[object]]()
    answer = chain.answer

    async def recording(reads: Sequence[Read[Value]], block: Block) -> list[Value]:
        asks.extend(reads)
        return await answer(reads, block)

    chain.answer = recording  # type: ignore[method-assign]
    try:
        snapshot = await snapshotter_of(fresh, chain).take([wallet.lower()], await chain.block(height))
    finally:
        await fresh.close()
    calls = [ask for ask in asks if isinstance(ask, Call)]
    runs.first, runs.calls = chain.requests, len(calls)
    runs.tokens, runs.positions = len(snapshot.holdings), len(snapshot.positions)
    return calls, snapshot.block


async def _repeat(system: System, wallet: str, height: int, runs: Runs) -> None:
    engine, chain = Engine(system), system.chain("local")
    before, start_s = chain.requests, time.perf_counter()
    await engine.at_block([account(wallet)], "local", height, Options())
    runs.ours_s.append(time.perf_counter() - start_s)
    runs.requests.append(chain.requests - before)


async def _floor(url: str, calls: Sequence[Call], block: Block) -> float:
    """Return the seconds of the same calls as one JSON-RPC batch at the block."""
    body = json.dumps(
        [
            {
                "jsonrpc": "2.0",
                "id": at,
                "method": "eth_call",
                "params": [
                    {"to": call.to, "data": "0x" + encode(call.signature, call.args).hex()},
                    {"blockHash": block.hash},
                ],
            }
            for at, call in enumerate(calls)
        ]
    ).encode()
    async with aiohttp.ClientSession() as session:
        start_s = time.perf_counter()
        async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
            assert len(json.loads(await answer.read())) == len(calls)
        return time.perf_counter() - start_s


def _figures(runs: Runs) -> list[Figure]:
    subject = f"{runs.tokens} tokens, {runs.positions} positions"
    ratios = [own_s / floor for own_s, floor in zip(runs.ours_s, runs.floor_s, strict=True)]
    trips = f"{max(runs.requests)}, and {runs.first} by a process that has just begun and greets the node"
    name = f"at-block, {subject}: wall / its {runs.calls} calls, known beforehand, in one batch"
    return [
        Figure(
            "positions",
            f"at-block, {subject}: round trips",
            trips,
            f"≤ {ROUND_TRIPS}",
            max(runs.first, *runs.requests) <= ROUND_TRIPS,
        ),
        Figure(
            "positions",
            name,
            spread(ratios),
            f"≤ {WALL}",
            sorted(ratios)[len(ratios) // 2] <= WALL,
            {"ours_s": runs.ours_s, "floor_s": runs.floor_s},
        ),
    ]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--positions", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=7, help="counted rounds")


if __name__ == "__main__":
    main(__doc__, run, add)
