"""Liquity: a trove's ether keeps its lots, LUSD is a loan, pools pay income, redeemed LUSD is sold."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import ZERO, topic_of
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH, Wallet
from tests.gains.scripted import Contract, Log, approve, contract
from tests.gains.test_contract_wallet import KINDS, any_wallet

pytestmark = pytest.mark.node
FILE = """key = "liquity_v1"
name = "Liquity"
families = ["liquity"]
[contracts.local]
borrower_operations = ["{}"]
stability_pool = ["{}"]
lqty_staking = ["{}"]
trove_manager = ["{}"]
active_pool = ["{}"]
surplus_pool = ["{}"]
price_feed = ["{}"]
lusd = ["{}"]
lqty = ["{}"]
"""
ADJUST = "adjustTrove(uint256,uint256,uint256,bool,address,address)"
OPEN = "openTrove(uint256,uint256,address,address)"
REDEEM = "redeemCollateral(uint256,address,address,address,uint256,uint256,uint256)"


def updated(troves: Contract, me: Wallet) -> Log:
    """The event of a trove's new collateral and debt, which are not read."""
    return troves.event("TroveUpdated(address,uint256,uint256,uint256,uint8)", topic_of(me.address), data=[1, 2, 3, 2])


def installed(stage: World, contracts: Sequence[Contract]) -> Contract:
    """Write the protocol file with contracts in the order of its roles, and return its new LUSD."""
    lusd = contract(stage, "LUSD")
    stage.rewards["LUSD"] = lusd.address
    addresses = [*(each.address for each in contracts), lusd.address, stage.rewards["LQTY"].lower()]
    stage.files["liquity_v1"] = FILE.format(*addresses)
    return lusd


@pytest.mark.parametrize("kind", KINDS)
def test_a_trove_is_opened_changed_and_closed_without_a_sale(stage: World, kind: str) -> None:
    troves, pool, staking, stub, active = (contract(stage) for _ in range(5))
    lusd = installed(stage, (troves, pool, staking, stub, active, stub, stub))
    me = any_wallet(stage, kind, ETH=40 * WAD)

    def lent(raw: int) -> None:
        me.ledger.buy("LUSD", raw, me.value("LUSD", raw))

    def repaid(raw: int) -> None:
        me.ledger.sell("LUSD", raw, me.ledger.cost_of("LUSD", raw))

    stub.act(me, "note()", steps=[lusd.note(lusd.give(me, stub, 500 * WAD))])
    lent(500 * WAD)  # a gift costs its value, too

    steps = [lusd.note(lusd.issue(me, 4_000 * WAD)), updated(troves, me)]
    changes = troves.act(me, OPEN, 1, 1, ZERO, ZERO, value=10 * WAD, steps=steps)
    assert changes == {ETH: -10 * WAD, "LUSD": 4_000 * WAD}
    lent(4_000 * WAD)
    troves.act(me, "addColl(address,address)", ZERO, ZERO, value=5 * WAD, steps=[updated(troves, me)])
    steps = [lusd.note(lusd.issue(me, 1_000 * WAD)), updated(troves, me)]
    troves.act(me, "withdrawLUSD(uint256,uint256,address,address)", 1, 1, ZERO, ZERO, steps=steps)
    lent(1_000 * WAD)
    steps = [lusd.note(lusd.issue(me, 800 * WAD)), updated(troves, me)]
    troves.act(me, ADJUST, 1, 0, WAD, True, ZERO, ZERO, value=2 * WAD, steps=steps)
    lent(800 * WAD)
    pool.act(me, "provideToSP(uint256,address)", 3_000 * WAD, ZERO, steps=[lusd.note(lusd.send(me, pool, 3_000 * WAD))])
    gains = [pool.pay(me, "LQTY", 3 * WAD), pool.pay(me, ETH, WAD // 10)]
    for raw in (1_000 * WAD, 2_000 * WAD):
        steps = [*gains, lusd.note(lusd.give(me, pool, raw))]
        changes = pool.act(me, "withdrawFromSP(uint256)", raw, steps=steps)
        assert changes == {ETH: WAD // 10, "LQTY": 3 * WAD, "LUSD": raw}
        me.ledger.earn(ETH, WAD // 10, me.value(ETH, WAD // 10))
        me.ledger.earn("LQTY", 3 * WAD, me.value("LQTY", 3 * WAD))
    approve(me, staking, "LQTY")
    staking.act(me, "stake(uint256)", 5 * WAD, steps=[staking.take(me, "LQTY", 5 * WAD)])
    gains = [lusd.note(lusd.give(me, staking, 7 * WAD)), staking.pay(me, ETH, WAD // 20)]
    staking.act(me, "unstake(uint256)", 0, steps=gains)
    me.ledger.earn("LUSD", 7 * WAD, me.value("LUSD", 7 * WAD))
    me.ledger.earn(ETH, WAD // 20, me.value(ETH, WAD // 20))
    staking.act(me, "unstake(uint256)", 5 * WAD, steps=[staking.pay(me, "LQTY", 5 * WAD)])
    steps = [lusd.note(lusd.burn(me, 300 * WAD)), updated(troves, me), active.note(active.pay(me, ETH, 3 * WAD))]
    troves.act(me, ADJUST, 1, 3 * WAD, 300 * WAD, False, ZERO, ZERO, steps=steps)
    repaid(300 * WAD)
    steps = [updated(troves, me), active.note(active.pay(me, ETH, WAD))]
    troves.act(me, "withdrawColl(uint256,address,address)", WAD, ZERO, ZERO, steps=steps)
    steps = [lusd.note(lusd.burn(me, 5_500 * WAD)), updated(troves, me), active.note(active.pay(me, ETH, 13 * WAD))]
    troves.act(me, "closeTrove()", steps=steps)
    repaid(5_500 * WAD)
    report, _ = stage.read(me)
    assert_equal(report, me)


@pytest.mark.parametrize(("kind", "has_router"), [(KINDS[0], False), (KINDS[0], True), (KINDS[1], False)])
def test_redeemed_lusd_is_sold_and_rewards_of_a_liquidation_are_income(
    stage: World, kind: str, has_router: bool
) -> None:
    troves, stub, manager, active = (contract(stage) for _ in range(4))
    lusd = installed(stage, (troves, stub, stub, manager, active, stub, stub))
    me = any_wallet(stage, kind, ETH=40 * WAD)
    debt, redeemed = 4_000 * WAD, 1_000 * WAD
    steps = [lusd.note(lusd.issue(me, debt)), updated(troves, me)]
    troves.act(me, OPEN, 1, 1, ZERO, ZERO, value=10 * WAD, steps=steps)
    me.ledger.buy("LUSD", debt, me.value("LUSD", debt))
    ether_out = int(me.value("LUSD", redeemed) / me.price(ETH))
    steps = [
        lusd.note(lusd.burn(me, redeemed)),
        manager.event("Redemption(uint256,uint256,uint256,uint256)", data=[1, 1, 1, 1]),
        active.note(active.pay(me, ETH, ether_out)),
    ]
    called = contract(stage) if has_router else manager
    called.act(me, REDEEM, 1, ZERO, ZERO, ZERO, 0, 0, 0, steps=steps)
    me.ledger.sell("LUSD", redeemed, me.value("LUSD", redeemed))
    me.ledger.buy(ETH, ether_out, me.value("LUSD", redeemed) + me.fee)
    if kind == KINDS[0]:  # a call of a wallet contract does not show that it liquidated
        steps = [active.note(active.pay(me, ETH, WAD // 10)), lusd.note(lusd.give(me, lusd, 200 * WAD))]
        manager.act(me, "liquidate(address)", ZERO, steps=steps)
        me.ledger.earn(ETH, WAD // 10, me.value(ETH, WAD // 10))
        me.ledger.earn("LUSD", 200 * WAD, me.value("LUSD", 200 * WAD))
    steps = [lusd.note(lusd.burn(me, 3_000 * WAD)), updated(troves, me), active.note(active.pay(me, ETH, 10 * WAD))]
    troves.act(me, "closeTrove()", steps=steps)
    me.ledger.sell("LUSD", 3_000 * WAD, me.ledger.cost_of("LUSD", 3_000 * WAD))
    report, _ = stage.read(me)
    assert_equal(report, me)
