"""Shares that are burnt before they pay: cooldowns of Ethena, and requests of Lido and ether.fi."""

from __future__ import annotations

import pytest

from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import ZERO, topic_of
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH
from tests.gains.scripted import approve, contract

pytestmark = pytest.mark.node
ETHENA = """key = "ethena"
name = "Ethena"
families = ["erc4626", "cooldown"]
[contracts.local]
vault = ["{}"]
"""
LIDO = """key = "lido"
name = "Lido"
families = ["lido_withdrawals"]
labels = ["steth"]
[contracts.local]
steth = ["{}"]
withdrawals = ["{}"]
[[transactions]]
type = "STAKE"
needs = "loss"
functions = ["submit"]
[[transactions]]
type = "UNSTAKE"
needs = "loss"
functions = ["requestWithdrawals"]
"""


def test_a_cooldown_sells_nothing_and_its_yield_is_income_when_it_is_paid(stage: World) -> None:
    vault, silo = contract(stage, "sUSDe"), contract(stage)
    stage.files["ethena"] = ETHENA.format(vault.address)
    me = stage.wallet(DAI=20_000 * WAD)
    approve(me, vault, "DAI")
    for raw, shares in ((9_000 * WAD, 9_000 * WAD), (3_000 * WAD, 2_500 * WAD)):
        steps = [vault.take(me, "DAI", raw), vault.issue(me, shares)]
        assert vault.act(me, "deposit(uint256,address)", raw, me.address, steps=steps) == {"DAI": -raw}
    topics = topic_of(me.address), topic_of(silo.address), topic_of(me.address)
    waiting = 0
    for function, shares, raw, is_claimed in (
        ("cooldownShares(uint256)", 4_000 * WAD, 5_000 * WAD, False),
        ("cooldownAssets(uint256)", 500 * WAD, 650 * WAD, True),
        ("cooldownShares(uint256)", 7_000 * WAD, 9_300 * WAD, True),
    ):
        event = vault.event("Withdraw(address,address,address,uint256,uint256)", *topics, data=[raw, shares])
        assert vault.act(me, function, shares, steps=[vault.burn(me, shares), event]) == {}
        waiting += raw
        if is_claimed:
            steps = [silo.note(silo.pay(me, "DAI", waiting))]
            assert vault.act(me, "unstake(address)", me.address, steps=steps) == {"DAI": waiting}
            waiting = 0
    total = 5_000 * WAD + 650 * WAD + 9_300 * WAD
    me.ledger.earn("DAI", total - 12_000 * WAD, me.value("DAI", total - 12_000 * WAD))
    report, _ = stage.read(me)
    assert_equal(report, me)


def test_requests_of_a_file_that_types_them_sell_nothing(stage: World) -> None:
    steth, queue = contract(stage, "stETH"), contract(stage)
    stage.files["lido"] = LIDO.format(steth.address, queue.address)
    me = stage.wallet(ETH=40 * WAD)
    assert steth.act(me, "submit(address)", ZERO, value=30 * WAD, steps=[steth.issue(me, 30 * WAD)]) == {ETH: -30 * WAD}
    ask = "requestWithdrawals(uint256[],address)"
    for number, raw in ((1, 10 * WAD), (2, 21 * WAD)):  # one more came with the rebases
        steps = [steth.note(steth.send(me, queue, raw)), queue.move(ZERO, me.address, number)]
        assert queue.act(me, ask, [raw], me.address, steps=steps) == {}
    for number, raw in ((1, 10 * WAD), (2, 21 * WAD)):
        steps = [queue.move(me.address, ZERO, number), queue.pay(me, ETH, raw)]
        assert queue.act(me, "claimWithdrawal(uint256)", number, steps=steps) == {ETH: raw}
    me.ledger.earn(ETH, WAD, me.value(ETH, WAD))
    report, _ = stage.read(me)
    assert_equal(report, me)
