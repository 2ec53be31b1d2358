"""Compound V2 and its forks: interest by parts of the shares and rewards are income, also of the coin."""

from __future__ import annotations

import pytest

from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import tx
from chainfolio.localchain.trade import set_price
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH, Wallet
from tests.gains.test_farms import earn
from tests.protocols.compound_v2_deployment import REWARD, SPEEDS, Venus, supply, venus

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def contracts(world: World) -> Venus:
    deployed = venus(world.node, world.deployment)
    name = b"XVS".ljust(31, b"\0") + bytes([6])  # a short text, as contracts store it
    world.node.rpc("anvil_setStorageAt", REWARD, hex(4), "0x" + name.hex())
    world.rewards["XVS"] = REWARD
    return deployed


def gift(world: World, market: str) -> None:
    """A market earns some ether at once, for years of interest would be too many blocks."""
    balance = int(world.node.rpc("eth_getBalance", market, "latest"), 16)
    world.node.rpc("anvil_setBalance", market, hex(balance + 10**18))


def redeem(world: World, me: Wallet, market: str, deposits: dict[str, int], symbol: str, part: int) -> None:
    """Redeem one `part`-th of the shares; the amount beyond its deposit is income."""
    shares = world.node.call(market, "balanceOf(address)(uint256)", me.address)
    went_in = deposits[symbol] * (shares // part) // shares
    deposits[symbol] -= went_in
    changes = me.do(tx(me.address, market, "redeem(uint256)", shares // part))
    assert changes[symbol] > went_in
    me.ledger.earn(symbol, changes[symbol] - went_in, me.value(symbol, changes[symbol] - went_in))


def test_interest_of_a_market_of_the_coin_and_rewards_are_income(world: World, contracts: Venus) -> None:
    market = contracts.markets["ETH"]
    owner = world.deployment.accounts["deployer"]
    world.node.settle([tx(owner, contracts.comptroller, SPEEDS, [market], [WAD // 100], [0])])
    me = world.wallet(ETH=20 * 10**18)
    deposits = {ETH: 0}
    for raw in (4 * 10**18, 3 * 10**18):
        assert me.do(tx(me.address, market, "mint()", value=raw)) == {ETH: -raw}
        deposits[ETH] += raw
    world.node.mine(10)
    earn(me, me.do(tx(me.address, contracts.comptroller, "claimVenus(address)", me.address)), "XVS")
    gift(world, market)
    set_price(world.node, world.deployment, "ETH", 2_300 * 10**8)
    redeem(world, me, market, deposits, ETH, 3)
    gift(world, market)
    redeem(world, me, market, deposits, ETH, 2)
    shares = world.node.call(market, "balanceOf(address)(uint256)", me.address)
    underlying = 10**18
    before = deposits[ETH]
    (received,) = me.do(tx(me.address, market, "redeemUnderlying(uint256)", underlying)).values()
    burnt = shares - world.node.call(market, "balanceOf(address)(uint256)", me.address)
    deposits[ETH] -= (went_in := before * burnt // shares)
    me.ledger.earn(ETH, received - went_in, me.value(ETH, received - went_in))
    redeem(world, me, market, deposits, ETH, 1)
    report, _ = world.read(me)
    assert_equal(report, me)


def test_a_loan_in_the_coin_is_no_gain_and_its_interest_is_a_fee(world: World, contracts: Venus) -> None:
    me, alice = world.wallet(USDC=50_000 * 10**6), world.deployment.accounts["alice"]
    usdc, coin, address = contracts.markets["USDC"], contracts.markets["ETH"], me.address
    world.node.settle(supply(alice, contracts, world.deployment, "ETH", 30 * 10**18))
    me.do(*supply(address, contracts, world.deployment, "USDC", 40_000 * 10**6))
    lent = 2 * 10**18
    assert me.do(tx(address, coin, "borrow(uint256)", lent)) == {ETH: lent}
    me.ledger.buy(ETH, lent, me.value(ETH, lent))
    world.node.mine(300)
    while debt := world.node.call(coin, "borrowBalanceCurrent(address)(uint256)", address):  # a block adds a little
        assert me.do(tx(address, coin, "repayBorrow()", value=debt)) == {ETH: -debt}
        me.ledger.sell(ETH, lent, me.ledger.cost_of(ETH, lent))
        me.ledger.sell(ETH, debt - lent, me.value(ETH, debt - lent))
        lent = 0
    deposits = {"USDC": 40_000 * 10**6}
    heidi, token = world.deployment.accounts["heidi"], world.contract("USDC")
    world.node.settle([tx(heidi, token, "transfer(address,uint256)", usdc, 900 * 10**6)])
    redeem(world, me, usdc, deposits, "USDC", 1)
    report, _ = world.read(me)
    assert_equal(report, me)
