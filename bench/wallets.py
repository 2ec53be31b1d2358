"""Measure snapshots of 10,000 wallets at one block: requests and time by batch size, and memory.

It also measures what gains add to pages of transactions.

python -m bench.wallets [--wallets 10000] [--repeat 3]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

from bench import runs
from bench.figures import Figure, main
from bench.places import ROOT, scratch
from chainfolio.assets import Account, account
from chainfolio.cli.demo import index_chain, prepare
from chainfolio.engine.results import TransactionFilter
from chainfolio.engine.service import Engine
from chainfolio.indexer.wiring import System
from chainfolio.localchain.deploy import Deployment, deploy
from chainfolio.localchain.evm import Tx, tx
from chainfolio.localchain.node import FEES, LocalNode
from chainfolio.portfolio.facts import Options
from chainfolio.settings import Settings

TOKENS, MAX_HELD = 40, 5
SUPPLIED_EVERY, POSITIONS = 10, 500  # every so many wallets have a position, and so many at most
SIZES = {1: 60, 10: 400, 100: 2_000, 1_000: 4_000}  # batch size -> how many wallets are read with it
MEMORY = 1.3
BLOCKS_AFTER = 70  # all of it is final then, and lies in the lake
FIRST_TOKEN, FIRST_WALLET, FIRST_BUSY = 0x70C0 << 140, 0xA11E7 << 136, 0xB057 << 136
BLOCK_TXS, GAS = 900, 110_000
BUSY, RECEIVED, PAGE = 40, 100, 25  # wallets whose transactions are read, how many each has, and how many at a time
GAINS = 1.5


@dataclass(slots=True)
class Measurements:
    """Requests and seconds per wallet by batch size, and peak memory in MB by number of wallets."""

    requests: dict[int, list[float]] = field(default_factory=dict)
    seconds: dict[int, list[float]] = field(default_factory=dict)
    memory: dict[int, float] = field(default_factory=dict)
    whole_s: float = 0.0
    pages: dict[str, list[float]] = field(default_factory=dict)


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    count = options.wallets
    with LocalNode() as node, scratch() as folder:
        deployment = deploy(node)
        wallets = [f"0x{FIRST_WALLET + 7919 * k:040x}" for k in range(count)]
        busy = [f"0x{FIRST_BUSY + 7919 * k:040x}" for k in range(BUSY)]
        fund(node, deployment, wallets, busy)
        settings = prepare(folder / "data", node, deployment, 0)
        read, paged = ([account(each) for each in sample] for sample in (wallets, busy))
        measurements = asyncio.run(_measure(settings, read, paged, options.repeat))
        for wallet_count in sorted({max(1, count // 10), count}):
            result = _command(folder, wallets[:wallet_count])
            measurements.memory[wallet_count], measurements.whole_s = result.peak_mb, result.wall_s
    return _figures(measurements, count)


def fund(node: LocalNode, deployment: Deployment, wallets: Sequence[str], busy: Sequence[str]) -> None:
    """Give each wallet one to five tokens, some a position, and the busy ones many payments."""
    maker, dai = deployment.accounts["deployer"], deployment.tokens["DAI"]
    code = node.rpc("eth_getCode", dai.address, "latest")
    tokens = [f"0x{FIRST_TOKEN + k:040x}" for k in range(TOKENS)]
    node.batch(("anvil_setCode", (token, code)) for token in tokens)
    mints = list(_mints(maker, [*tokens, dai.address], wallets))
    mints += [
        tx(maker, dai.address, "mint(address,uint256)", each, dai.units(1), gas=GAS) for each in [*busy] * RECEIVED
    ]
    first = int(node.rpc("eth_getTransactionCount", maker, "latest"), 16)
    asks = [("eth_sendTransaction", [_request(each, first + k)]) for k, each in enumerate(mints)]
    with node.by_hand():
        for start in range(0, len(asks), BLOCK_TXS):
            node.batch(asks[start : start + BLOCK_TXS])
            node.mine()
    assert int(node.rpc("eth_getTransactionCount", maker, "latest"), 16) == first + len(mints), "mined, every one"
    pool, suppliers = deployment.contracts["Pool"], wallets[::SUPPLIED_EVERY][:POSITIONS]
    supply = "supply(address,uint256,address,uint16)"
    node.settle(
        [
            tx(maker, dai.address, "mint(address,uint256)", maker, dai.units(10 * len(suppliers))),
            tx(maker, dai.address, "approve(address,uint256)", pool, dai.units(10 * len(suppliers))),
            *(tx(maker, pool, supply, dai.address, dai.units(10), wallet, 0) for wallet in suppliers),
        ]
    )
    node.mine(BLOCKS_AFTER)


def _mints(maker: str, tokens: Sequence[str], wallets: Sequence[str]) -> Iterator[Tx]:
    random = Random(8)
    for wallet in wallets:
        for token in random.sample(tokens, random.randint(1, MAX_HELD)):
            yield tx(maker, token, "mint(address,uint256)", wallet, random.randrange(1, 10**21), gas=GAS)


def _request(each: Tx, nonce: int) -> dict[str, str | None]:
    """Return a transaction with its nonce: the node may process a batch in any order."""
    to, data = each.to, each.data
    return {"from": each.sender, "to": to, "data": data, "gas": hex(each.gas), "nonce": hex(nonce), **FEES}


async def _measure(
    settings: Settings, wallets: Sequence[Account], busy: Sequence[Account], repeat: int
) -> Measurements:
    system, measurements = System(settings), Measurements()
    try:
        await index_chain(system, quiet=True)
        engine, chain, options = Engine(system), system.chain("local"), Options()
        block = await engine.pinned("local")
        first = await engine.at_pinned(wallets[:1000], "local", block, options, past=False)  # warm
        positions = sum(len(each.asset_by_protocols) > 1 for each in first)
        assert positions == len(wallets[:1000:SUPPLIED_EVERY]), f"{positions} positions were found"
        for _ in range(repeat):
            for size, count in SIZES.items():
                read = wallets[:count]
                before, began_s = chain.requests, time.perf_counter()
                for start in range(0, len(read), size):
                    await engine.at_pinned(read[start : start + size], "local", block, options, past=False)
                measurements.seconds.setdefault(size, []).append((time.perf_counter() - began_s) / len(read))
                measurements.requests.setdefault(size, []).append((chain.requests - before) / len(read))
        measurements.pages = await _pages(system, busy, repeat)
    finally:
        await system.close()
    return measurements


async def _pages(system: System, busy: Sequence[Account], repeat: int) -> dict[str, list[float]]:
    """Return seconds per page of transactions: without gains, with gains for the first time, and again.

    All prices are stored before.
    """
    page = TransactionFilter(PAGE, 0)
    seconds: dict[str, list[float]] = {"without": [], "first": [], "again": []}
    for _ in range(repeat):
        fresh = Engine(system)
        for each in busy:
            await fresh.records([each], TransactionFilter(RECEIVED, 0))  # warm
        began_s = time.perf_counter()
        for each in busy:
            await fresh.records([each], page)
        seconds["without"].append(time.perf_counter() - began_s)
        for name in ("first", "again"):
            began_s = time.perf_counter()
            pages = [await fresh.transactions([each], page) for each in busy]
            seconds[name].append(time.perf_counter() - began_s)
            gains = [each.closed_pnl for page_answer in pages for each in page_answer.document.transactions]
            assert gains == ["0"] * (len(busy) * PAGE), "what was only received has gained nothing yet"
    return seconds


def _command(folder: Path, wallets: Sequence[str]) -> runs.Run:
    """Run `portfolio` on these wallets; fails unless it prints each, in order."""
    (folder / "wallets.txt").write_text("\n".join(wallets))
    arguments = ["--config", str(folder / "data" / "chainfolio.toml"), "--json", "--from", str(folder / "wallets.txt")]
    env = runs.environment({"PYTHONPATH": str(ROOT)})
    result = runs.run([*runs.product(), "portfolio", *arguments], env, watched=True).checked()
    assert [json.loads(line)["address"] for line in result.output.splitlines()] == list(wallets)
    return result


def _figures(measurements: Measurements, count: int) -> list[Figure]:
    subject = f"wallets of 1-{MAX_HELD} tokens, every {SUPPLIED_EVERY}th with a position, at one block"
    sizes = ", ".join(f"{size:,}" for size in measurements.seconds)
    requests = [statistics.median(each) for each in measurements.requests.values()]
    times_ms = [1000 * statistics.median(each) for each in measurements.seconds.values()]
    without, first, with_gains = (statistics.median(measurements.pages[name]) for name in ("without", "first", "again"))
    first, with_gains = first / without, with_gains / without
    min_wallets, max_wallets = min(measurements.memory), max(measurements.memory)
    ratio = measurements.memory[max_wallets] / measurements.memory[min_wallets]
    return [
        Figure(
            "wallets",
            f"{subject}: requests per wallet in batches of {sizes}",
            " → ".join(f"{each:.3g}" for each in requests),
            "falls",
            _falls(requests),
            {"requests": measurements.requests},
        ),
        Figure(
            "wallets",
            f"{subject}: ms per wallet in batches of {sizes}",
            " → ".join(f"{each:.3g}" for each in times_ms),
            "falls",
            _falls(times_ms),
            {"seconds": measurements.seconds},
        ),
        Figure(
            "wallets",
            f"a page of {PAGE} transactions with their gains / without, of {BUSY} wallets of {RECEIVED}",
            f"{with_gains:.2f} x; {first:.2f} x when they are first computed, from all {RECEIVED}",
            f"≤ {GAINS} x",
            with_gains <= GAINS,
            {"seconds": measurements.pages},
        ),
        Figure(
            "wallets",
            f"peak memory of the command: {count:,} wallets / {min_wallets:,}",
            f"{ratio:.2f} x ({measurements.memory[max_wallets]:.0f} MB; {count:,} in {measurements.whole_s:.1f} s)",
            f"≤ {MEMORY} x",
            ratio <= MEMORY,
            {"memory_mb": measurements.memory},
        ),
    ]


def _falls(values: Sequence[float]) -> bool:
    return all(after < before for before, after in pairwise(values))


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--wallets", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3, help="counted rounds")


if __name__ == "__main__":
    main(__doc__, run, add)
