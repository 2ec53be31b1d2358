"""Liquity: a trove's ether keeps its lots, its LUSD is a loan, and pools pay income."""

from __future__ import annotations

import pytest

from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import ZERO
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH
from tests.gains.scripted import approve, contract
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
surplus_pool = ["{}"]
price_feed = ["{}"]
lusd = ["{}"]
lqty = ["{}"]
"""
ADJUST = "adjustTrove(uint256,uint256,uint256,bool,address,address)"


@pytest.mark.parametrize("kind", KINDS)
def test_a_trove_is_opened_changed_and_closed_without_a_sale(stage: World, kind: str) -> None:
    troves, pool, staking, other = (contract(stage) for _ in range(4))
    lusd, lqty = contract(stage, "LUSD"), stage.rewards["LQTY"].lower()
    stage.rewards["LUSD"] = lusd.address
    contracts = (troves.address, pool.address, staking.address, *[other.address] * 3, lusd.address, lqty)
    stage.files["liquity_v1"] = FILE.format(*contracts)
    me = any_wallet(stage, kind, ETH=40 * WAD)

    def lent(raw: int) -> None:
        me.ledger.buy("LUSD", raw, me.worth("LUSD", raw))

    def repaid(raw: int) -> None:
        me.ledger.sell("LUSD", raw, me.ledger.cost_of("LUSD", raw))

    other.act(me, "note()", steps=[lusd.note(lusd.give(me, other, 500 * WAD))])
    lent(500 * WAD)  # a gift costs its value, too

    open_ = "openTrove(uint256,uint256,address,address)"
    moved = troves.act(me, open_, 1, 1, ZERO, ZERO, value=10 * WAD, steps=[lusd.note(lusd.issue(me, 4_000 * WAD))])
    assert moved == {ETH: -10 * WAD, "LUSD": 4_000 * WAD}
    lent(4_000 * WAD)
    troves.act(me, "addColl(address,address)", ZERO, ZERO, value=5 * WAD, steps=[])
    steps = [lusd.note(lusd.issue(me, 1_000 * WAD))]
    troves.act(me, "withdrawLUSD(uint256,uint256,address,address)", 1, 1, ZERO, ZERO, steps=steps)
    lent(1_000 * WAD)
    troves.act(me, ADJUST, 1, 0, WAD, True, ZERO, ZERO, value=2 * WAD, steps=[lusd.note(lusd.issue(me, 800 * WAD))])
    lent(800 * WAD)
    pool.act(me, "provideToSP(uint256,address)", 3_000 * WAD, ZERO, steps=[lusd.note(lusd.send(me, pool, 3_000 * WAD))])
    gains = [pool.pay(me, "LQTY", 3 * WAD), pool.pay(me, ETH, WAD // 10)]
    for raw in (1_000 * WAD, 2_000 * WAD):
        steps = [*gains, lusd.note(lusd.give(me, pool, raw))]
        moved = pool.act(me, "withdrawFromSP(uint256)", raw, steps=steps)
        assert moved == {ETH: WAD // 10, "LQTY": 3 * WAD, "LUSD": raw}
        me.ledger.earn(ETH, WAD // 10, me.worth(ETH, WAD // 10))
        me.ledger.earn("LQTY", 3 * WAD, me.worth("LQTY", 3 * WAD))
    approve(me, staking, "LQTY")
    staking.act(me, "stake(uint256)", 5 * WAD, steps=[staking.take(me, "LQTY", 5 * WAD)])
    gains = [lusd.note(lusd.give(me, staking, 7 * WAD)), staking.pay(me, ETH, WAD // 20)]
    staking.act(me, "unstake(uint256)", 0, steps=gains)
    me.ledger.earn("LUSD", 7 * WAD, me.worth("LUSD", 7 * WAD))
    me.ledger.earn(ETH, WAD // 20, me.worth(ETH, WAD // 20))
    staking.act(me, "unstake(uint256)", 5 * WAD, steps=[staking.pay(me, "LQTY", 5 * WAD)])
    steps = [lusd.note(lusd.burn(me, 300 * WAD)), troves.pay(me, ETH, 3 * WAD)]
    troves.act(me, ADJUST, 1, 3 * WAD, 300 * WAD, False, ZERO, ZERO, steps=steps)
    repaid(300 * WAD)
    troves.act(me, "withdrawColl(uint256,address,address)", WAD, ZERO, ZERO, steps=[troves.pay(me, ETH, WAD)])
    steps = [lusd.note(lusd.burn(me, 5_500 * WAD)), troves.pay(me, ETH, 13 * WAD)]
    troves.act(me, "closeTrove()", steps=steps)
    repaid(5_500 * WAD)
    report, _ = stage.read(me)
    assert_equal(report, me)
