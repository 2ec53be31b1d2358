"""Vaults that mint their interest from time to time, and hostile contracts that look like them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from chainfolio.adapters.evm.protocols.erc4626 import LAGS, NOT_COVERED
from chainfolio.contracts import Position, Snapshot
from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.deploy import WAD, deploy
from chainfolio.localchain.evm import MAX, ZERO, Tx, created_address, topic_of, tx, words
from chainfolio.localchain.hostile import GOOD, TRANSFER, Log, gives, log_tx
from chainfolio.localchain.node import LocalNode
from chainfolio.portfolio.valuation import valuate
from tests.protocols.world import World, parts

RATE = 2 * 10**18  # a second, in RAY: about 6.3 % a year
DEPOSIT, STAYS = 60_000 * WAD, 40_000 * WAD
FUNDS = 900 * WAD  # what the attacker really puts there, and can take away
THERE = FUNDS + WAD  # with what the victim was talked into
PROMISES = {"modest": 1_001 * WAD, "greedy": 1_002 * WAD, "endless": 10**60}  # nine tenths are there of the first alone


@dataclass(frozen=True)
class Saved:
    """Snapshots of Alice between and after accruals of a vault, and of a victim of hostile vaults."""

    world: World
    vault: str
    between: Snapshot
    after: Snapshot
    before_attack: Snapshot
    attacked: Snapshot
    hostile: dict[str, str]

    def position(self, snapshot: Snapshot) -> Position:
        (position,) = [each for each in snapshot.positions if each.pool == self.vault]
        return position


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Saved]:
    with LocalNode() as node:
        deployment = deploy(node)
        alice, bob, victim, attacker = (deployment.accounts[name] for name in ("alice", "bob", "grace", "ivan"))
        dai = deployment.tokens["DAI"].address
        world = World(node, deployment, tmp_path_factory.mktemp("savings"))

        def create(name: str, types: list[str], *given: object) -> str:
            at = created_address(attacker, int(node.rpc("eth_getTransactionCount", attacker, "pending"), 16)).lower()
            node.settle([Tx(attacker, None, artifact(name).creation(words(types, *given)), gas=5_000_000)])
            return at

        vault = create("Savings", ["address", "uint256"], dai, RATE)
        for account, raw in ((alice, DEPOSIT), (bob, STAYS)):
            node.settle(
                [
                    tx(account, dai, "mint(address,uint256)", account, raw),
                    tx(account, dai, "approve(address,uint256)", vault, MAX),
                    tx(account, vault, "deposit(uint256,address)", raw, account),
                ]
            )
        node.mine(1, 100 * 86_400)
        node.mine(1)
        between = world.snapshot(alice)
        node.settle([tx(bob, vault, "accrue()")])
        after = world.snapshot(alice)

        node.settle([tx(victim, dai, "mint(address,uint256)", victim, 10 * WAD)])
        before_attack = world.snapshot(victim)
        hostile = {}
        for name, promise in PROMISES.items():
            answers = {
                "asset()": gives("address", dai),
                "convertToAssets(uint256)": gives("uint256", promise),
                "previewRedeem(uint256)": gives("uint256", promise),
            }
            rows = [answer.row(signature) for signature, answer in {**GOOD, **answers}.items()]
            at = hostile[name] = create("Hostile", ["(bytes4,uint8,uint256,bytes)[]"], rows)
            share = Log([TRANSFER, topic_of(ZERO), topic_of(victim)], words(["uint256"], WAD))
            node.settle(
                [
                    log_tx(attacker, at, share),
                    tx(attacker, dai, "mint(address,uint256)", at, FUNDS),
                    tx(victim, dai, "transfer(address,uint256)", at, WAD),  # a deposit, into which she was talked
                ]
            )
        yield Saved(world, vault, between, after, before_attack, world.snapshot(victim), hostile)


def test_an_accruing_vault_counts_between_accruals_with_what_lies_there(saved: Saved) -> None:
    position = saved.position(saved.between)
    assert position.unverified == ""
    (supplied_raw,) = parts([position], "supplied").values()
    height = saved.between.block.height

    def says(contract: str, signature: str, *args: str) -> int:
        number: int = saved.world.node.call(contract, signature, *args, block=height)
        return number

    dai = saved.world.deployment.tokens["DAI"].address
    vault_balance = says(dai, "balanceOf(address)(uint256)", saved.vault)
    shares = says(saved.vault, "balanceOf(address)(uint256)", position.account)
    promised = says(saved.vault, "maxWithdraw(address)(uint256)", position.account)
    assert supplied_raw == vault_balance * shares // says(saved.vault, "totalSupply()(uint256)") >= DEPOSIT
    assert promised * 100 > supplied_raw * 101  # more than a hundredth is promised and not there
    (issue,) = [each for each in saved.between.issues if each.subject == saved.vault]
    assert LAGS in issue.reason
    assert not issue.makes_partial


def test_after_an_accrual_an_accruing_vault_counts_with_what_redeeming_pays(saved: Saved) -> None:
    position, height = saved.position(saved.after), saved.after.block.height
    call = "previewRedeem(uint256)(uint256)"
    shares = saved.world.node.call(saved.vault, "balanceOf(address)(uint256)", position.account, block=height)
    supplied = parts([position], "supplied")
    assert list(supplied.values()) == [saved.world.node.call(saved.vault, call, shares, block=height)]
    redeem = tx(position.account, saved.vault, "redeem(uint256,address,address)", shares, *[position.account] * 2)
    payout = saved.world.payout(position.account, [redeem], saved.after.block)
    assert {token: raw for token, raw in payout.items() if token != saved.vault} == supplied
    assert [each for each in saved.after.issues if each.subject == saved.vault] == []


@pytest.mark.parametrize("name", PROMISES)
def test_a_hostile_vault_never_counts_with_more_than_lies_in_it(saved: Saved, name: str) -> None:
    vault, is_counted = saved.hostile[name], name == "modest"
    positions = [each for each in saved.attacked.positions if each.pool == vault]
    assert [*parts(positions, "supplied").values()] == ([THERE] if is_counted else [])
    (issue,) = [each for each in saved.attacked.issues if each.subject == vault]
    assert (LAGS if is_counted else NOT_COVERED) in issue.reason


def test_what_vaults_of_a_stranger_add_is_what_really_lies_in_them(saved: Saved) -> None:
    before, after = (valuate([each]).value_usd for each in (saved.before_attack, saved.attacked))
    assert 0 < after - before < 2 * FUNDS // WAD  # three vaults have FUNDS each, and promise more
