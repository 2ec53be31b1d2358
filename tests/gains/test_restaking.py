"""EigenLayer: restaked tokens come back after the queue, and what is paid beyond them is income."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.localchain.deploy import WAD
from tests.gains.conftest import World, assert_equal
from tests.gains.scripted import approve, contract
from tests.gains.test_contract_wallet import KINDS, any_wallet

pytestmark = pytest.mark.node
FILE = """key = "eigenlayer"
name = "EigenLayer"
families = ["eigenlayer"]
labels = ["strategy_manager"]
undecoded = ["rewards_coordinator"]
[contracts.local]
strategy_manager = ["{}"]
delegation = ["{}"]
strategy = ["{}"]
rewards_coordinator = ["{}"]
"""
WITHDRAWAL = "(address,address,address,uint256,uint32,address[],uint256[])"
CLAIM = "(uint32,uint32,bytes,(address,bytes32),uint32[],bytes[],(address,uint256)[])"


@pytest.mark.parametrize("kind", KINDS)
def test_a_queued_withdrawal_gives_the_stake_back(stage: World, kind: str) -> None:
    manager, delegation, strategy, rewards = (contract(stage) for _ in range(4))
    addresses = (manager.address, delegation.address, strategy.address, rewards.address)
    stage.files["eigenlayer"] = FILE.format(*addresses)
    me = any_wallet(stage, kind, DAI=1_000 * WAD)
    address, dai = me.address, me.assets["DAI"]
    approve(me, manager, "DAI")
    for raw in (600 * WAD, 300 * WAD):
        steps = [manager.take_for(strategy, me, "DAI", raw)]
        changes = manager.act(
            me, "depositIntoStrategy(address,address,uint256)", strategy.address, dai, raw, steps=steps
        )
        assert changes == {"DAI": -raw}
    claim: tuple[Any, ...] = (0, 0, b"", (address, bytes(32)), [], [], [])
    function = f"processClaim({CLAIM},address)"
    rewards.act(me, function, claim, address, steps=[rewards.pay(me, "AERO", 5 * WAD)])
    me.ledger.earn("AERO", 5 * WAD, me.value("AERO", 5 * WAD))
    queued = ([strategy.address], [400 * WAD], address)
    assert delegation.act(me, "queueWithdrawals((address[],uint256[],address)[])", [queued], steps=[]) == {}
    for shares, raw in ((400 * WAD, 400 * WAD), (500 * WAD, 512 * WAD)):
        withdrawal = (address, address, address, 0, 1, [strategy.address], [shares])
        function = f"completeQueuedWithdrawal({WITHDRAWAL},address[],bool)"
        steps = [strategy.note(strategy.pay(me, "DAI", raw))]
        assert delegation.act(me, function, withdrawal, [dai], True, steps=steps) == {"DAI": raw}
    me.ledger.earn("DAI", 12 * WAD, me.value("DAI", 12 * WAD))
    report, _ = stage.read(me)
    assert_equal(report, me)
