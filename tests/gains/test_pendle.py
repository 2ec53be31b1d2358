"""Pendle: standardized yield is a share whose yield is income, and a lock keeps the lots of what it took."""

from __future__ import annotations

import pytest

from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import MAX, tx
from tests.gains.conftest import World, assert_equal
from tests.protocols.pendle_deployment import WEEK_S, Pendle, pendle

pytestmark = pytest.mark.node
DEPOSIT, REDEEM = "deposit(address,address,uint256,uint256)", "redeem(address,uint256,address,uint256,bool)"


@pytest.fixture(scope="module")
def made(world: World) -> Pendle:
    with world.node.by_hand():
        found = pendle(world.node, world.deployment, current=True)
    world.pass_time(1)
    world.rewards["PENDLE"] = found["PENDLE"]
    return found


def test_the_yield_of_standardized_shares_is_income(world: World, made: Pendle) -> None:
    me = world.wallet(DAI=20_000 * WAD)
    dai, address, heidi = world.contract("DAI"), me.address, world.deployment.accounts["heidi"]
    me.do(tx(address, dai, "approve(address,uint256)", made["SY"], MAX))
    inside = 0
    for raw in (9_000 * WAD, 1_000 * WAD):
        assert me.do(tx(address, made["SY"], DEPOSIT, address, made["DAI"], raw, 0)) == {"DAI": -raw}
        inside += raw
        world.node.settle([tx(heidi, dai, "transfer(address,uint256)", made["vault"], 9_000 * WAD)])
    for part in (3, 1):
        shares = world.node.call(made["SY"], "balanceOf(address)(uint256)", address)
        went_in = inside * (shares // part) // shares
        inside -= went_in
        moved = me.do(tx(address, made["SY"], REDEEM, address, shares // part, made["DAI"], 0, False))["DAI"]
        assert moved > went_in
        me.ledger.earn("DAI", moved - went_in, me.worth("DAI", moved - went_in))
    report, records = world.read(me)
    assert_equal(report, me)
    types = [each.type for each in records if each.recipient == made["SY"]]
    assert types == ["DEPOSIT", "DEPOSIT", "WITHDRAW", "WITHDRAW"]


def test_a_lock_keeps_the_lots_of_its_token(world: World, made: Pendle) -> None:
    me = world.wallet()
    address, node = me.address, world.node
    node.settle([tx(node.accounts[0], made["PENDLE"], "mint(address,uint256)", address, 1_000 * WAD)])
    me.ledger.buy("PENDLE", 1_000 * WAD, me.worth("PENDLE", 1_000 * WAD))
    until = int(node.block()["timestamp"], 16) // WEEK_S * WEEK_S + 10 * WEEK_S
    me.do(tx(address, made["PENDLE"], "approve(address,uint256)", made["escrow"], MAX))
    for raw in (300 * WAD, 200 * WAD):
        call = "increaseLockPosition(uint128,uint128)"
        assert me.do(tx(address, made["escrow"], call, raw, until)) == {"PENDLE": -raw}
        until += WEEK_S
    world.pass_time(14 * WEEK_S)
    assert me.do(tx(address, made["escrow"], "withdraw()")) == {"PENDLE": 500 * WAD}
    report, records = world.read(me)
    assert_equal(report, me)
    assert [each.type for each in records if each.recipient == made["escrow"]] == ["STAKE", "STAKE", "INTERACTION"]
    world.files["pendle"] = made.file
    report, records = world.read(me)
    del world.files["pendle"]
    assert_equal(report, me)
    assert [each.type for each in records if each.recipient == made["escrow"]] == ["STAKE", "STAKE", "UNSTAKE"]
