"""Aura: staked shares are shares of a reward pool, locks are returned, and BAL and AURA are income."""

from __future__ import annotations

import pytest

from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import topic_of
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import Wallet
from tests.gains.scripted import Contract, Step, approve, contract, minted, minted_by
from tests.gains.test_contract_wallet import KINDS, any_wallet

pytestmark = pytest.mark.node
FILE = """key = "aura"
name = "Aura"
families = ["aura"]
labels = ["voter_proxy"]
[contracts.local]
booster = ["{}"]
locker = ["{}"]
voter_proxy = ["{}"]
"""
BAL, AURA = "CRV", "CVX"  # two tokens of the stage


def rewards(pool: Contract, me: Wallet, bal: int) -> list[Step]:
    """Return the payments of a claim: BAL of the pool, minted AURA, and a reward of another pool."""
    extra = contract(me_world(pool))
    return [pool.pay(me, BAL, bal), minted(me, AURA, bal * 3), extra.note(extra.pay(me, "WBTC", 10**5))]


def me_world(pool: Contract) -> World:
    return pool.world


def earn(me: Wallet, bal: int) -> None:
    for symbol, raw in ((BAL, bal), (AURA, bal * 3), ("WBTC", 10**5)):
        me.ledger.earn(symbol, raw, me.value(symbol, raw))


@pytest.mark.parametrize("kind", KINDS)
def test_staked_shares_and_locked_aura_come_back_and_rewards_are_income(stage: World, kind: str) -> None:
    booster, voter, pool, locker = contract(stage), contract(stage), contract(stage, "auraBPT-vault"), contract(stage)
    stage.files["aura"] = FILE.format(booster.address, locker.address, voter.address)
    me = any_wallet(stage, kind, DAI=1_500 * WAD)
    address = me.address
    stage.node.settle([minted_by(stage, AURA, address, 500 * WAD)])
    me.ledger.buy(AURA, 500 * WAD, me.value(AURA, 500 * WAD))
    approve(me, booster, "DAI")
    approve(me, pool, "DAI")
    approve(me, locker, AURA)
    steps: list[Step] = [locker.take(me, AURA, 300 * WAD)]
    assert locker.act(me, "lock(address,uint256)", address, 300 * WAD, steps=steps) == {AURA: -300 * WAD}
    deposited = booster.event("Deposited(address,uint256,uint256)", topic_of(address), "0x" + "0" * 64, data=[WAD])
    steps = [booster.take_for(voter, me, "DAI", 1_000 * WAD), pool.note(pool.issue(me, 1_000 * WAD)), deposited]
    booster.act(me, "deposit(uint256,uint256,bool)", 0, 1_000 * WAD, True, steps=steps)
    steps = [pool.take_for(voter, me, "DAI", 500 * WAD), pool.issue(me, 500 * WAD)]
    pool.act(me, "deposit(uint256,address)", 500 * WAD, address, steps=steps)
    pool.act(me, "getReward(address,bool)", address, True, steps=rewards(pool, me, 30 * WAD))
    earn(me, 30 * WAD)
    for function, raw, bal in (("withdrawAndUnwrap(uint256,bool)", 400, 20), ("withdrawAllAndUnwrap(bool)", 1_100, 4)):
        payout = booster.note(booster.pay(me, "DAI", raw * WAD))
        steps = [pool.burn(me, raw * WAD), payout, *rewards(pool, me, bal * WAD)]
        args = [raw * WAD] if "uint256" in function else []
        changes = pool.act(me, function, *args, True, steps=steps)
        assert changes == {"DAI": raw * WAD, BAL: bal * WAD, AURA: bal * 3 * WAD, "WBTC": 10**5}
        earn(me, bal * WAD)
    locker.act(me, "getReward(address)", address, steps=[locker.pay(me, BAL, 7 * WAD)])
    me.ledger.earn(BAL, 7 * WAD, me.value(BAL, 7 * WAD))
    assert locker.act(me, "processExpiredLocks(bool)", False, steps=[locker.pay(me, AURA, 300 * WAD)])
    report, _ = stage.read(me)
    assert_equal(report, me)
