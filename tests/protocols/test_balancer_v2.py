"""A share of a Balancer pool is said to be what leaving the pool pays, to the unit: the published contracts decide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from adapters.evm.protocols.balancer_v2 import unwrap
from chainfolio.asking import Reverted
from chainfolio.contracts import Snapshot
from chainfolio.protocols import Met, Part, Unlisted, Unverified
from localchain.deploy import deploy
from localchain.evm import selector, tx
from localchain.node import LocalNode
from tests.protocols.balancer_v2_deployment import Balancer, balancer
from tests.protocols.told import read, told
from tests.protocols.world import World, parts


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Balancer]]:
    with LocalNode() as node:
        deployment = deploy(node)
        with node.by_hand():
            it = balancer(node, deployment)
        yield World(node, deployment, tmp_path_factory.mktemp("balancer"), {"balancer": it.file}), it


@pytest.fixture(scope="module")
def snapshot(made: tuple[World, Balancer]) -> Snapshot:
    world, _ = made
    return world.snapshot(world.deployment.accounts["bob"])


@pytest.mark.parametrize(("name", "kind"), [("weighted", 1), ("stable", 1), ("composable", 2)])
def test_leaving_pays_what_is_said(made: tuple[World, Balancer], snapshot: Snapshot, name: str, kind: int) -> None:
    world, balancer = made
    assert snapshot.issues == ()
    pool, bob = balancer.pools[name].lower(), world.deployment.accounts["bob"]
    (position,) = [each for each in snapshot.positions if each.pool == pool]
    assert position.type == "LIQUIDITYPOOL"
    (shares,) = [each.raw for each in snapshot.holdings if each.token.asset.contract == pool]
    paid = world.paid(bob, [balancer.exit(world.node, bob, pool, shares, kind)], snapshot.block)
    assert paid.pop(pool) == -shares
    assert len(paid) == 2
    assert parts([position], "supplied") == paid


def test_what_was_locked_is_unfolded_to_what_leaving_pays_once_it_is_free(
    made: tuple[World, Balancer], snapshot: Snapshot
) -> None:
    world, balancer = made
    pool, bob = balancer.pools["weighted"], world.deployment.accounts["bob"]
    (position,) = [each for each in snapshot.positions if each.pool == balancer.escrow.lower()]
    raw, until = world.node.call(balancer.escrow, "locked(address)(int128,uint256)", bob)
    assert (position.type, position.unlock_s) == ("LOCKED", until)
    free = tx(bob, balancer.escrow, "withdraw()", gas=2_000_000)
    paid = world.paid(bob, [free, balancer.exit(world.node, bob, pool, raw, 1)], snapshot.block)
    assert len(paid) == 2
    assert parts([position], "supplied") == paid


def test_a_paused_pool_pays_what_is_said_by_its_last_resort(made: tuple[World, Balancer], snapshot: Snapshot) -> None:
    world, balancer = made
    node, pool, owner = world.node, balancer.pools["composable"], world.deployment.accounts["deployer"]
    authorizer = node.call(balancer.vault, "getAuthorizer()(address)")
    for call in ("pause()", "enableRecoveryMode()"):
        action = node.call(pool, "getActionId(bytes4)(bytes32)", bytes.fromhex(selector(call)[2:]))
        node.settle([tx(owner, authorizer, "grantRole(bytes32,address)", action, owner), tx(owner, pool, call)])
    later = world.snapshot(world.deployment.accounts["bob"])
    (position,) = [each for each in later.positions if each.pool == pool.lower()]
    (shares,) = [each.raw for each in later.holdings if each.token.asset.contract == pool.lower()]
    paid = world.paid(position.account, [balancer.exit(node, position.account, pool, shares, 255)], later.block)
    assert paid.pop(pool.lower()) == -shares
    assert parts([position], "supplied") == paid


ME, POOL, VAULT, COLLECTOR, A, B = ("0x" + letter * 40 for letter in "123456")


def said(**changed: Any) -> dict[tuple[str, str], Any]:
    answers = {
        (POOL, "getPoolId"): b"\1" * 32, (VAULT, "getProtocolFeesCollector"): COLLECTOR, (VAULT, "getPool"): (POOL, 0),
        (VAULT, "getPoolTokens"): ((A, B), (100, 200), 7), (COLLECTOR, "getSwapFeePercentage"): 0,
        (POOL, "queryExit"): (10, (10, 20)), (POOL, "totalSupply"): 100,
    }  # fmt: skip
    return {key: changed.get(key[1], value) for key, value in answers.items()}


def test_a_share_is_its_part_of_each_token() -> None:
    assert told(unwrap, Met(ME, POOL, VAULT), 10, says=said()) == Unlisted((Part(A, 10), Part(B, 20)))


@pytest.mark.parametrize(
    "changed",
    [{"getPoolId": Reverted()}, {"getPool": (A, 0)}, {"queryExit": (10, (10,))}],
    ids=["no pool", "of another pool", "of fewer tokens"],
)
def test_a_pool_that_lies_is_none(changed: dict[str, Any]) -> None:
    assert told(unwrap, Met(ME, POOL, VAULT), 10, says=said(**changed)) is None


@pytest.mark.parametrize(
    "changed",
    [{"queryExit": (10, (10, 201))}, {"queryExit": (10, (10, 21))}, {"totalSupply": 112}, {"totalSupply": 9}],
    ids=["more than there is", "more than its part", "others have some", "fewer shares than one holds"],
)
def test_a_pool_that_promises_more_than_lies_there_for_all_is_not_relied_on(changed: dict[str, Any]) -> None:
    assert isinstance(told(unwrap, Met(ME, POOL, VAULT), 10, says=said(**changed)), Unverified)


def test_a_pool_without_such_an_exit_is_unknown() -> None:
    answers = said(queryExit=Reverted()) | {(POOL, "inRecoveryMode"): False}
    report = read(unwrap, Met(ME, POOL, VAULT), 10, says=answers)
    assert (report.status, "no exit" in report.reason) == ("failed", True)
