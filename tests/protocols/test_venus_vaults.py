"""Venus' vaults of XVS and VAI, deployed from the code that its authors publish."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chainfolio.plans import Reverted
from chainfolio.protocols import DecodedPosition
from tests.protocols.artifact_deployment import ETH, WEEK, PublishedChain
from tests.protocols.published import amounts, exchanged, needs_contracts, positions

pytestmark = needs_contracts


class Venus:
    """Both vaults; Alice has staked 300 XVS (100 are being withdrawn) and 200 VAI."""

    def __init__(self, chain: PublishedChain) -> None:
        self.chain = chain
        owner, alice, bob = chain.owner, chain.alice, chain.bob
        self.xvs, self.vai = chain.deploy("venus/XVS", owner), chain.deploy("venus/VAI", 31337)
        chain.do(owner, self.vai, "mint(address,uint256)", alice, 500 * ETH)
        self.vault, store = self._proxied("XVSVault"), chain.deploy("venus/XVSStore")
        chain.do(owner, store, "setNewOwner(address)", self.vault)
        chain.do(owner, self.vault, "setXvsStore(address,address)", self.xvs, store)
        chain.do(owner, store, "setRewardToken(address,bool)", self.xvs, True)
        chain.do(owner, self.vault, "setAccessControl(address)", chain.answering(1))
        chain.do(owner, self.vault, "initializeTimeManager(bool,uint256)", False, 10_512_000)
        pool = self.xvs, 100, self.xvs, ETH // 100, WEEK
        chain.do(owner, self.vault, "add(address,uint256,address,uint256,uint256)", *pool)
        chain.do(owner, self.xvs, "transfer(address,uint256)", store, 10**6 * ETH)
        for account, raw in ((alice, 300 * ETH), (bob, 100 * ETH)):
            chain.do(owner, self.xvs, "transfer(address,uint256)", account, 1000 * ETH)
            chain.do(account, self.xvs, "approve(address,uint256)", self.vault, 2**96 - 1)
            chain.do(account, self.vault, "deposit(address,uint256,uint256)", self.xvs, 0, raw)
        chain.do(alice, self.vault, "requestWithdrawal(address,uint256,uint256)", self.xvs, 0, 100 * ETH)
        chain.node.mine(50)
        self.vai_vault = self._proxied("VAIVault")
        chain.do(owner, self.vai_vault, "setVenusInfo(address,address)", self.xvs, self.vai)
        chain.approve(alice, self.vai_vault, self.vai)
        chain.do(alice, self.vai_vault, "deposit(uint256)", 200 * ETH)
        chain.do(owner, self.xvs, "transfer(address,uint256)", self.vai_vault, 50 * ETH)
        chain.do(owner, self.vai_vault, "updatePendingRewards()")

    def _proxied(self, name: str) -> str:
        """A vault behind Venus' own proxy."""
        chain = self.chain
        proxy, code = chain.deploy(f"venus/{name}Proxy"), chain.deploy(f"venus/{name}")
        chain.do(chain.owner, proxy, "_setPendingImplementation(address)", code)
        chain.do(chain.owner, code, "_become(address)", proxy)
        return proxy

    def positions(self, family: str, role: str, vault: str) -> Sequence[DecodedPosition]:
        """The positions of Alice in one vault."""
        return positions(self.chain.outcomes(family, {role: [vault]}, self.chain.alice, exchanged(vault)))


@pytest.fixture(scope="module")
def venus(published_chain: PublishedChain) -> Venus:
    return Venus(published_chain)


def test_what_waits_is_not_staked_and_pays_what_was_shown(venus: Venus) -> None:
    chain, alice = venus.chain, venus.chain.alice
    snapshot = chain.node.rpc("evm_snapshot")
    stake, waiting = venus.positions("venus_vault", "xvs_vault", venus.vault)
    assert amounts([stake], "supplied") == {venus.xvs: 200 * ETH}
    assert amounts([waiting], "supplied") == {venus.xvs: 100 * ETH}
    assert 0 < waiting.unlock_s - chain.time_s <= WEEK
    chain.wait(8 * 86_400)
    before = chain.balance(venus.xvs, alice)
    chain.do(alice, venus.vault, "executeWithdrawal(address,uint256)", venus.xvs, 0)
    assert chain.balance(venus.xvs, alice) - before == 100 * ETH
    (stake,) = venus.positions("venus_vault", "xvs_vault", venus.vault)
    assert amounts([stake], "supplied") == {venus.xvs: 200 * ETH}
    chain.node.rpc("evm_revert", snapshot)


def test_a_claim_pays_the_reward_that_is_shown(venus: Venus) -> None:
    chain, alice = venus.chain, venus.chain.alice
    snapshot, before = chain.node.rpc("evm_snapshot"), chain.balance(venus.xvs, alice)
    chain.do(alice, venus.vault, "claim(address,address,uint256)", alice, venus.xvs, 0)
    payout = chain.balance(venus.xvs, alice) - before
    chain.node.rpc("evm_revert", snapshot)
    chain.node.mine()
    stake, _ = venus.positions("venus_vault", "xvs_vault", venus.vault)
    assert amounts([stake], "rewards") == {venus.xvs: payout}
    assert payout > ETH // 10


def test_what_the_vault_owes_from_a_failed_payment_is_counted_once(venus: Venus) -> None:
    (plain, _), chain = venus.positions("venus_vault", "xvs_vault", venus.vault), venus.chain
    overrides = {(venus.vault, "pendingRewardTransfers"): 7, (venus.vault, "poolLength"): 1}
    outcomes = chain.outcomes(
        "venus_vault", {"xvs_vault": [venus.vault]}, chain.alice, exchanged(venus.vault), overrides=overrides
    )
    assert amounts(positions(outcomes), "rewards")[venus.xvs] == amounts([plain], "rewards")[venus.xvs] + 7


def test_vai_earns_what_a_claim_pays_although_the_vault_does_not_count_it_yet(venus: Venus) -> None:
    chain, alice = venus.chain, venus.chain.alice
    assert chain.read(venus.vai_vault, "pendingXVS(address)(uint256)", alice) == 0
    (stake,) = venus.positions("venus_vai", "vai_vault", venus.vai_vault)
    assert amounts([stake], "supplied") == {venus.vai: 200 * ETH}
    snapshot, before = chain.node.rpc("evm_snapshot"), chain.balance(venus.xvs, alice)
    chain.do(alice, venus.vai_vault, "claim()")
    assert amounts([stake], "rewards") == {venus.xvs: chain.balance(venus.xvs, alice) - before}
    chain.do(alice, venus.vai_vault, "withdraw(uint256)", 200 * ETH)
    assert amounts(venus.positions("venus_vai", "vai_vault", venus.vai_vault), "supplied", "rewards") == {}
    chain.node.rpc("evm_revert", snapshot)


def test_a_refusing_vault_is_an_issue_and_not_zero(venus: Venus) -> None:
    chain = venus.chain
    overrides = {(venus.vault, "getUserInfo"): Reverted()}
    (outcome,) = chain.outcomes(
        "venus_vault", {"xvs_vault": [venus.vault]}, chain.alice, exchanged(venus.vault), overrides=overrides
    )
    assert not outcome.positions
    assert len(outcome.issues) == 1
