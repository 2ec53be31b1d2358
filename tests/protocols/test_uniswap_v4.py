"""Positions in Uniswap V4 are worth what closing them pays, to the unit, by the published code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from chainfolio.adapters.evm.positions.rules import ProtocolMatch
from chainfolio.adapters.evm.protocols.uniswap_v4 import pool_id, position
from chainfolio.contracts import Position, Snapshot
from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.plans import Reverted
from tests.protocols.scripted import decode, read
from tests.protocols.uniswap_v4_deployment import KEY, UniswapV4, uniswap_v4
from tests.protocols.world import World, parts


@pytest.fixture(scope="module")
def v4_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, UniswapV4]]:
    with LocalNode() as node:
        deployment = deploy(node)
        with node.by_hand():
            v4 = uniswap_v4(node, deployment)
        yield World(node, deployment, tmp_path_factory.mktemp("v4"), {"v4": v4.file}), v4


@pytest.fixture(scope="module")
def snapshot(v4_world: tuple[World, UniswapV4]) -> Snapshot:
    world, _ = v4_world
    return world.snapshot(*(world.deployment.accounts[name] for name in ("alice", "bob")))


def of(snapshot: Snapshot, account: str) -> list[Position]:
    return [each for each in snapshot.positions if each.protocol == "v4" and each.account == account.lower()]


@pytest.mark.parametrize(("name", "numbers"), [("alice", [1, 2, 3]), ("bob", [5, 6])])
def test_closing_pays_what_is_said(
    v4_world: tuple[World, UniswapV4], snapshot: Snapshot, name: str, numbers: list[int]
) -> None:
    world, v4 = v4_world
    assert snapshot.issues == ()
    account = world.deployment.accounts[name]
    payouts = []
    for number in numbers:
        liquidity = world.node.call(v4.positions, "getPositionLiquidity(uint256)(uint128)", number)
        key = v4.keys[0 if number <= 3 else 1]
        payouts.append(world.payout(account, [v4.decrease(account, key, number, liquidity)], snapshot.block))
    shown_amounts = [
        {token: raw for token, raw in parts([each], "supplied", "rewards").items() if raw}
        for each in of(snapshot, account)
    ]
    assert sorted(map(sorted, (each.items() for each in shown_amounts))) == sorted(
        map(sorted, (each.items() for each in payouts))
    )


def test_fees_were_earned_in_both_pools_and_by_nobody_whose_ticks_were_never_crossed(
    v4_world: tuple[World, UniswapV4], snapshot: Snapshot
) -> None:
    world, _ = v4_world
    alice = of(snapshot, world.deployment.accounts["alice"])
    rewards = [parts([each], "rewards") for each in alice]
    assert sorted(bool(any(each.values())) for each in rewards) == [False, True, True]
    assert all(any(parts([each], "rewards").values()) for each in of(snapshot, world.deployment.accounts["bob"]))


def test_the_number_of_a_pool_is_what_the_pool_manager_calls_it(v4_world: tuple[World, UniswapV4]) -> None:
    world, v4 = v4_world
    for number, key in ((1, v4.keys[0]), (6, v4.keys[1])):
        stored, packed = world.node.call(v4.positions, f"getPoolAndPositionInfo(uint256)({KEY},uint256)", number)
        assert pool_id(stored)[:25] == packed.to_bytes(32, "big")[:25]
        price, *_ = world.node.call(v4.view, "getSlot0(bytes32)(uint160,int24,uint24,uint24)", pool_id(stored))
        assert price > 0
        assert stored == tuple(each.lower() if isinstance(each, str) else each for each in key)


ME, OTHER, MANAGER, VIEW, POOLS, TOKEN = ("0x" + letter * 40 for letter in "123456")
NATIVE, HOOK = "0x" + "0" * 40, "0x" + "0" * 39 + "1"
LOWER, UPPER = -60, 120
PACKED = (UPPER % (1 << 24)) << 32 | (LOWER % (1 << 24)) << 8 | 1
GONE: dict[str, Any] = {"ownerOf": Reverted(), "getPoolAndPositionInfo": Reverted()}


def position_answers(hook: str = NATIVE, **changed: Any) -> dict[tuple[str, str], Any]:
    answers = {
        (MANAGER, "ownerOf"): ME,
        (MANAGER, "getPoolAndPositionInfo"): ((NATIVE, TOKEN, 3000, 60, hook), PACKED),
        (VIEW, "getSlot0"): (1 << 96, 0),
        (VIEW, "getPositionInfo"): (10**18, (1 << 256) - (1 << 128), 0),
        (VIEW, "getFeeGrowthInside"): (1 << 128, 0),
    }
    return {key: changed.get(key[1], value) for key, value in answers.items()}


def match() -> ProtocolMatch:
    return ProtocolMatch(ME, MANAGER, id=7, contracts={"state_view": (VIEW,), "pool_manager": (POOLS,)})


def test_growth_goes_round() -> None:
    it = decode(position, match(), says=position_answers())
    assert [part.raw for part in it.rewards] == [2 * 10**18, 0]
    assert it.supplied[0].token == NATIVE
    assert not it.unknown


@pytest.mark.parametrize(
    "changed", [GONE, {"ownerOf": OTHER}, {"getPositionInfo": (0, 0, 0)}], ids=["burnt", "sold", "empty"]
)
def test_what_is_not_mine_or_holds_nothing_is_none(changed: dict[str, Any]) -> None:
    assert decode(position, match(), says=position_answers(**changed)) is None


def test_a_hook_that_may_keep_all_of_what_is_taken_out_is_not_relied_on_unless_a_file_names_it() -> None:
    it = decode(position, match(), says=position_answers(hook=HOOK))
    assert (HOOK in it.unverified, it.unknown) == (True, "")
    listed_match = replace(match(), contracts={**match().contracts, "hook": (HOOK,)})
    it = decode(position, listed_match, says=position_answers(hook=HOOK))
    assert (it.unverified, HOOK in it.unknown) == ("", True)


def test_a_view_that_does_not_answer_makes_the_position_unknown() -> None:
    assert read(position, match(), says=position_answers(getSlot0=Reverted())).status == "failed"
