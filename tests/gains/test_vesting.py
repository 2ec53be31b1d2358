"""Grants over time: payments of a stream, a plan or an escrow are income, including the last one."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import ZERO, tx
from tests.gains.conftest import World, assert_equal
from tests.gains.scripted import Contract, Step, contract
from tests.gains.test_farms import earn

pytestmark = pytest.mark.node
FILE = 'key = "grants"\nname = "Grants"\nfamilies = ["{0}"]\n[contracts.local]\n{1} = ["{2}"]\n'


def grant(stage: World, collection: Contract, owner: str) -> None:
    """Let others create a grant for an account."""
    alice = stage.deployment.accounts["alice"]
    collection.script("create()", [collection.move(ZERO, owner, 1)])
    stage.node.settle([tx(alice, collection.address, "create()", gas=1_000_000)])


def test_each_payment_of_a_stream_is_income(stage: World) -> None:
    lockup = contract(stage)
    stage.files["grants"] = FILE.format("sablier", "lockup", lockup.address)
    me = stage.wallet()
    grant(stage, lockup, me.address)
    calls: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("withdraw(uint256,address,uint128)", (1, me.address, 5)),
        ("withdrawMax(uint256,address)", (1, me.address)),
        ("withdrawMultiple(uint256[],uint128[])", ([1], [5])),
    )
    for function, args in calls:
        earn(me, lockup.act(me, function, *args, steps=[lockup.pay(me, "AERO", 5 * WAD)]), "AERO")
    report, records = stage.read(me)
    assert [each.type for each in records][-3:] == ["CLAIM"] * 3
    assert_equal(report, me)


def test_the_last_payment_of_a_plan_burns_it_and_is_income_too(stage: World) -> None:
    plans = contract(stage)
    stage.files["grants"] = FILE.format("hedgey", "plans", plans.address)
    me = stage.wallet()
    grant(stage, plans, me.address)
    burnt: list[Step] = [plans.move(me.address, ZERO, 1)]
    calls: tuple[tuple[str, tuple[Any, ...], list[Step]], ...] = (
        ("redeemPlans(uint256[])", ([1],), []),
        ("partialRedeemPlans(uint256[],uint256)", ([1], 5), []),
        ("redeemAllPlans()", (), burnt),
    )
    for function, args, steps in calls:
        earn(me, plans.act(me, function, *args, steps=[*steps, plans.pay(me, "AERO", 5 * WAD)]), "AERO")
    report, records = stage.read(me)
    assert [each.type for each in records][-3:] == ["CLAIM"] * 3
    assert_equal(report, me)


def test_each_payment_of_an_escrow_is_income(stage: World) -> None:
    escrow = contract(stage)
    stage.files["grants"] = FILE.format("vesting_escrow", "vesting_escrow", escrow.address)
    me = stage.wallet()
    for function, args in (
        ("claim()", ()),
        ("claim(address)", (me.address,)),
        ("claim(address,uint256)", (me.address, 5)),
    ):
        earn(me, escrow.act(me, function, *args, steps=[escrow.pay(me, "AERO", 5 * WAD)]), "AERO")
    report, records = stage.read(me)
    assert [each.type for each in records][-3:] == ["CLAIM"] * 3
    assert_equal(report, me)
