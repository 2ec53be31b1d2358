"""Convex: what is staked and locked keeps its lots, also if its own token is paid as a reward."""

from __future__ import annotations

import pytest

from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import topic_of
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import Wallet
from tests.gains.scripted import Contract, Step, approve, contract, minted, minted_by

pytestmark = pytest.mark.node
FILE = """key = "convex"
name = "Convex"
families = ["convex"]
[contracts.local]
booster = ["{}"]
locker = ["{}"]
"""


def rewards(pool: Contract, me: Wallet, crv: int) -> list[Step]:
    """Return the payments of a claim: CRV of the pool, minted CVX, and a token of another contract."""
    return [pool.pay(me, "CRV", crv), minted(me, "CVX", crv // 2), pool.pay(me, "WBTC", 10**5)]


def earn(me: Wallet, crv: int) -> None:
    for symbol, raw in (("CRV", crv), ("CVX", crv // 2), ("WBTC", 10**5)):
        me.ledger.earn(symbol, raw, me.value(symbol, raw))


def test_pool_shares_and_locked_cvx_come_back_and_all_rewards_are_income(stage: World) -> None:
    booster, voter, pool, locker, proxy = (contract(stage) for _ in range(5))
    stage.files["convex"] = FILE.format(booster.address, locker.address)
    me = stage.wallet(DAI=1_000 * WAD)
    node, address = stage.node, me.address
    node.settle([minted_by(stage, "CVX", address, 500 * WAD)])
    me.ledger.buy("CVX", 500 * WAD, me.value("CVX", 500 * WAD))
    approve(me, booster, "DAI")
    approve(me, locker, "CVX")
    steps: list[Step] = [locker.take(me, "CVX", 300 * WAD)]
    assert locker.act(me, "lock(address,uint256,uint256)", address, 300 * WAD, 0, steps=steps) == {"CVX": -300 * WAD}
    deposited = booster.event("Deposited(address,uint256,uint256)", topic_of(address), "0x" + "0" * 64, data=[WAD])
    steps = [booster.take_for(voter, me, "DAI", 1_000 * WAD), deposited]
    booster.act(me, "deposit(uint256,uint256,bool)", 0, 1_000 * WAD, True, steps=steps)
    steps = [booster.note(booster.pay(me, "DAI", 400 * WAD)), *rewards(pool, me, 20 * WAD)]
    changes = pool.act(me, "withdrawAndUnwrap(uint256,bool)", 400 * WAD, True, steps=steps)
    assert changes == {"DAI": 400 * WAD, "CRV": 20 * WAD, "CVX": 10 * WAD, "WBTC": 10**5}
    earn(me, 20 * WAD)
    pool.act(me, "getReward(address,bool)", address, True, steps=rewards(pool, me, 30 * WAD))
    earn(me, 30 * WAD)
    steps = [booster.note(booster.pay(me, "DAI", 600 * WAD)), *rewards(pool, me, 4 * WAD)]
    pool.act(me, "withdrawAllAndUnwrap(bool)", True, steps=steps)
    earn(me, 4 * WAD)
    locker.act(me, "getReward(address,bool)", address, False, steps=[locker.pay(me, "CRV", 7 * WAD)])
    me.ledger.earn("CRV", 7 * WAD, me.value("CRV", 7 * WAD))
    steps = [proxy.note(proxy.pay(me, "CVX", 300 * WAD))]
    assert locker.act(me, "processExpiredLocks(bool)", False, steps=steps) == {"CVX": 300 * WAD}
    report, _ = stage.read(me)
    assert_equal(report, me)
