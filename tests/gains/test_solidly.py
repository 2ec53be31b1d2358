"""Velodrome and Aerodrome: pool shares, also in a gauge, their fees and rewards, and growing locks."""

from __future__ import annotations

import pytest

from chainfolio.localchain.deploy import FOREVER, WAD
from chainfolio.localchain.evm import ZERO
from chainfolio.localchain.trade import set_price
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH
from tests.gains.scripted import Step, approve, contract, minted_by
from tests.gains.test_farms import earn

pytestmark = pytest.mark.node
FILE = """key = "aerodrome"
name = "Aerodrome"
families = ["voting_nft", "voting_rewards"]
[contracts.local]
voter = ["{}"]
voting_escrow = ["{}"]
"""
ADD = "addLiquidity(address,address,bool,uint256,uint256,uint256,uint256,address,uint256)"
REMOVE = "removeLiquidity(address,address,bool,uint256,uint256,uint256,address,uint256)"


def test_shares_of_a_pool_are_a_container_also_in_a_gauge(stage: World) -> None:
    router, pool, fees, gauge = contract(stage), contract(stage, "vAMM"), contract(stage), contract(stage)
    me = stage.wallet(WETH=10 * WAD, DAI=20_000 * WAD)
    weth, dai, address = me.assets["WETH"], me.assets["DAI"], me.address
    approve(me, router, "WETH", "DAI")
    deposits = {ETH: 0, "DAI": 0}
    for ether, stable, shares in ((3 * WAD, 6_000 * WAD, 100 * WAD), (2 * WAD, 4_200 * WAD, 60 * WAD)):
        transfers = [router.take_for(pool, me, "WETH", ether), router.take_for(pool, me, "DAI", stable)]
        steps = [*transfers, pool.note(pool.issue(me, shares))]
        changes = router.act(me, ADD, weth, dai, False, ether, stable, 0, 0, address, FOREVER, steps=steps)
        assert changes == {ETH: -ether, "DAI": -stable}
        deposits = {symbol: raw - changes[symbol] for symbol, raw in deposits.items()}
    gauge.act(me, "deposit(uint256)", 160 * WAD, steps=[pool.note(pool.send(me, gauge, 160 * WAD))])
    earn(me, gauge.act(me, "getReward(address)", address, steps=[gauge.pay(me, "AERO", 9 * WAD)]), "AERO")
    gauge.act(me, "withdraw(uint256)", 160 * WAD, steps=[pool.note(pool.give(me, gauge, 160 * WAD))])
    steps = [fees.note(fees.pay(me, "WETH", WAD // 100), fees.pay(me, "DAI", 25 * WAD))]
    for symbol, raw in pool.act(me, "claimFees()", steps=steps).items():
        me.ledger.earn(symbol, raw, me.value(symbol, raw))
    set_price(stage.node, stage.deployment, "ETH", 2_300 * 10**8)
    units = 160 * WAD
    for shares, ether, stable in ((40 * WAD, WAD, 2_700 * WAD), (120 * WAD, 35 * WAD // 10, 8_100 * WAD)):
        went_in = {symbol: raw * shares // units for symbol, raw in deposits.items()}
        deposits, units = {symbol: raw - went_in[symbol] for symbol, raw in deposits.items()}, units - shares
        payments = pool.pay(me, "WETH", ether), pool.pay(me, "DAI", stable)
        steps = [pool.note(pool.send(me, pool, shares), *payments)]
        me.withdraw(went_in, router.act(me, REMOVE, weth, dai, False, shares, 0, 0, address, FOREVER, steps=steps))
    set_price(stage.node, stage.deployment, "ETH", 2_000 * 10**8)
    report, _ = stage.read(me)
    assert_equal(report, me)


def test_a_lock_gives_all_that_was_added_back_and_votes_are_income(stage: World) -> None:
    voter, escrow, fees = (contract(stage) for _ in range(3))
    stage.files["aerodrome"] = FILE.format(voter.address, escrow.address)
    me = stage.wallet()
    stage.node.settle([minted_by(stage, "AERO", me.address, 900 * WAD)])
    me.ledger.buy("AERO", 900 * WAD, me.value("AERO", 900 * WAD))
    approve(me, escrow, "AERO")
    steps: list[Step] = [escrow.take(me, "AERO", 500 * WAD), escrow.move(ZERO, me.address, 7)]
    assert escrow.act(me, "createLock(uint256,uint256)", 500 * WAD, 1, steps=steps) == {"AERO": -500 * WAD}
    steps = [escrow.take(me, "AERO", 300 * WAD)]
    assert escrow.act(me, "increaseAmount(uint256,uint256)", 7, 300 * WAD, steps=steps) == {"AERO": -300 * WAD}
    claim, contracts = "(address[],address[][],uint256)", [fees.address]
    for function, symbol in (("claimFees", "DAI"), ("claimBribes", "AERO")):
        steps = [fees.note(fees.pay(me, symbol, 11 * WAD))]
        earn(me, voter.act(me, function + claim, contracts, [contracts], 7, steps=steps), symbol)
    rebase = 13 * WAD
    steps = [escrow.move(me.address, ZERO, 7), escrow.pay(me, "AERO", 800 * WAD + rebase)]
    assert escrow.act(me, "withdraw(uint256)", 7, steps=steps) == {"AERO": 800 * WAD + rebase}
    me.ledger.earn("AERO", rebase, me.value("AERO", rebase))
    report, records = stage.read(me)
    assert_equal(report, me)
    assert [each.type for each in records][-5:] == ["STAKE", "STAKE", "CLAIM", "CLAIM", "UNSTAKE"]
