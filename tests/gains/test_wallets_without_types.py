"""A contract wallet in lending, farms and locks: its calls have no types, so movements tell them."""

from __future__ import annotations

import pytest

from chainfolio.localchain.deploy import FOREVER, WAD
from chainfolio.localchain.evm import MAX, tx
from chainfolio.localchain.trade import set_price
from tests.gains.conftest import World, assert_equal
from tests.gains.test_contract_wallet import contract_wallet
from tests.gains.test_morpho import LOCK, SUPPLY, UNLOCK, WITHDRAW
from tests.gains.test_uniswap_v2 import ADD, REMOVE, Liquidity
from tests.protocols.compound_v2_deployment import venus
from tests.protocols.test_morpho_blue import SHARES, lend_and_borrow, opened

pytestmark = pytest.mark.node
DAY_S = 86_400


def test_morpho_of_a_contract_wallet(world: World) -> None:
    morpho, markets = opened(world.node, world.deployment)
    lend_and_borrow(world.node, world.deployment, morpho, list(markets.values()))
    world.pass_time(1)
    (market, params), *_ = markets.items()
    me = contract_wallet(world)
    address = me.address
    for symbol in ("USDC", "WETH"):
        me.do(tx(address, world.contract(symbol), "approve(address,uint256)", morpho, MAX))
    raw = 20_000 * 10**6
    me.do(tx(address, morpho, SUPPLY, params, raw, 0, address, b""))
    me.do(tx(address, morpho, LOCK, params, 8 * WAD, address, b""))
    world.pass_time(50 * DAY_S)
    set_price(world.node, world.deployment, "ETH", 2_300 * 10**8)
    me.do(tx(address, morpho, UNLOCK, params, 8 * WAD, address, address))
    shares, *_ = world.node.call(morpho, SHARES, market, address)
    (received,) = me.do(tx(address, morpho, WITHDRAW, params, 0, shares, address, address)).values()
    me.ledger.earn("USDC", received - raw, me.value("USDC", received - raw))
    report, _ = world.read(me)
    assert_equal(report, me)


def test_compound_of_a_contract_wallet(world: World) -> None:
    market = venus(world.node, world.deployment).markets["USDC"]
    me = contract_wallet(world)
    heidi, usdc = world.deployment.accounts["heidi"], world.contract("USDC")
    me.do(tx(me.address, usdc, "approve(address,uint256)", market, MAX))
    me.do(tx(me.address, market, "mint(uint256)", 30_000 * 10**6))
    world.node.settle([tx(heidi, usdc, "transfer(address,uint256)", market, 50_000 * 10**6)])
    shares = world.node.call(market, "balanceOf(address)(uint256)", me.address)
    (received,) = me.do(tx(me.address, market, "redeem(uint256)", shares)).values()
    me.ledger.earn("USDC", received - 30_000 * 10**6, me.value("USDC", received - 30_000 * 10**6))
    report, _ = world.read(me)
    assert_equal(report, me)


def test_a_stake_of_a_contract_wallet(world: World) -> None:
    me = contract_wallet(world)
    router, weth, usdc = world.contract("UniswapV2Router02"), world.contract("WETH"), world.contract("USDC")
    farm, pair = world.contract("StakingRewards"), world.contract("UniswapV2Pair WETH/USDC")
    liquidity = Liquidity(world, me)
    me.do(*(tx(me.address, token, "approve(address,uint256)", router, MAX) for token in (weth, usdc, pair)))
    me.do(tx(me.address, pair, "approve(address,uint256)", farm, MAX))
    amounts = (4 * 10**18, 10_000 * 10**6, 0, 0, me.address, FOREVER)
    liquidity.add(me.do(tx(me.address, router, ADD, weth, usdc, *amounts)))
    shares = liquidity.shares
    me.do(tx(me.address, farm, "stake(uint256)", shares))
    world.pass_time(DAY_S)
    assert me.do(tx(me.address, farm, "withdraw(uint256)", shares)) == {}
    went_in = liquidity.take(shares)
    me.withdraw(went_in, me.do(tx(me.address, router, REMOVE, weth, usdc, shares, 0, 0, me.address, FOREVER)))
    report, _ = world.read(me)
    assert_equal(report, me)
