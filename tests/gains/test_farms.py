"""Farms and stakes: the staked share comes back with what it stands for, and rewards are income."""

from __future__ import annotations

import pytest

from chainfolio.localchain.evm import MAX, tx
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH, Wallet
from tests.gains.test_uniswap_v2 import ADD, REMOVE, Liquidity, approved, swap_by_others

pytestmark = pytest.mark.node
DAY_S = 86_400
FORK = (
    'key = "fork"\nname = "Fork"\nfamilies = ["staking_rewards"]\nis_fork = true\n[contracts.local]\nstaking = ["{}"]\n'
)


def with_shares(world: World) -> Liquidity:
    """A wallet with shares of the pair of ether and USDC."""
    liquidity = Liquidity(world, world.wallet(WETH=10 * 10**18, USDC=50_000 * 10**6))
    approved(world, liquidity.me, "WETH", "USDC", "UniswapV2Pair WETH/USDC")
    weth, usdc = world.contract("WETH"), world.contract("USDC")
    liquidity.add(liquidity.call(ADD, weth, usdc, 4 * 10**18, 10_000 * 10**6, 0, 0))
    return liquidity


def remove_all(liquidity: Liquidity) -> None:
    world, shares = liquidity.world, liquidity.shares
    went_in = liquidity.take(shares)
    changes = liquidity.call(REMOVE, world.contract("WETH"), world.contract("USDC"), shares, 0, 0)
    liquidity.me.withdraw(went_in, changes)


def earn(me: Wallet, changes: dict[str, int], symbol: str) -> None:
    assert changes.keys() == {symbol}
    me.ledger.earn(symbol, changes[symbol], me.value(symbol, changes[symbol]))


def test_rewards_of_a_farm_are_income_and_the_stake_is_not(world: World) -> None:
    liquidity = with_shares(world)
    me, chef, pair = liquidity.me, world.contract("MasterChef"), world.contract("UniswapV2Pair WETH/USDC")
    address, shares = me.address, liquidity.shares
    me.do(tx(address, pair, "approve(address,uint256)", chef, MAX))
    me.do(tx(address, chef, "deposit(uint256,uint256)", 0, shares // 2))
    world.node.mine(5)
    earn(me, me.do(tx(address, chef, "deposit(uint256,uint256)", 0, shares // 4)), "SUSHI")
    world.node.mine(5)
    earn(me, me.do(tx(address, chef, "withdraw(uint256,uint256)", 0, shares // 3)), "SUSHI")
    earn(me, me.do(tx(address, chef, "deposit(uint256,uint256)", 0, 0)), "SUSHI")  # a harvest
    earn(me, me.do(tx(address, chef, "withdraw(uint256,uint256)", 0, 0)), "SUSHI")  # another one
    staked = shares // 2 + shares // 4 - shares // 3
    earn(me, me.do(tx(address, chef, "withdraw(uint256,uint256)", 0, staked)), "SUSHI")
    assert liquidity.shares == shares
    remove_all(liquidity)
    report, _ = world.read(me)
    assert_equal(report, me)


def test_rewards_of_staking_are_income_and_the_stake_is_not(world: World) -> None:
    liquidity = with_shares(world)
    me, farm, pair = liquidity.me, world.contract("StakingRewards"), world.contract("UniswapV2Pair WETH/USDC")
    address, shares = me.address, liquidity.shares
    me.do(tx(address, pair, "approve(address,uint256)", farm, MAX))
    me.do(tx(address, farm, "stake(uint256)", shares))
    world.pass_time(DAY_S)
    earn(me, me.do(tx(address, farm, "getReward()")), "DAI")
    swap_by_others(world, "USDC", "WETH", 70_000 * 10**6)
    world.pass_time(DAY_S)
    assert me.do(tx(address, farm, "withdraw(uint256)", shares // 2)) == {}
    world.pass_time(DAY_S)
    earn(me, me.do(tx(address, farm, "exit()")), "DAI")
    assert liquidity.shares == shares
    remove_all(liquidity)
    report, _ = world.read(me)
    assert_equal(report, me)
    assert liquidity.deposits == {ETH: 0, "USDC": 0}
    world.files["fork"] = FORK.format(farm.lower())
    report, records = world.read(me)
    del world.files["fork"]
    assert_equal(report, me)
    assert [each.type for each in records if each.recipient == farm.lower()] == ["STAKE", "CLAIM", "UNSTAKE", "UNSTAKE"]
