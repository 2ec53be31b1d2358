"""Price a thousand tokens from as many pools at one past block; compare with direct calls.

The settings have venues of every family that finds pools by their tokens.

python -m bench.pools [--tokens 1000] [--repeat 3]
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from pathlib import Path

from bench.figures import Figure, main, spread
from bench.places import scratch
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.engine.wiring import snapshotter_of
from chainfolio.indexer.wiring import System
from chainfolio.localchain.deploy import (
    FOREVER,
    MINT_POSITION,
    POOL_FEE,
    WAD,
    Deployer,
    checked,
    erc20_tokens,
    price_feeds,
    sqrt_price_x96,
    uniswap_v2,
    uniswap_v3,
)
from chainfolio.localchain.evm import MAX
from chainfolio.localchain.node import LocalNode
from chainfolio.settings import Settings

CHAIN = "eip155:31337"
BAR = 6
FULL = 887_220
GET_PAIR, GET_POOL = "getPair(address,address)(address)", "getPool(address,address,uint24)(address)"
USD = {"WETH": 2_000, "USDC": 1}  # what the feeds say
ELSEWHERE = ("slipstream", "algebra", "solidly", "curve_ng")
CONTEXT = Context(prec=36, rounding=ROUND_HALF_EVEN)


@dataclass(slots=True)
class Market:
    """A chain with tokens, and the one pool of each."""

    deployer: Deployer
    symbols: dict[str, str]  # of the trusted tokens: address
    feeds: dict[str, str]
    pools: dict[str, tuple[str, str, int]] = field(default_factory=dict)  # by token: pool, quote, version

    @property
    def node(self) -> LocalNode:
        """The node of the chain."""
        return self.deployer.node


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    with LocalNode() as node, scratch() as folder:
        market = opened(node)
        manager = market.deployer.create("PoolManager", "PoolManager", ("address",), market.deployer.account)
        market.deployer.create("StateView", "StateView", ("address",), manager)
        fill(market, options.tokens)
        node.mine(seconds=60)
        at = node.block()
        past = Block(int(at["number"], 16), at["hash"], at["parentHash"], int(at["timestamp"], 16) * 1_000_000)
        expected_prices = {token: expected(market, token, past) for token in market.pools}
        node.mine(3)
        requests, times, wrong = asyncio.run(priced(market, folder, past, expected_prices, options.repeat))
    name = f"{len(expected_prices):,} tokens from {len(expected_prices):,} pools at a past block"
    return [
        Figure("pools", f"{name}: requests", f"{max(requests)}", f"≤ {BAR}", max(requests) <= BAR, {"all": requests}),
        Figure("pools", f"{name}: prices that differ from direct calls", f"{wrong}", "0", wrong == 0),
        Figure("pools", f"{name}: seconds", spread(times)),
    ]


def opened(node: LocalNode, by: int = 0) -> Market:
    """Deploy trusted tokens with feeds and both factories, by an account that sent nothing yet."""
    account = node.accounts[by]
    deployer = Deployer(node, account, 0)
    tokens = erc20_tokens(deployer, [account])
    uniswap_v2(deployer, tokens)
    uniswap_v3(deployer, tokens)
    feeds = price_feeds(deployer, {symbol: usd * 10**8 for symbol, usd in USD.items()})
    deployer.settle()
    return Market(deployer, {symbol: tokens[symbol].address for symbol in USD}, feeds)


def fill(market: Market, count: int) -> None:
    """Create tokens with a pool each."""
    deployer = market.deployer
    stock(
        market,
        [deployer.create(f"T{k}", "Token", ("string", "string", "uint8"), f"T{k}", f"T{k}", 18) for k in range(count)],
    )


def stock(market: Market, tokens: Sequence[str]) -> None:
    """Create a pool for each token at different prices: every second on V3, every third in USDC."""
    deployer = market.deployer
    weth = market.symbols["WETH"]
    deployer.do(weth, "deposit()", value=4_000 * WAD)
    deployer.do(market.symbols["USDC"], "mint(address,uint256)", deployer.account, 10**9 * 10**6)
    for k, token in enumerate(tokens):
        quote, raw = ("USDC", 12_000 * 10**6) if k % 3 == 0 else ("WETH", 5 * WAD)
        amounts = {token: (1_000 + k) * WAD, market.symbols[quote]: raw}
        deployer.do(token, "mint(address,uint256)", deployer.account, (1_000 + k) * WAD)
        (_on_v3 if k % 2 else _on_v2)(deployer, amounts)
        market.pools[token] = "", quote, 2 + k % 2
    deployer.settle()
    for token, (_, quote, version) in list(market.pools.items()):
        both = token, market.symbols[quote]
        if version == 3:
            reserves = deployer.read(
                deployer.contracts["UniswapV3Factory"], "getPool(address,address,uint24)(address)", *both, POOL_FEE
            )
        else:
            reserves = deployer.read(deployer.contracts["UniswapV2Factory"], "getPair(address,address)(address)", *both)
        market.pools[token] = checked(reserves), quote, version


def _on_v2(deployer: Deployer, amounts: dict[str, int]) -> None:
    router = deployer.contracts["UniswapV2Router02"]
    token, quote = amounts
    for each in amounts:
        deployer.do(each, "approve(address,uint256)", router, MAX)
    signature = "addLiquidity(address,address,uint256,uint256,uint256,uint256,address,uint256)"
    deployer.do(router, signature, token, quote, *amounts.values(), 0, 0, deployer.account, FOREVER)


def _on_v3(deployer: Deployer, amounts: dict[str, int]) -> None:
    manager = deployer.contracts["NonfungiblePositionManager"]
    for each in amounts:
        deployer.do(each, "approve(address,uint256)", manager, MAX)
    token0, token1 = sorted(amounts, key=lambda address: int(address, 16))
    root = sqrt_price_x96(amounts[token0], amounts[token1])
    make = "createAndInitializePoolIfNecessary(address,address,uint24,uint160)"
    deployer.do(manager, make, token0, token1, POOL_FEE, root)
    raws = amounts[token0], amounts[token1]
    order = (token0, token1, POOL_FEE, -FULL, FULL, *raws, 0, 0, deployer.account, FOREVER)
    deployer.do(manager, MINT_POSITION, order)


def expected(market: Market, token: str, past: Block) -> Decimal:
    """Return the price of a token by single calls and plain arithmetic, without code of the product."""
    pool, quote, version = market.pools[token]
    first = int(token, 16) < int(market.symbols[quote], 16)
    call = market.node.call
    if version == 2:
        raw0, raw1 = call(pool, "getReserves()(uint112,uint112,uint32)", block=past.height)[:2]
        per_first = Fraction(raw1, raw0)
    else:
        root = call(pool, "slot0()(uint160,int24,uint16,uint16,uint16,uint8,bool)", block=past.height)[0]
        per_first = Fraction(root * root, 2**192)
    price = (per_first if first else 1 / per_first) * (10**12 if quote == "USDC" else 1) * USD[quote]
    return CONTEXT.divide(Decimal(price.numerator), Decimal(price.denominator))


async def priced(
    market: Market, folder: Path, past: Block, expected_prices: dict[str, Decimal], repeat: int
) -> tuple[list[int], list[float], int]:
    """Return the requests and seconds of each run with a new system, and the number of wrong prices."""
    requests, times, wrong = [], [], 0
    (folder / "prices.toml").write_text(prices(market, additional=_other_venues(market)))
    assets = [Asset(CHAIN, "erc20", token.lower()) for token in expected_prices]
    for _ in range(repeat):
        chains = {"local": EvmSettings(rpc=[market.node.url])}
        system = System(Settings(data=str(folder), chains=chains, prices_file=str(folder / "prices.toml")))
        try:
            snapshotter = snapshotter_of(system, system.chain("local"))
            await snapshotter.chain.heads()  # the handshake is not what is counted
            before, start_s = snapshotter.chain.requests, time.perf_counter()
            context = await snapshotter.token_context(assets, past)
            times.append(time.perf_counter() - start_s)
            requests.append(snapshotter.chain.requests - before)
            prices_by_token = {price.asset.reference: price.usd for price in context.quotes.prices}
            wrong = max(wrong, sum(prices_by_token.get(token.lower()) != usd for token, usd in expected_prices.items()))
        finally:
            await system.close()
    return requests, times, wrong


def prices(market: Market, key: str = "local", additional: Sequence[str] = ()) -> str:
    """Return the price settings of a chain: feeds of trusted tokens, factories, and additional venues."""
    asset = {symbol: f'"{CHAIN}/erc20:{address.lower()}"' for symbol, address in market.symbols.items()}
    feeds = [
        f'{asset[symbol]} = {{feed = "{feed.lower()}", decimals = 8, heartbeat_s = 86400}}'
        for symbol, feed in market.feeds.items()
    ]
    factories = [market.deployer.contracts[f"UniswapV{version}Factory"].lower() for version in (2, 3)]
    lines: Sequence[str] = [
        f"[chainlink.{key}]",
        *feeds,
        f"[pools.{key}]",
        "venues = [",
        f'  {{family = "uniswap_v2", factory = "{factories[0]}"}},',
        f'  {{family = "uniswap_v3", factory = "{factories[1]}", fees = [100, 500, 3000, 10000]}},',
        *additional,
        "]",
        f"[pools.{key}.quotes]",
        f'{asset["WETH"]} = "4"',
        f'{asset["USDC"]} = "10000"',
        "",
    ]
    return "\n".join(lines)


def _other_venues(market: Market) -> list[str]:
    """Return settings of Uniswap V4, which has no pools here, and of families that are not on this chain."""
    weth, view = market.symbols["WETH"].lower(), market.deployer.contracts["StateView"].lower()
    fees = "fees = [100, 500, 3000, 10000], spacings = [1, 10, 60, 200]"
    here = [f'  {{family = "uniswap_v4", state_view = "{view}", wrapped = "{weth}", {fees}}},']
    absent = {family: "0x" + f"{number:02x}" * 20 for number, family in enumerate(ELSEWHERE, 0xA0)}
    options = {"slipstream": ", spacings = [1, 50, 100, 200, 2000]"}
    return here + [
        f'  {{family = "{family}", factory = "{at}"{options.get(family, "")}}},' for family, at in absent.items()
    ]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--tokens", type=int, default=1000, help="tokens, each with a pool")
    parser.add_argument("--repeat", type=int, default=3, help="times")


if __name__ == "__main__":
    main(__doc__, run, add)
