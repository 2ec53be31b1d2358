"""A share of a Balancer pool is worth what an exit pays, to the unit, by the published contracts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from chainfolio.adapters.evm.positions.rules import ProtocolMatch
from chainfolio.adapters.evm.protocols.balancer_v2 import QUERY_EXIT, unwrap
from chainfolio.contracts import Snapshot
from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.deploy import WAD, deploy
from chainfolio.localchain.evm import ZERO, Tx, created_address, selector, tx, words
from chainfolio.localchain.hostile import GOOD, TRANSFER, Log, gives, log_tx
from chainfolio.localchain.node import LocalNode
from chainfolio.plans import Reverted
from chainfolio.portfolio.valuation import valuate
from chainfolio.protocols import TokenAmount, UnlistedShare, UnverifiedShare
from tests.protocols.balancer_v2_deployment import JOIN, Balancer, balancer
from tests.protocols.scripted import decode, read
from tests.protocols.world import World, parts


@pytest.fixture(scope="module")
def balancer_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Balancer]]:
    with LocalNode() as node:
        deployment = deploy(node)
        with node.by_hand():
            it = balancer(node, deployment)
        yield World(node, deployment, tmp_path_factory.mktemp("balancer"), {"balancer": it.file}), it


@pytest.fixture(scope="module")
def snapshot(balancer_world: tuple[World, Balancer]) -> Snapshot:
    world, _ = balancer_world
    return world.snapshot(world.deployment.accounts["bob"])


@pytest.mark.parametrize(("name", "kind"), [("weighted", 1), ("stable", 1), ("composable", 2)])
def test_leaving_pays_what_is_said(
    balancer_world: tuple[World, Balancer], snapshot: Snapshot, name: str, kind: int
) -> None:
    world, balancer = balancer_world
    assert snapshot.issues == ()
    pool, bob = balancer.pools[name].lower(), world.deployment.accounts["bob"]
    (position,) = [each for each in snapshot.positions if each.pool == pool]
    assert position.type == "LIQUIDITYPOOL"
    (shares,) = [each.raw for each in snapshot.holdings if each.token.asset.shown_contract == pool]
    payout = world.payout(bob, [balancer.exit(world.node, bob, pool, shares, kind)], snapshot.block)
    assert payout.pop(pool) == -shares
    assert len(payout) == 2
    assert parts([position], "supplied") == payout


def test_what_was_locked_is_unfolded_to_what_leaving_pays_once_it_is_free(
    balancer_world: tuple[World, Balancer], snapshot: Snapshot
) -> None:
    world, balancer = balancer_world
    pool, bob = balancer.pools["weighted"], world.deployment.accounts["bob"]
    (position,) = [each for each in snapshot.positions if each.pool == balancer.escrow.lower()]
    raw, unlock_s = world.node.call(balancer.escrow, "locked(address)(int128,uint256)", bob)
    assert (position.type, position.unlock_s) == ("LOCKED", unlock_s)
    free = tx(bob, balancer.escrow, "withdraw()", gas=2_000_000)
    payout = world.payout(bob, [free, balancer.exit(world.node, bob, pool, raw, 1)], snapshot.block)
    assert len(payout) == 2
    assert parts([position], "supplied") == payout


def test_a_paused_pool_pays_what_is_said_by_its_last_resort(
    balancer_world: tuple[World, Balancer], snapshot: Snapshot
) -> None:
    world, balancer = balancer_world
    node, pool, owner = world.node, balancer.pools["composable"], world.deployment.accounts["deployer"]
    authorizer = node.call(balancer.vault, "getAuthorizer()(address)")
    for call in ("pause()", "enableRecoveryMode()"):
        action = node.call(pool, "getActionId(bytes4)(bytes32)", bytes.fromhex(selector(call)[2:]))
        node.settle([tx(owner, authorizer, "grantRole(bytes32,address)", action, owner), tx(owner, pool, call)])
    later = world.snapshot(world.deployment.accounts["bob"])
    (position,) = [each for each in later.positions if each.pool == pool.lower()]
    (shares,) = [each.raw for each in later.holdings if each.token.asset.shown_contract == pool.lower()]
    payout = world.payout(position.account, [balancer.exit(node, position.account, pool, shares, 255)], later.block)
    assert payout.pop(pool.lower()) == -shares
    assert parts([position], "supplied") == payout


FUNDS = 50_000 * 10**6


def register(world: World, balancer: Balancer, promised: int, supply: int, victim: str) -> str:
    """Register a hostile pool with real dollars in the vault, and mint its shares to the victim."""
    node, ivan, usdc = world.node, world.deployment.accounts["ivan"], world.deployment.tokens["USDC"].address
    dai = world.deployment.tokens["DAI"].address
    tokens = sorted((usdc, dai), key=lambda token: int(token, 16))
    pool = created_address(ivan, int(node.rpc("eth_getTransactionCount", ivan, "pending"), 16))
    number = node.call(balancer.vault, "registerPool(uint8)(bytes32)", 0, sender=pool)
    in_order = [FUNDS if token == usdc else 0 for token in tokens]
    answers = {
        **GOOD,
        "totalSupply()": gives("uint256", supply),
        "getVault()": gives("address", balancer.vault),
        "getPoolId()": gives("bytes32", number),
        QUERY_EXIT.partition(")(")[0] + ")": gives(
            "uint256", WAD, "uint256[]", [promised if token == usdc else 0 for token in tokens]
        ),
        "onJoinPool(bytes32,address,address,uint256[],uint256,uint256,bytes)": gives(
            "uint256[]", in_order, "uint256[]", [0, 0]
        ),
    }
    rows = [answer.row(signature) for signature, answer in answers.items()]
    code = artifact("Hostile").creation(words(["(bytes4,uint8,uint256,bytes)[]"], rows))
    mint_log = Log(
        [TRANSFER, *("0x" + "00" * 12 + account[2:].lower() for account in (ZERO, victim))], words(["uint256"], WAD)
    )
    node.settle([Tx(ivan, None, code, gas=6_000_000), log_tx(ivan, pool, mint_log)])
    node.rpc("anvil_setBalance", pool, hex(WAD))
    node.rpc("anvil_impersonateAccount", pool)  # what its constructor would have done
    node.settle(
        [
            tx(pool, balancer.vault, "registerPool(uint8)", 0),
            tx(pool, balancer.vault, "registerTokens(bytes32,address[],address[])", number, tokens, [pool, pool]),
            tx(ivan, usdc, "mint(address,uint256)", ivan, FUNDS),
            tx(ivan, usdc, "approve(address,uint256)", balancer.vault, FUNDS),
            tx(ivan, balancer.vault, JOIN, number, ivan, ivan, (tokens, in_order, b"", False)),
        ]
    )
    return pool.lower()


def test_a_pool_of_a_stranger_is_worth_nothing_to_whom_its_shares_were_sent(
    balancer_world: tuple[World, Balancer],
) -> None:
    """The registered pool has real money, and promises all of it to one holder or to each of a hundred."""
    world, balancer = balancer_world
    victim = world.deployment.accounts["heidi"]
    before = world.snapshot(victim)
    covered_pool = register(world, balancer, FUNDS, WAD, victim)
    uncovered_pool = register(world, balancer, FUNDS, 100 * WAD, victim)
    after = world.snapshot(victim)
    assert valuate([after]).value_usd == valuate([before]).value_usd
    assert {position.pool: position.unverified != "" for position in after.positions} == {covered_pool: True}
    reasons = {issue.subject: issue.reason for issue in after.issues if not issue.makes_partial}
    assert "an action of its own" in reasons[covered_pool]
    assert "does not cover" in reasons[uncovered_pool]
    assert [issue for issue in after.issues if issue.makes_partial] == []


ME, POOL, VAULT, COLLECTOR, A, B = ("0x" + letter * 40 for letter in "123456")


def pool_answers(**changed: Any) -> dict[tuple[str, str], Any]:
    answers = {
        (POOL, "getPoolId"): b"\1" * 32,
        (VAULT, "getProtocolFeesCollector"): COLLECTOR,
        (VAULT, "getPool"): (POOL, 0),
        (VAULT, "getPoolTokens"): ((A, B), (100, 200), 7),
        (COLLECTOR, "getSwapFeePercentage"): 0,
        (POOL, "queryExit"): (10, (10, 20)),
        (POOL, "totalSupply"): 100,
    }
    return {key: changed.get(key[1], value) for key, value in answers.items()}


def test_a_share_is_its_part_of_each_token() -> None:
    assert decode(unwrap, ProtocolMatch(ME, POOL, VAULT), 10, says=pool_answers()) == UnlistedShare(
        (TokenAmount(A, 10), TokenAmount(B, 20))
    )


@pytest.mark.parametrize(
    "changed",
    [{"getPoolId": Reverted()}, {"getPool": (A, 0)}, {"queryExit": (10, (10,))}],
    ids=["no pool", "of another pool", "of fewer tokens"],
)
def test_a_pool_that_lies_is_none(changed: dict[str, Any]) -> None:
    assert decode(unwrap, ProtocolMatch(ME, POOL, VAULT), 10, says=pool_answers(**changed)) is None


@pytest.mark.parametrize(
    "changed",
    [{"queryExit": (10, (10, 201))}, {"queryExit": (10, (10, 21))}, {"totalSupply": 112}, {"totalSupply": 9}],
    ids=["more than there is", "more than its part", "others have some", "fewer shares than one holds"],
)
def test_a_pool_that_promises_more_than_lies_there_for_all_is_not_relied_on(changed: dict[str, Any]) -> None:
    assert isinstance(decode(unwrap, ProtocolMatch(ME, POOL, VAULT), 10, says=pool_answers(**changed)), UnverifiedShare)


def test_a_pool_without_such_an_exit_is_unknown() -> None:
    answers = pool_answers(queryExit=Reverted()) | {(POOL, "inRecoveryMode"): False}
    report = read(unwrap, ProtocolMatch(ME, POOL, VAULT), 10, says=answers)
    assert (report.status, "no exit" in report.reason) == ("failed", True)
