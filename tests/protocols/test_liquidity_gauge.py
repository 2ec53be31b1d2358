"""A gauge's position is what leaving it pays, to the unit: shares, minted and other rewards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from chainfolio.adapters.evm.positions.rules import ProtocolMatch
from chainfolio.adapters.evm.protocols.liquidity_gauge import position
from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.evm import tx
from chainfolio.localchain.node import LocalNode
from chainfolio.plans import Reverted
from chainfolio.protocols import TokenAmount
from tests.protocols.balancer_v2_deployment import Balancer, balancer
from tests.protocols.gauge_deployment import file, gauge
from tests.protocols.scripted import NO_CODE, decode
from tests.protocols.world import World, parts


@pytest.fixture(scope="module")
def gauge_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Balancer, str, str]]:
    with LocalNode() as node:
        deployment = deploy(node)
        with node.by_hand():
            pools = balancer(node, deployment)
            it, minter = gauge(node, deployment, pools, node.call(pools.vault, "getAuthorizer()(address)"))
        files = {"balancer": pools.file, "gauges": file(minter)}
        yield World(node, deployment, tmp_path_factory.mktemp("gauges"), files), pools, it, minter


def test_leaving_pays_what_is_said(gauge_world: tuple[World, Balancer, str, str]) -> None:
    world, pools, it, minter = gauge_world
    bob = world.deployment.accounts["bob"]
    snapshot = world.snapshot(bob)
    assert snapshot.issues == ()
    (position,) = [each for each in snapshot.positions if each.protocol == "gauges"]
    staked = world.node.call(it, "balanceOf(address)(uint256)", bob)
    calls = [
        tx(bob, minter, "mint(address)", it, gas=4_000_000),
        tx(bob, it, "claim_rewards()", gas=4_000_000),
        tx(bob, it, "withdraw(uint256)", staked, gas=4_000_000),
        pools.exit(world.node, bob, pools.pools["weighted"], staked, 1),
    ]
    payout = world.payout(bob, calls, snapshot.block)
    assert payout.pop(it.lower()) == -staked
    assert len([part for part in position.rewards if part.raw]) == 2
    assert parts([position], "supplied", "rewards") == payout
    assert [share.reference for share in position.replaces] == [it.lower()]


ME, GAUGE, MINTER, CONTROLLER, SHARE, TOKEN, OTHER = ("0x" + letter * 40 for letter in "1234567")


def gauge_answers(**changed: Any) -> dict[tuple[str, str], Any]:
    answers = {
        (GAUGE, "lp_token"): SHARE,
        (GAUGE, "balanceOf"): 10,
        (MINTER, "controller"): CONTROLLER,
        (MINTER, "token"): TOKEN,
        (GAUGE, "reward_count"): 1,
        (CONTROLLER, "gauge_types"): 0,
        (GAUGE, "reward_tokens"): OTHER,
        (GAUGE, "claimable_tokens"): 3,
        (GAUGE, "claimable_reward"): 4,
    }
    return {key: changed.get(key[1], value) for key, value in answers.items()}


def test_shares_the_minter_s_token_and_the_rest() -> None:
    it = decode(position, ProtocolMatch(ME, GAUGE, contracts={"minter": (MINTER,)}), says=gauge_answers())
    assert (it.supplied, it.rewards) == ((TokenAmount(SHARE, 10),), (TokenAmount(TOKEN, 3), TokenAmount(OTHER, 4)))
    assert not it.unknown


def test_a_gauge_that_the_controller_does_not_know_is_none() -> None:
    match = ProtocolMatch(ME, GAUGE, contracts={"minter": (MINTER,)})
    assert decode(position, match, says=gauge_answers(gauge_types=Reverted())) is None


def test_a_gauge_that_does_not_count_its_rewards_may_have_more() -> None:
    it = decode(
        position, ProtocolMatch(ME, GAUGE, contracts={"minter": (MINTER,)}), says=gauge_answers(reward_count=NO_CODE)
    )
    assert it.rewards == (TokenAmount(TOKEN, 3),)
    assert it.unknown
