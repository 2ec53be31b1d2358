"""Measure one wallet over thousands of candidate tokens: requests, and time compared with plain calls.

python -m bench.snapshot [--tokens 5000] [--repeat 5]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from bench.figures import Figure, main, spread
from bench.places import scratch
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.blocks import Block
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.wiring import snapshotter_of
from chainfolio.indexer.wiring import System
from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.evm import Tx, call_data, created_address, keccak, words
from chainfolio.localchain.node import LocalNode
from chainfolio.settings import Settings

WALLET = "0x" + "ab" * 20
EVERY = 10  # the wallet holds every tenth token
AT_ONCE = 16  # single calls on their way together
BATCH = 1000
CODES = 100  # contracts put in place at once: the node takes bodies of two megabytes
BAR = 3


@dataclass(slots=True)
class Times:
    """Seconds of each method, and requests of the product."""

    snapshots: list[float] = field(default_factory=list)
    singles: list[float] = field(default_factory=list)
    batches: list[float] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    with LocalNode() as node, scratch() as folder:
        tokens = [f"0x{(0xC0DE << 140) + k:040x}" for k in range(1, options.tokens + 1)]
        balances = deploy(node, tokens, EVERY)
        at = node.block()
        past = Block(int(at["number"], 16), at["hash"], at["parentHash"], int(at["timestamp"], 16) * 1_000_000)
        node.mine()  # anvil stores the state of a block when the next one is made, so later writes are not in it
        _hold(node, {token: raw + 1 for token, raw in balances.items()})  # balances of later blocks
        node.mine(5)
        times = asyncio.run(_measure(node.url, folder, tokens, balances, past, options.repeat))
    return _figures(times, options.tokens)


def deploy(node: LocalNode, tokens: Sequence[str], every: int) -> dict[str, int]:
    """Put real token code at some addresses; return the wallet's balances, one in every `every` tokens."""
    constructor = words(["string", "string", "uint8"], "Candidate", "CAND", 18)
    maker = node.accounts[0]
    node.settle([Tx(maker, None, artifact("Token").creation(constructor), gas=5_000_000)])
    code = node.rpc("eth_getCode", created_address(maker, 0), "latest")
    for start in range(0, len(tokens), CODES):
        node.batch(("anvil_setCode", (token, code)) for token in tokens[start : start + CODES])
    balances = {token: 10**18 + k for k, token in enumerate(tokens) if k % every == 0}
    _hold(node, balances)
    return balances


def _hold(node: LocalNode, balances: dict[str, int]) -> None:
    """Write the wallet's balances into the first mapping of the contracts, in a separate block."""
    slot = "0x" + keccak(bytes.fromhex(WALLET[2:].zfill(64) + "0" * 64)).hex()
    node.batch(("anvil_setStorageAt", (token, slot, f"0x{raw:064x}")) for token, raw in balances.items())
    node.mine()


def _ask() -> str:
    return call_data("balanceOf(address)(uint256)", WALLET)


async def _measure(
    url: str, folder: Path, tokens: list[str], balances: dict[str, int], past: Block, repeat: int
) -> Times:
    system = System(Settings(data=str(folder), chains={"local": EvmSettings(rpc=[url])}))
    times = Times()
    try:
        snapshotter = snapshotter_of(system, system.chain("local"))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE)) as session:
            for _ in range(repeat + 1):
                times.snapshots.append(await _timed(lambda: _snapshot(snapshotter, tokens, past, times), balances))
                times.singles.append(await _timed(lambda: _singles(session, url, tokens, past), balances))
                times.batches.append(await _timed(lambda: _batches(session, url, tokens, past), balances))
    finally:
        await system.close()
    return Times(times.snapshots[1:], times.singles[1:], times.batches[1:], times.requests)


async def _timed(ask: Callable[[], Awaitable[dict[str, int]]], expected: dict[str, int]) -> float:
    start_s = time.perf_counter()
    balances = await ask()
    spent_s = time.perf_counter() - start_s
    assert balances == expected, f"{len(balances)} balances instead of {len(expected)}, or others"
    return spent_s


async def _snapshot(snapshotter: Snapshotter, tokens: list[str], past: Block, times: Times) -> dict[str, int]:
    snapshot = await snapshotter.take([WALLET], past, list(map(snapshotter.chain.info.token_asset, tokens)))
    times.requests.append(snapshot.requests)
    return {
        str(holding.token.asset).rpartition(":")[2]: holding.raw
        for holding in snapshot.holdings
        if ":" in str(holding.token.asset) and holding.token.asset != snapshotter.native.asset
    }


async def _singles(session: aiohttp.ClientSession, url: str, tokens: list[str], past: Block) -> dict[str, int]:
    async def read_one(token: str) -> tuple[str, int]:
        return token, (await _post(session, url, [_call(0, token, past)]))[0]

    return {token: raw for token, raw in await asyncio.gather(*map(read_one, tokens)) if raw}


async def _batches(session: aiohttp.ClientSession, url: str, tokens: list[str], past: Block) -> dict[str, int]:
    balances: dict[str, int] = {}
    for start in range(0, len(tokens), BATCH):
        part = tokens[start : start + BATCH]
        raws = await _post(session, url, [_call(k, token, past) for k, token in enumerate(part)])
        balances |= {token: raw for token, raw in zip(part, raws, strict=True) if raw}
    return balances


def _call(number: int, token: str, past: Block) -> dict[str, Any]:
    params = [{"to": token, "data": _ask()}, {"blockHash": past.hash}]
    return {"jsonrpc": "2.0", "id": number, "method": "eth_call", "params": params}


async def _post(session: aiohttp.ClientSession, url: str, calls: list[dict[str, Any]]) -> list[int]:
    async with session.post(url, json=calls if len(calls) > 1 else calls[0]) as answer:
        read = json.loads(await answer.read())
    answers = sorted(read, key=lambda each: each["id"]) if isinstance(read, list) else [read]
    return [int(each["result"], 16) for each in answers]


def _figures(times: Times, count: int) -> list[Figure]:
    first, later = times.requests[0], max(times.requests[1:])
    text, name = f"{first} the first time, then {later}", f"requests for {count:,} tokens at a past block"
    figures = [Figure("snapshot", name, text, f"≤ {BAR}", max(first, later) <= BAR)]
    by_name = {"single calls, 16 at once": times.singles, "batches of 1,000": times.batches}
    ratios = {n: [a / b for a, b in zip(times.snapshots, walls, strict=True)] for n, walls in by_name.items()}
    return [
        *figures,
        Figure(
            "snapshot",
            " and ".join(f"wall / {name}" for name in ratios),
            " and ".join(spread(values) for values in ratios.values()),
            "< 1",
            all(statistics.median(values) < 1 for values in ratios.values()),
            {"ours_s": times.snapshots, **by_name},
        ),
    ]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--tokens", type=int, default=5000, help="candidates")
    parser.add_argument("--repeat", type=int, default=5, help="counted rounds")


if __name__ == "__main__":
    main(__doc__, run, add)
