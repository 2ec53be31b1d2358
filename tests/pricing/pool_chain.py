"""A local node with tokens, and pools of the published contracts to trade in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from chainfolio.adapters.evm.chain import EvmChain
from chainfolio.adapters.evm.endpoint import EvmEndpoint
from chainfolio.adapters.evm.facts import load
from chainfolio.adapters.evm.node import Node
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.assets import Asset
from chainfolio.engine.snapshots.mixed_reads import with_mixed_reads
from chainfolio.environment import Environment
from chainfolio.localchain.deploy import (
    FOREVER,
    MINT_POSITION,
    WAD,
    Deployer,
    Token,
    checked,
    erc20_tokens,
    sqrt_price_x96,
)
from chainfolio.localchain.evm import MAX, ZERO
from chainfolio.localchain.node import LocalNode
from chainfolio.plans import run_batched
from chainfolio.price_sources import PriceSource, Quotes, RelativePrice
from chainfolio.pricing.http_reads import Http
from chainfolio.transport.http import HttpTransport
from tests.evm.anvil import LOCAL

CHAIN = "eip155:31337"
TICKS = {100: 1, 500: 10, 3000: 60, 10_000: 200}  # fee -> tick spacing


@dataclass(slots=True)
class PoolChain:
    """A local chain on which `me` holds every token.

    Each transaction is mined at once, except within `in_one_block`.
    """

    node: LocalNode
    deployer: Deployer
    tokens: dict[str, Token]
    requests: int = 0
    _held_back: bool = False
    contracts: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.contracts = self.deployer.contracts

    @property
    def me(self) -> str:
        return self.deployer.account

    def asset(self, symbol: str) -> Asset:
        return Asset(CHAIN, "erc20", self.tokens[symbol].address.lower())

    def token(self, symbol: str, decimals: int = 18, supply: int = 10**9) -> Token:
        """A new token, all of it mine, that the routers may take."""
        at = self.deployer.create(symbol, "Token", ("string", "string", "uint8"), symbol, symbol, decimals)
        self.tokens[symbol] = token = Token(at, symbol, decimals)
        self.deployer.do(at, "mint(address,uint256)", self.me, token.units(supply))
        self.trusting(symbol)
        return token

    def trusting(self, symbol: str) -> None:
        for spender in ("UniswapV2Router02", "NonfungiblePositionManager", "SwapRouter"):
            if spender in self.contracts:
                self.deployer.do(self.tokens[symbol].address, "approve(address,uint256)", self.contracts[spender], MAX)

    def do(self, to: str, signature: str, *args: Any) -> None:
        self.deployer.do(to, signature, *args)
        if not self._held_back:
            self.deployer.settle()

    @contextmanager
    def in_one_block(self):  # type: ignore[no-untyped-def]
        """Mine the transactions sent within the context in one block."""
        self.deployer.settle()
        self._held_back = True
        yield
        self._held_back = False
        height = self.node.height
        self.deployer.settle()
        assert self.node.height == height + 1

    @contextmanager
    def undone(self) -> Iterator[PoolChain]:
        """Revert the chain to its state before the context."""
        before, nonce, tokens = self.node.snapshot(), self.deployer.nonce, dict(self.tokens)
        yield self
        self.node.revert(before)
        self.deployer.nonce = nonce
        self.tokens.clear()
        self.tokens.update(tokens)

    # --- Uniswap V2 ---------------------------------------------------------------------------------------------------

    def pair(self, symbol_a: str, raw_a: int, symbol_b: str, raw_b: int) -> str:
        """Add liquidity to a pair, which the router creates if it does not exist; return its address."""
        a, b = self.tokens[symbol_a].address, self.tokens[symbol_b].address
        self.do(
            self.contracts["UniswapV2Router02"],
            "addLiquidity(address,address,uint256,uint256,uint256,uint256,address,uint256)",
            a,
            b,
            raw_a,
            raw_b,
            0,
            0,
            self.me,
            FOREVER,
        )
        return self.pair_at(symbol_a, symbol_b) if not self._held_back else ""

    def pair_at(self, symbol_a: str, symbol_b: str) -> str:
        a, b = self.tokens[symbol_a].address, self.tokens[symbol_b].address
        pair: str = self.node.call(self.contracts["UniswapV2Factory"], "getPair(address,address)(address)", a, b)
        return pair

    def swap(self, sold: str, bought: str, raw: int) -> None:
        """Sell in the pair."""
        path = [self.tokens[sold].address, self.tokens[bought].address]
        signature = "swapExactTokensForTokens(uint256,uint256,address[],address,uint256)"
        self.do(self.contracts["UniswapV2Router02"], signature, raw, 0, path, self.me, FOREVER)

    # --- Uniswap V3 ---------------------------------------------------------------------------------------------------

    def pool(self, symbol_a: str, raw_a: int, symbol_b: str, raw_b: int, fee: int = 3000, width: int = 0) -> str:
        """Create a pool at the price at which both amounts are worth the same; return its address.

        The liquidity spans all prices, or `width` tick spacings around the price.
        """
        raws = {self.tokens[symbol_a].address: raw_a, self.tokens[symbol_b].address: raw_b}
        token0, token1 = sorted(raws, key=lambda address: int(address, 16))
        manager, root = self.contracts["NonfungiblePositionManager"], sqrt_price_x96(raws[token0], raws[token1])
        self.do(
            manager, "createAndInitializePoolIfNecessary(address,address,uint24,uint160)", token0, token1, fee, root
        )
        pool = self.pool_at(symbol_a, symbol_b, fee)
        spacing = TICKS[fee]
        tick = self.node.call(pool, "slot0()(uint160,int24,uint16,uint16,uint16,uint8,bool)")[1] // spacing * spacing
        lower, upper = (tick - width * spacing, tick + (width + 1) * spacing) if width else (-887_272, 887_272)
        lower, upper = -(-lower // spacing) * spacing, upper // spacing * spacing
        self.do(
            manager,
            MINT_POSITION,
            (token0, token1, fee, lower, upper, raws[token0], raws[token1], 0, 0, self.me, FOREVER),
        )
        return pool

    def pool_at(self, symbol_a: str, symbol_b: str, fee: int = 3000) -> str:
        find = "getPool(address,address,uint24)(address)"
        a, b = self.tokens[symbol_a].address, self.tokens[symbol_b].address
        return checked(self.deployer.read(self.contracts["UniswapV3Factory"], find, a, b, fee))

    def swap_v3(self, sold: str, bought: str, raw: int, fee: int = 3000) -> None:
        order = (self.tokens[sold].address, self.tokens[bought].address, fee, self.me, FOREVER, raw, 0, 0)
        signature = "exactInputSingle((address,address,uint24,address,uint256,uint256,uint256,uint160))"
        self.do(self.contracts["SwapRouter"], signature, order)

    # --- prices -------------------------------------------------------------------------------------------------------

    def quoted(self, source: PriceSource, *symbols: str | Asset, height: int | None = None) -> Quotes:
        """Return the quotes of a source for tokens at `height`, or at the latest block.

        `requests` is then the number of requests to the node.
        """
        assets = [self.asset(each) if isinstance(each, str) else each for each in symbols]
        quotes: Quotes = self.run_plan(lambda block: source.prices(assets, block), height)
        return quotes

    def run_plan(self, plan_at: Any, height: int | None = None) -> Any:
        """Return the result of a plan at `height`, or at the latest block."""

        async def go() -> Any:
            facts, environment = load(LOCAL), Environment()
            endpoint = EvmEndpoint(self.node.url, HttpTransport(), environment)
            evm_chain = EvmChain(facts, Node(facts, [endpoint], environment), EvmSettings(rpc=[self.node.url]))
            chain = with_mixed_reads(evm_chain, Http(environment))
            try:
                block = await chain.block(self.node.height if height is None else height)
                before = chain.requests
                reports = await run_batched({"": plan_at(block)}, lambda reads: chain.answer(reads, block))
                self.requests = chain.requests - before
                if (error := reports[""].error) is not None:
                    raise error
                return reports[""].result
            finally:
                await chain.close()

        return asyncio.run(go())


def opened(node: LocalNode) -> PoolChain:
    """Tokens, and factories without pools."""
    account = node.accounts[0]
    deployer = Deployer(node, account, int(node.rpc("eth_getTransactionCount", account, "pending"), 16))
    tokens = erc20_tokens(deployer, [account])
    weth = tokens["WETH"].address
    factory = deployer.create("UniswapV2Factory", "UniswapV2Factory", ("address",), account)
    deployer.create("UniswapV2Router02", "UniswapV2Router02", ("address", "address"), factory, weth)
    factory = deployer.create("UniswapV3Factory", "UniswapV3Factory")
    deployer.do(factory, "enableFeeAmount(uint24,int24)", 100, 1)
    two = ("address", "address")
    deployer.create("NonfungiblePositionManager", "NonfungiblePositionManager", (*two, "address"), factory, weth, ZERO)
    deployer.create("SwapRouter", "SwapRouter", two, factory, weth)
    chain = PoolChain(node, deployer, tokens)
    for symbol in tokens:
        chain.trusting(symbol)
    deployer.settle()
    return chain


def one_part(quotes: Quotes) -> tuple[RelativePrice, Asset, Fraction]:
    """The only price, in its only part."""
    (relative,) = quotes.relative
    ((part, amount),) = relative.parts
    return relative, part, amount


def section(chain: PoolChain, quotes: Mapping[str, str], *venues: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    """Return a section of pools: quote tokens with their floors, and venues (by default those of Uniswap)."""
    return {
        "quotes": {str(chain.asset(symbol)): floor for symbol, floor in quotes.items()},
        "venues": list(venues) or uniswap(chain),
        **settings,
    }


def uniswap(chain: PoolChain, fees: Sequence[int] = (100, 500, 3000, 10_000)) -> list[dict[str, Any]]:
    v2, v3 = (chain.contracts[f"UniswapV{version}Factory"].lower() for version in (2, 3))
    return [{"family": "uniswap_v2", "factory": v2}, {"family": "uniswap_v3", "factory": v3, "fees": list(fees)}]


__all__ = ["CHAIN", "WAD", "PoolChain", "one_part", "opened", "section", "uniswap"]
