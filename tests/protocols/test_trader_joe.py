"""Trader Joe's farms, sJOE, veJOE and xJOE, deployed from the code that its authors publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from chainfolio.localchain.evm import ZERO
from chainfolio.plans import Reverted
from chainfolio.protocols import DecodedPosition, TokenAmount
from tests.protocols.artifact_deployment import DAY, ETH, PublishedChain
from tests.protocols.published import Overrides, amounts, exchanged, needs_contracts, positions

pytestmark = needs_contracts
TOKEN = {"token": "joe()(address)"}


class Joe:
    """Both farms with one pool each, and what can be done with JOE alone; a day later."""

    def __init__(self, chain: PublishedChain) -> None:
        self.chain = chain
        owner, alice, carol = chain.owner, chain.alice, chain.carol
        self.joe, self.share = chain.deploy("traderjoe/JoeToken"), chain.token("JLP", alice=10**21, bob=10**21)
        self.bonus, self.usdc = chain.token("TWO"), chain.token("USDC")
        chain.do(owner, self.joe, "mint(address,uint256)", alice, 1000 * ETH)
        chain.do(owner, self.joe, "mint(address,uint256)", owner, 1000 * ETH)
        self.sjoe = chain.proxied(
            "traderjoe/StableJoeStaking",
            "initialize(address,address,address,uint256)",
            self.usdc,
            self.joe,
            carol,
            3 * 10**16,
        )
        vejoe, self.bar = chain.deploy("traderjoe/VeJoeToken"), chain.deploy("traderjoe/JoeBar", self.joe)
        rates = 3_170_979_198_376, 3_170_979_198_376, 5, 15 * DAY, 10_000
        self.vejoe = chain.proxied(
            "traderjoe/VeJoeStaking",
            "initialize(address,address,uint256,uint256,uint256,uint256,uint256)",
            self.joe,
            vejoe,
            *rates,
        )
        self._farms(vejoe)
        chain.approve(alice, self.sjoe, self.joe)
        chain.approve(alice, self.vejoe, self.joe)
        chain.approve(alice, self.bar, self.joe)
        chain.do(alice, self.sjoe, "deposit(uint256)", 100 * ETH)
        chain.do(alice, self.vejoe, "deposit(uint256)", 200 * ETH)
        chain.do(alice, self.bar, "enter(uint256)", 50 * ETH)
        chain.do(owner, self.usdc, "transfer(address,uint256)", self.sjoe, 70 * ETH)
        chain.do(owner, self.joe, "transfer(address,uint256)", self.bar, 25 * ETH)
        chain.wait(DAY)

    def _farms(self, vejoe: str) -> None:
        """The farm of release 2, and the boosted one, which it feeds by a dummy pool."""
        chain, owner, carol = self.chain, self.chain.owner, self.chain.carol
        shares = carol, carol, carol, ETH, chain.time_s, 200, 200, 100
        self.chef = chain.deploy("traderjoe/MasterChefJoeV2", self.joe, *shares)
        dummy = chain.token("DUMMY")
        chain.do(owner, self.chef, "add(uint256,address,address)", 100, dummy, ZERO)
        chain.do(owner, self.chef, "add(uint256,address,address)", 100, self.share, ZERO)
        self.boosted = chain.proxied(
            "traderjoe/BoostedMasterChefJoe",
            "initialize(address,address,address,uint256)",
            self.chef,
            self.joe,
            vejoe,
            0,
        )
        chain.do(owner, vejoe, "setBoostedMasterChefJoe(address)", self.boosted)
        chain.do(owner, vejoe, "transferOwnership(address)", self.vejoe)
        chain.do(owner, self.joe, "transferOwnership(address)", self.chef)
        chain.approve(owner, self.boosted, dummy)
        # The dummy pool's only token: `init` stakes all that its caller has.
        chain.do(owner, dummy, "transfer(address,uint256)", carol, chain.balance(dummy, owner) - 1)
        chain.do(owner, self.boosted, "init(address)", dummy)
        rewarder = chain.deploy(
            "traderjoe/SimpleRewarderPerSec", self.bonus, self.share, ETH // 10, self.boosted, False
        )
        chain.do(owner, self.bonus, "transfer(address,uint256)", rewarder, 10**6 * ETH)
        chain.do(owner, self.boosted, "add(uint96,uint32,address,address)", 100, 4000, self.share, rewarder)
        for account, raw in ((chain.alice, 300 * ETH), (chain.bob, 100 * ETH)):
            for chef, pool in ((self.chef, 1), (self.boosted, 0)):
                chain.approve(account, chef, self.share)
                chain.do(account, chef, "deposit(uint256,uint256)", pool, raw)

    def positions(
        self,
        family: str,
        role: str,
        contract: str,
        overrides: Overrides | None = None,
        extra: Mapping[str, Sequence[str]] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Sequence[DecodedPosition]:
        """The positions of Alice in one contract."""
        contracts = {role: [contract], **(extra or {})}
        account = self.chain.alice
        outcomes = self.chain.outcomes(
            family, contracts, account, exchanged(contract), overrides=overrides, options=options
        )
        return positions(outcomes)


@pytest.fixture(scope="module")
def joe(published_chain: PublishedChain) -> Joe:
    return Joe(published_chain)


@pytest.mark.parametrize(("chef", "pool"), [("chef", 1), ("boosted", 0)], ids=["release-2", "boosted"])
def test_a_harvest_and_leaving_pay_what_the_position_shows(joe: Joe, chef: str, pool: int) -> None:
    """Leaving may pay more: it lowers the supply before the second reward is counted."""
    chain, alice, contract = joe.chain, joe.chain.alice, getattr(joe, chef)
    snapshot = chain.node.rpc("evm_snapshot")
    before = {token: chain.balance(token, alice) for token in (joe.joe, joe.bonus)}
    chain.do(alice, contract, "deposit(uint256,uint256)", pool, 0)
    at = chain.time_s
    payout = {token: chain.balance(token, alice) - raw for token, raw in before.items()}
    chain.node.rpc("evm_revert", snapshot)
    snapshot = chain.node.rpc("evm_snapshot")
    chain.node.rpc("evm_setNextBlockTimestamp", at)
    chain.node.mine()
    (farm,) = joe.positions("joe_farm", "chef", contract)
    assert amounts([farm], "rewards") == {token: raw for token, raw in payout.items() if raw}
    assert amounts([farm], "supplied") == {joe.share: 300 * ETH}
    assert payout[joe.joe] > 1000 * ETH
    chain.do(alice, contract, "withdraw(uint256,uint256)", pool, 300 * ETH)
    assert joe.positions("joe_farm", "chef", contract) == []
    chain.node.rpc("evm_revert", snapshot)


def test_a_farm_that_refuses_to_count_rewards_hides_no_stake(joe: Joe) -> None:
    (farm,) = joe.positions("joe_farm", "chef", joe.chef, {(joe.chef, "pendingTokens"): Reverted()})
    assert amounts([farm], "supplied") == {joe.share: 300 * ETH}
    assert farm.unknown == "what it earned"


def test_staked_joe_earns_fees_and_counts_without_its_own_fee(joe: Joe) -> None:
    (stake,) = joe.positions("joe_stake", "fee_stake", joe.sjoe)
    assert amounts([stake], "supplied") == {joe.joe: 97 * ETH}
    chain = joe.chain
    snapshot = chain.node.rpc("evm_snapshot")
    chain.do(chain.alice, joe.sjoe, "withdraw(uint256)", 97 * ETH)
    assert amounts([stake], "rewards") == {joe.usdc: chain.balance(joe.usdc, chain.alice)}
    chain.node.rpc("evm_revert", snapshot)
    (refused,) = joe.positions("joe_stake", "fee_stake", joe.sjoe, {(joe.sjoe, "pendingReward"): Reverted()})
    assert refused.unknown
    assert amounts([refused], "supplied") == {joe.joe: 97 * ETH}


def test_joe_staked_for_votes_is_a_staked_balance(joe: Joe) -> None:
    options = {"amount": "userInfos(address)(uint256)", "kind": "STAKED"}
    extra = {"staked_token": [joe.joe]}
    (stake,) = joe.positions("staked_balance", "stake", joe.vejoe, extra=extra, options=options)
    assert amounts([stake], "supplied") == {joe.joe: 200 * ETH}


def test_a_share_of_the_bar_is_what_leaving_pays_gifts_included(joe: Joe) -> None:
    chain, alice = joe.chain, joe.chain.alice
    share = chain.balance(joe.bar, alice)
    snapshot, before = chain.node.rpc("evm_snapshot"), chain.balance(joe.joe, alice)
    part = chain.unwrapped("token_bar", {"bar": [joe.bar]}, joe.bar, share, options=TOKEN)
    chain.do(alice, joe.bar, "leave(uint256)", share)
    assert part == (TokenAmount(joe.joe, chain.balance(joe.joe, alice) - before),)
    assert part[0].raw == 75 * ETH
    assert chain.unwrapped("token_bar", {"bar": [joe.bar]}, joe.bar, share, options=TOKEN) is None
    chain.node.rpc("evm_revert", snapshot)
