"""Measure the first portfolio of a wallet without an index, at a node 50 ms away: requests and time.

Of the tokens that it holds, one in ten is a vault's share; the others are priced by a pool each, of Uniswap V2 or V3.

python -m bench.first [--repeat 5] [--latency 50]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from bench.figures import Figure, main, spread
from bench.places import ROOT, scratch
from bench.pools import opened, prices, stock
from bench.runs import environment
from bench.snapshot import WALLET, deploy
from chainfolio.adapters.evm.facts import load
from chainfolio.engine.snapshots.token_registry import TokenRegistry
from chainfolio.indexer.wiring import CONFIGS
from chainfolio.localchain.node import LocalNode

CHAIN = "ethereum"  # the chain with the largest registry
EVERY = 200  # the wallet holds every two-hundredth token
VAULTS = 10  # every tenth of these is a share
VAULT_RAW = 10**18
NATIVE = "eip155:31337/slip44:60"
MAX_REQUESTS, MAX_S = 8, 2.0


@dataclass(slots=True)
class DelayedProxy:
    """A proxy of a node that delays and counts requests."""

    node: str
    latency_s: float
    requests: int = 0
    sizes: list[int] = field(default_factory=list)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """Serve the proxy within the context and yield its URL."""
        async with aiohttp.ClientSession() as session:

            async def answer(request: web.Request) -> web.Response:
                body = await request.read()
                self.requests += 1
                self.sizes.append(len(body))
                await asyncio.sleep(self.latency_s)
                async with session.post(self.node, data=body, headers={"content-type": "application/json"}) as response:
                    return web.Response(body=await response.read(), content_type="application/json")

            app = web.Application(client_max_size=64 * 1024**2)
            app.router.add_post("/", answer)
            runner = web.AppRunner(app)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            try:
                host, port = runner.addresses[0][:2]
                yield f"http://{host}:{port}"
            finally:
                await runner.cleanup()


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    registry = TokenRegistry(CONFIGS / "tokens" / f"{CHAIN}.csv", load(CONFIGS / "chains" / "local.toml").info)
    tokens = [asset.reference for asset in registry.assets_on(2)]
    with LocalNode() as node, scratch() as folder:
        balances = deploy(node, tokens, EVERY)
        (folder / "prices.toml").write_text(_priced(node, list(balances)))
        facts = (CONFIGS / "chains" / "local.toml").read_text().replace('key = "local"', f'key = "{CHAIN}"')
        (folder / "facts.toml").write_text(facts)
        runs = asyncio.run(_measure(node.url, folder, balances, options))
    walls, cpus, requests = (
        [each[0] for each in runs[1:]],
        [each[1] for each in runs[1:]],
        {each[2] for each in runs},
    )
    detail = {"walls_s": walls, "tokens": len(tokens), "held": len(balances)}
    subject = f"first portfolio of a wallet, no index, {len(tokens):,} registry tokens, node {options.latency} ms away"
    spent = f"{spread(walls)} s, of the processor {spread(cpus)} s"
    return [
        Figure("first", f"{subject}: requests", str(max(requests)), f"≤ {MAX_REQUESTS}", max(requests) <= MAX_REQUESTS),
        Figure(
            "first", f"{subject}: time with the start of Python", spent, f"≤ {MAX_S:g} s", max(walls) <= MAX_S, detail
        ),
        _loading(),
    ]


def _priced(node: LocalNode, tokens: Sequence[str]) -> str:
    """Give each token a pool or make it a vault's share; return the price settings."""
    market = opened(node, by=1)
    deployer, weth = market.deployer, market.symbols["WETH"]
    shares = tokens[::VAULTS]
    stock(market, [token for token in tokens if token not in shares])
    vault = deployer.create("Vault", "Vault", ("address", "string", "string"), weth, "Vault", "VAULT")
    deployer.do(weth, "deposit()", value=VAULT_RAW * len(shares))
    deployer.settle()
    code = node.rpc("eth_getCode", vault, "latest")
    node.batch(("anvil_setCode", (share, code)) for share in shares)
    for share in shares:
        deployer.do(weth, "approve(address,uint256)", share, VAULT_RAW)
        deployer.do(share, "deposit(uint256,address)", VAULT_RAW, deployer.account)
    deployer.settle()
    node.mine(5)
    share_list = ", ".join(f'"{share.lower()}"' for share in shares)
    return f'{prices(market, CHAIN)}\n[shares.{CHAIN}]\nnative = "{NATIVE}"\nvault = [{share_list}]\n'


async def _measure(
    url: str, folder: Path, balances: dict[str, int], options: argparse.Namespace
) -> list[tuple[float, float, int]]:
    """Return seconds, processor seconds and requests of each run, without the first."""
    facts = {f"CHAINFOLIO_CHAINS__{CHAIN.upper()}__FACTS": str(folder / "facts.toml")}
    env = environment({**facts, "CHAINFOLIO_PRICES_FILE": str(folder / "prices.toml"), "PYTHONPATH": str(ROOT)})
    runs = []
    for _ in range(options.repeat + 1):
        proxy = DelayedProxy(url, options.latency / 1000)
        async with proxy.served() as address:
            start_s, before_s = time.perf_counter(), _ended_s()
            command = ["-m", "chainfolio.cli.main", "portfolio", WALLET, "--rpc", address, "--json"]
            pipe = asyncio.subprocess.PIPE
            child = await asyncio.create_subprocess_exec(sys.executable, *command, env=env, cwd=folder, stdout=pipe)
            output, _ = await child.communicate()
            spent_s = time.perf_counter() - start_s
        assert child.returncode == 0, output[-500:]
        _check(json.loads(output), balances)
        runs.append((spent_s, _ended_s() - before_s, proxy.requests))
    return runs


def _ended_s() -> float:
    """Return the processor seconds of all ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _check(documents: list[dict[str, Any]], balances: dict[str, int]) -> None:
    """Fail unless the portfolio has exactly the held tokens, with their balances and price sources."""
    position = documents[0]["assetByProtocols"]["wallet"]["chains"][CHAIN]["protocolPositions"]["WALLET"]
    amounts = {each["contract"]: Decimal(each["balance"]).scaleb(int(each["decimal"])) for each in position["assets"]}
    assert amounts == balances, f"{len(amounts)} balances instead of {len(balances)}, or others"
    sources = {each["contract"]: each.get("priceSource", "none") for each in position["assets"]}
    expected = {token: "pools" if k % VAULTS else "shares" for k, token in enumerate(balances)}
    assert sources == expected, f"prices are of {sorted(sources.items() - expected.items())[:3]}"


def _loading() -> Figure:
    """Measure the time to load the largest token registry with all candidates."""
    info = load(CONFIGS / "chains" / f"{CHAIN}.toml").info
    times_ms = []
    for _ in range(9):
        start_s = time.perf_counter()
        registry = TokenRegistry(CONFIGS / "tokens" / f"{CHAIN}.csv", info)
        candidates = registry.assets_on(2)
        times_ms.append((time.perf_counter() - start_s) * 1000)
    return Figure("first", f"loading a registry of {len(candidates):,} tokens", f"{spread(times_ms, 1)} ms", "", None)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--repeat", type=int, default=5, help="counted rounds")
    parser.add_argument("--latency", type=int, default=50, help="milliseconds that each request takes longer")


if __name__ == "__main__":
    main(__doc__, run, add)
