"""Prices from pools of Algebra on its published code, whose packages are fetched when this is run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.evm.prices.pools import Pools, build_pools
from chainfolio.localchain import install
from chainfolio.localchain.deploy import FOREVER, WAD, Deployer, checked, erc20_tokens, sqrt_price_x96
from chainfolio.localchain.evm import MAX, ZERO, Tx, created_address, words
from chainfolio.localchain.node import LocalNode
from tests.pricing.pool_chain import PoolChain, one_part, section

pytestmark = pytest.mark.node
MANIFEST = Path(__file__).with_name("algebra.json")
USDC = 10**6
MINT = "mint((address,address,int24,int24,uint256,uint256,uint256,uint256,address,uint256))"
SWAP = "exactInputSingle((address,address,address,uint256,uint256,uint256,uint160))"
CREATE = "createAndInitializePoolIfNecessary(address,address,uint160)"
FIND = "poolByPair(address,address)(address)"
STATE = "globalState()(uint160,int24)"


@pytest.fixture(scope="module")
def deployed() -> Iterator[PoolChain]:
    with LocalNode() as node:
        account = node.accounts[0]
        deployer = Deployer(node, account, int(node.rpc("eth_getTransactionCount", account, "pending"), 16))
        tokens = erc20_tokens(deployer, [account])
        deployer.settle()
        at = algebra(deployer, tokens["WETH"].address)
        deployer.contracts.update(at)
        for token in tokens.values():
            for name in ("NonfungiblePositionManager", "SwapRouter"):
                deployer.do(token.address, "approve(address,uint256)", at[name], MAX)
        deployer.settle()
        yield PoolChain(node, deployer, tokens)


def algebra(deployer: Deployer, weth: str) -> dict[str, str]:
    """Deploy Algebra and return its addresses by contract.

    The deployer of pools and the factory name each other, so the factory's address is computed before it exists.
    """
    folder = install.archives(MANIFEST, install.home() / "algebra") / "node_modules" / "@cryptoalgebra"

    def create(package: str, name: str, *addresses: str) -> str:
        path = folder / package / "artifacts" / "contracts" / f"{name}.sol" / f"{name}.json"
        code = json.loads(path.read_text())["bytecode"] + words(["address"] * len(addresses), *addresses)
        at = created_address(deployer.account, deployer.nonce)
        deployer.add(Tx(deployer.account, None, code, gas=15_000_000, label=name))
        deployer.settle()
        return at

    factory_address = created_address(deployer.account, deployer.nonce + 1)
    build_pools = create("core", "AlgebraPoolDeployer", factory_address, deployer.account)
    factory = create("core", "AlgebraFactory", build_pools)
    assert factory == factory_address
    manager = create("periphery", "NonfungiblePositionManager", factory, weth, ZERO, build_pools)
    router = create("periphery", "SwapRouter", factory, weth, build_pools)
    return {"AlgebraFactory": factory, "NonfungiblePositionManager": manager, "SwapRouter": router}


@pytest.fixture
def chain(deployed: PoolChain) -> Iterator[PoolChain]:
    """A pool of 100 ether and 200,000 dollars between half and twice the price, some blocks old."""
    with deployed.undone() as pool_chain:
        pool(pool_chain, 100 * WAD, 200_000 * USDC)
        pool_chain.node.mine(2)
        yield pool_chain


def pool(chain: PoolChain, weth: int, usdc: int) -> None:
    raws = {chain.tokens["WETH"].address: weth, chain.tokens["USDC"].address: usdc}
    token0, token1 = sorted(raws, key=lambda address: int(address, 16))
    manager, root = chain.contracts["NonfungiblePositionManager"], sqrt_price_x96(raws[token0], raws[token1])
    chain.deployer.do(manager, CREATE, token0, token1, root, gas=12_000_000)
    at = pool_at(chain)
    spacing = chain.node.call(at, "tickSpacing()(int24)")
    tick = chain.node.call(at, STATE)[1] // spacing * spacing
    width = 6960 // spacing * spacing  # a factor of two
    order = (token0, token1, tick - width, tick + width, raws[token0], raws[token1], 0, 0, chain.me, FOREVER)
    chain.do(manager, MINT, order)


def pool_at(chain: PoolChain) -> str:
    tokens = (chain.tokens[each].address for each in ("WETH", "USDC"))
    return checked(chain.deployer.read(chain.contracts["AlgebraFactory"], FIND, *tokens))


def swap(chain: PoolChain, sold: str, bought: str, raw: int) -> None:
    order = (chain.tokens[sold].address, chain.tokens[bought].address, chain.me, FOREVER, raw, 0, 0)
    chain.do(chain.contracts["SwapRouter"], SWAP, order)


def source(chain: PoolChain, floor: str = "10000") -> Pools:
    venue: dict[str, Any] = {"family": "algebra", "factory": chain.contracts["AlgebraFactory"].lower()}
    return build_pools(section(chain, {"USDC": floor}, venue), "here")


def test_the_price_of_an_algebra_pool_is_that_of_its_state_at_past_blocks(chain: PoolChain) -> None:
    for _ in range(2):
        swap(chain, "WETH", "USDC", WAD)
        swap(chain, "USDC", "WETH", 500 * USDC)
    usdc_first = int(chain.tokens["USDC"].address, 16) < int(chain.tokens["WETH"].address, 16)
    for height in range(chain.node.height - 3, chain.node.height + 1):
        root = chain.node.call(pool_at(chain), STATE, block=height)[0]
        per_first = Fraction(root**2, 2**192)
        relative, part, price = one_part(chain.quoted(source(chain), "WETH", height=height))
        assert part == chain.asset("USDC")
        assert price == (1 / per_first if usdc_first else per_first) * 10**12
        assert relative.detail == f"algebra pool {pool_at(chain).lower()}"
        assert relative.confidence == Decimal("0.7")
    assert chain.requests == 2


def test_selling_pays_between_the_prices_before_and_after_and_no_more_than_the_depth(chain: PoolChain) -> None:
    relative, _, first = one_part(chain.quoted(source(chain), "WETH"))
    had = chain.node.call(chain.tokens["USDC"].address, "balanceOf(address)(uint256)", chain.me)
    swap(chain, "WETH", "USDC", WAD)
    proceeds = chain.node.call(chain.tokens["USDC"].address, "balanceOf(address)(uint256)", chain.me) - had
    _, _, last = one_part(chain.quoted(source(chain), "WETH"))
    assert last * Fraction(98, 100) < Fraction(proceeds, USDC) < first
    assert last < first < last * Fraction(102, 100)
    assert relative.depth
    pool_balance = (
        chain.node.call(chain.tokens["USDC"].address, "balanceOf(address)(uint256)", pool_at(chain)) + proceeds
    )
    assert 0 < relative.depth[1] <= Fraction(pool_balance, USDC)


def test_an_algebra_pool_that_a_trade_moved_has_no_price_in_that_block(chain: PoolChain) -> None:
    swap(chain, "WETH", "USDC", 40 * WAD)
    (refusal,) = chain.quoted(source(chain), "WETH").refused
    assert "within the block: manipulated?" in refusal.reason
    chain.node.mine()
    assert chain.quoted(source(chain), "WETH").relative


def test_what_came_into_an_algebra_pool_in_the_block_and_a_gift_to_it_are_no_depth(chain: PoolChain) -> None:
    (first,) = chain.quoted(source(chain), "WETH").relative
    chain.do(chain.tokens["USDC"].address, "transfer(address,uint256)", pool_at(chain), 10**6 * USDC)
    chain.node.mine()
    (after_gift,) = chain.quoted(source(chain), "WETH").relative
    assert first.depth
    assert after_gift.depth
    assert after_gift.depth[1] < 4 * first.depth[1], "no more than the active liquidity stands for"
    pool(chain, 1_000 * WAD, 2_000_000 * USDC)
    (filled,) = chain.quoted(source(chain), "WETH").relative
    assert filled.depth == after_gift.depth
    assert "could pay enough" in chain.quoted(source(chain, "1000000"), "WETH").refused[0].reason
