"""Prices and depths from pools of Uniswap V4 on its published code, in native coins too."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest

from chainfolio.adapters.evm.prices.pools import Pools, build_pools
from chainfolio.adapters.evm.protocols.uniswap_v4 import pool_id
from chainfolio.localchain.deploy import Deployer, Deployment, deploy
from chainfolio.localchain.evm import ZERO
from chainfolio.localchain.node import LocalNode
from chainfolio.tick_math import sqrt_price
from tests.pricing.pool_chain import PoolChain, one_part, section
from tests.protocols.uniswap_v4_deployment import HIGHEST_PRICE, KEY, LOWEST_PRICE, PoolKey, UniswapV4, uniswap_v4

pytestmark = pytest.mark.node
World = tuple[PoolChain, UniswapV4]


@pytest.fixture(scope="module")
def deployed() -> Iterator[World]:
    with LocalNode() as node:
        deployment: Deployment = deploy(node)
        with node.by_hand():
            v4 = uniswap_v4(node, deployment)
        account = deployment.accounts["deployer"]
        deployer = Deployer(node, account, int(node.rpc("eth_getTransactionCount", account, "pending"), 16))
        deployer.contracts.update(deployment.contracts)
        chain = PoolChain(node, deployer, dict(deployment.tokens))
        swapper = deployer.create("PoolSwapTest", "PoolSwapTest", ("address",), v4.pools)
        for symbol in ("USDC", "DAI"):
            deployer.do(chain.tokens[symbol].address, "approve(address,uint256)", swapper, 2**256 - 1)
        deployer.settle()
        node.mine()
        yield chain, v4


@pytest.fixture
def world(deployed: World) -> Iterator[World]:
    with deployed[0].undone():
        yield deployed


def source(chain: PoolChain, v4: UniswapV4, floor: str = "1") -> Pools:
    venue = {
        "family": "uniswap_v4",
        "state_view": v4.view.lower(),
        "wrapped": chain.tokens["WETH"].address.lower(),
        "fees": [500, 3000],
        "spacings": [10, 60],
    }
    return build_pools(section(chain, {"USDC": floor}, venue), "here")


def swap(chain: PoolChain, key: PoolKey, zero_for_one: bool, raw: int, limit: int | None = None) -> None:
    signature = f"swap({KEY},(bool,int256,uint160),(bool,bool),bytes)"
    limit = limit or (LOWEST_PRICE if zero_for_one else HIGHEST_PRICE)
    order = (zero_for_one, -raw, limit)
    value = raw if key[0] == ZERO and zero_for_one else 0
    chain.deployer.do(chain.contracts["PoolSwapTest"], signature, key, order, (False, False), b"", value=value)
    chain.deployer.settle()


def test_the_price_of_a_pool_is_that_of_its_slot0_and_a_wrapped_coin_is_traded_as_the_coin(world: World) -> None:
    chain, v4 = world
    quotes = chain.quoted(source(chain, v4), "DAI", "WETH")
    for relative, key, decimals in zip(quotes.relative, reversed(v4.keys), (18, 18), strict=True):
        root = chain.node.call(v4.view, "getSlot0(bytes32)(uint160,int24,uint24,uint24)", pool_id(lower(key)))[0]
        usdc_first = key[0].lower() == chain.tokens["USDC"].address.lower()
        price = Fraction(2**192, root**2) if usdc_first else Fraction(root**2, 2**192)
        assert relative.parts == ((chain.asset("USDC"), price * 10**decimals / 10**6),)
    assert [relative.asset for relative in quotes.relative] == [chain.asset("DAI"), chain.asset("WETH")]
    assert chain.requests == 2


def test_a_pool_could_pay_what_a_trade_to_the_end_of_its_tick_spacing_pays(world: World) -> None:
    chain, v4 = world
    relative, _, _ = one_part(chain.quoted(source(chain, v4), "DAI"))
    assert relative.depth is not None
    usdc, key = chain.tokens["USDC"].address, v4.keys[1]
    sells_first = key[0] != usdc  # DAI is sold: is it the first?
    tick = chain.node.call(v4.view, "getSlot0(bytes32)(uint160,int24,uint24,uint24)", pool_id(lower(key)))[1]
    end = tick // 60 * 60 + (0 if sells_first else 60)
    before = chain.node.call(usdc, "balanceOf(address)(uint256)", chain.me)
    swap(chain, key, sells_first, 10**24, sqrt_price(end))
    proceeds = chain.node.call(usdc, "balanceOf(address)(uint256)", chain.me) - before
    assert proceeds > 10**6
    assert abs(relative.depth[1] * 10**6 - proceeds) <= 1
    assert not chain.quoted(source(chain, v4, str(relative.depth[1].__ceil__() + 1)), "DAI").relative


def test_what_could_be_paid_counts_as_far_as_the_token_is_there_to_be_bought(world: World) -> None:
    """A pool that holds the quote token alone is a bid far below the token's price."""
    chain, v4 = world
    usdc, key = chain.tokens["USDC"].address, v4.keys[1]
    buys_first = key[0] != usdc  # DAI is bought: is it the first?
    tick = chain.node.call(v4.view, "getSlot0(bytes32)(uint160,int24,uint24,uint24)", pool_id(lower(key)))[1]
    end = sqrt_price(tick // 60 * 60 + 60) - 1 if buys_first else sqrt_price(tick // 60 * 60) + 1
    swap(chain, key, not buys_first, 10**24, end)
    chain.node.mine()
    quotes = chain.quoted(source(chain, v4), "DAI")
    assert not quotes.relative
    assert "could pay enough" in quotes.refused[0].reason


def test_a_pool_that_a_trade_moved_has_no_price_in_that_block(world: World) -> None:
    chain, v4 = world
    assert one_part(chain.quoted(source(chain, v4), "WETH"))
    swap(chain, v4.keys[0], True, 40 * 10**18)
    quotes = chain.quoted(source(chain, v4), "WETH")
    assert not quotes.relative
    assert any(reason in quotes.refused[0].reason for reason in ("manipulated?", "could pay enough"))


def lower(key: PoolKey) -> PoolKey:
    return key[0].lower(), key[1].lower(), key[2], key[3], key[4]
