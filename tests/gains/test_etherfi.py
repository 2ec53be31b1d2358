"""ether.fi: staked ether is a share that rebases, also wrapped, and requests pay the rebased amount."""

from __future__ import annotations

import pytest

from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import ZERO
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH
from tests.gains.scripted import Step, contract
from tests.gains.test_contract_wallet import KINDS, any_wallet

pytestmark = pytest.mark.node
FILE = """key = "etherfi"
name = "ether.fi"
families = ["etherfi_withdrawals"]
[contracts.local]
withdrawals = ["{}"]
liquidity_pool = ["{}"]
"""


@pytest.mark.parametrize("kind", KINDS)
def test_staked_ether_comes_back_by_requests_and_what_it_grew_is_income(stage: World, kind: str) -> None:
    pool, eeth, weeth, queue = contract(stage), contract(stage, "eETH"), contract(stage, "weETH"), contract(stage)
    stage.files["etherfi"] = FILE.format(queue.address, pool.address)
    me = any_wallet(stage, kind, ETH=40 * WAD)
    for function, raw in (("deposit()", 20 * WAD), ("deposit(address)", 10 * WAD)):
        args = [ZERO] if "address" in function else []
        changes = pool.act(me, function, *args, value=raw, steps=[eeth.note(eeth.issue(me, raw))])
        assert changes == {ETH: -raw}
    steps: list[Step] = [eeth.note(eeth.send(me, weeth, 12 * WAD)), weeth.issue(me, 10 * WAD)]
    assert weeth.act(me, "wrap(uint256)", 12 * WAD, steps=steps) == {}
    steps = [weeth.burn(me, 10 * WAD), eeth.note(eeth.give(me, weeth, 12 * WAD))]
    assert weeth.act(me, "unwrap(uint256)", 10 * WAD, steps=steps) == {}
    for number, raw in ((1, 11 * WAD), (2, 21 * WAD)):  # two more came with the rebases
        steps = [eeth.note(eeth.send(me, queue, raw)), queue.note(queue.move(ZERO, me.address, number))]
        assert pool.act(me, "requestWithdraw(address,uint256)", me.address, raw, steps=steps) == {}
    for number, raw in ((2, 21 * WAD), (1, 11 * WAD)):
        steps = [queue.move(me.address, ZERO, number), pool.note(pool.pay(me, ETH, raw))]
        assert queue.act(me, "claimWithdraw(uint256)", number, steps=steps) == {ETH: raw}
    me.ledger.earn(ETH, 2 * WAD, me.value(ETH, 2 * WAD))
    report, _ = stage.read(me)
    assert_equal(report, me)
