"""Pendle: standardized yield is a share whose yield is income, and a lock keeps the lots of its token."""

from __future__ import annotations

import pytest

from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import MAX, tx
from tests.gains.conftest import World, assert_equal
from tests.protocols.pendle_deployment import WEEK_S, Pendle, pendle

pytestmark = pytest.mark.node
DEPOSIT, REDEEM = "deposit(address,address,uint256,uint256)", "redeem(address,uint256,address,uint256,bool)"


@pytest.fixture(scope="module")
def contracts(world: World) -> Pendle:
    with world.node.by_hand():
        deployed = pendle(world.node, world.deployment, current=True)
    world.pass_time(1)
    world.rewards["PENDLE"] = deployed["PENDLE"]
    return deployed


def test_the_yield_of_standardized_shares_is_income(world: World, contracts: Pendle) -> None:
    me = world.wallet(DAI=20_000 * WAD)
    dai, address, heidi = world.contract("DAI"), me.address, world.deployment.accounts["heidi"]
    me.do(tx(address, dai, "approve(address,uint256)", contracts["SY"], MAX))
    deposited = 0
    for raw in (9_000 * WAD, 1_000 * WAD):
        assert me.do(tx(address, contracts["SY"], DEPOSIT, address, contracts["DAI"], raw, 0)) == {"DAI": -raw}
        deposited += raw
        world.node.settle([tx(heidi, dai, "transfer(address,uint256)", contracts["vault"], 9_000 * WAD)])
    for part in (3, 1):
        shares = world.node.call(contracts["SY"], "balanceOf(address)(uint256)", address)
        went_in = deposited * (shares // part) // shares
        deposited -= went_in
        received = me.do(tx(address, contracts["SY"], REDEEM, address, shares // part, contracts["DAI"], 0, False))[
            "DAI"
        ]
        assert received > went_in
        me.ledger.earn("DAI", received - went_in, me.value("DAI", received - went_in))
    report, records = world.read(me)
    assert_equal(report, me)
    types = [each.type for each in records if each.recipient == contracts["SY"]]
    assert types == ["DEPOSIT", "DEPOSIT", "WITHDRAW", "WITHDRAW"]


def test_a_lock_keeps_the_lots_of_its_token(world: World, contracts: Pendle) -> None:
    me = world.wallet()
    address, node = me.address, world.node
    node.settle([tx(node.accounts[0], contracts["PENDLE"], "mint(address,uint256)", address, 1_000 * WAD)])
    me.ledger.buy("PENDLE", 1_000 * WAD, me.value("PENDLE", 1_000 * WAD))
    unlock_s = int(node.block()["timestamp"], 16) // WEEK_S * WEEK_S + 10 * WEEK_S
    me.do(tx(address, contracts["PENDLE"], "approve(address,uint256)", contracts["escrow"], MAX))
    for raw in (300 * WAD, 200 * WAD):
        call = "increaseLockPosition(uint128,uint128)"
        assert me.do(tx(address, contracts["escrow"], call, raw, unlock_s)) == {"PENDLE": -raw}
        unlock_s += WEEK_S
    world.pass_time(14 * WEEK_S)
    assert me.do(tx(address, contracts["escrow"], "withdraw()")) == {"PENDLE": 500 * WAD}
    report, records = world.read(me)
    assert_equal(report, me)
    assert [each.type for each in records if each.recipient == contracts["escrow"]] == ["STAKE", "STAKE", "INTERACTION"]
    world.files["pendle"] = contracts.file
    report, records = world.read(me)
    del world.files["pendle"]
    assert_equal(report, me)
    assert [each.type for each in records if each.recipient == contracts["escrow"]] == ["STAKE", "STAKE", "UNSTAKE"]
