"""Stargate V2's pools and staking, deployed from the code that its authors publish."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from chainfolio.adapters.evm.positions.interactions import ContractInteractions
from chainfolio.adapters.evm.positions.outcomes import Outcome
from chainfolio.plans import Reverted
from chainfolio.protocols import TokenAmount
from tests.protocols.artifact_deployment import DAY, ETH, PublishedChain
from tests.protocols.published import ETHER, Overrides, amounts, exchanged, needs_contracts, positions

pytestmark = needs_contracts


@dataclass(frozen=True)
class Stargate:
    chain: PublishedChain
    usdc: str
    stg: str
    pool: str
    native: str
    staking: str
    rewarder: str
    share: str

    def farms(self, account: str, overrides: Overrides | None = None) -> list[Outcome]:
        return self.chain.outcomes(
            "stargate_farm", {"staking": [self.staking]}, account, exchanged(self.staking), overrides=overrides
        )


@pytest.fixture(scope="module")
def stargate(published_chain: PublishedChain) -> Stargate:
    chain = published_chain
    alice, owner = chain.alice, chain.owner
    endpoint = chain.answering(30_101)
    usdc, stg = chain.token("USDC", alice=1000 * ETH), chain.token("STG")
    pool = chain.deploy("stargate/StargatePool", "USDC LP", "S*USDC", usdc, 18, 6, endpoint, owner)
    native = chain.deploy("stargate/StargatePoolNative", "ETH LP", "S*ETH", 18, 6, endpoint, owner)
    staking = chain.deploy("stargate/StargateStaking")
    rewarder = chain.deploy("stargate/StargateMultiRewarder", staking)
    share = str(chain.read(pool, "lpToken()(address)"))
    chain.do(owner, staking, "setPool(address,address)", share, rewarder)
    chain.approve(owner, rewarder, stg)
    reward = "setReward(address,uint256,uint48,uint48)"
    chain.do(owner, rewarder, reward, stg, 100 * DAY * 10**15, chain.time_s + 60, 100 * DAY)
    chain.do(owner, rewarder, "setAllocPoints(address,address[],uint48[])", stg, [share], [100])
    chain.approve(alice, pool, usdc)
    chain.do(alice, pool, "deposit(address,uint256)", alice, 1000 * ETH)
    chain.approve(alice, staking, share)
    chain.do(alice, staking, "deposit(address,uint256)", share, 400 * ETH)
    chain.do(alice, native, "deposit(address,uint256)", alice, 2 * ETH, value=2 * ETH)
    chain.wait(10 * DAY)
    return Stargate(chain, usdc, stg, pool, native, staking, rewarder, share)


def test_a_share_is_one_unit_of_the_pool_s_token(stargate: Stargate) -> None:
    pools = {"pool": [stargate.pool, stargate.native]}
    native_share = stargate.chain.read(stargate.native, "lpToken()(address)")
    assert stargate.chain.unwrapped("stargate", pools, stargate.share, 600) == (TokenAmount(stargate.usdc, 600),)
    assert stargate.chain.unwrapped("stargate", pools, native_share, 7) == (TokenAmount(ETHER, 7),)


def test_a_token_that_only_names_a_pool_is_no_share_of_it(stargate: Stargate) -> None:
    overrides = {(stargate.stg, "stargate"): stargate.pool}
    assert stargate.chain.unwrapped("stargate", {"pool": [stargate.pool]}, stargate.stg, 7, overrides=overrides) is None
    assert stargate.chain.unwrapped("stargate", {"pool": [stargate.native]}, stargate.share, 7) is None


def test_leaving_the_farm_pays_what_the_position_shows(stargate: Stargate) -> None:
    chain, alice = stargate.chain, stargate.chain.alice
    snapshot = chain.node.rpc("evm_snapshot")
    chain.do(alice, stargate.staking, "withdraw(address,uint256)", stargate.share, 400 * ETH)
    payout, at = chain.balance(stargate.stg, alice), chain.time_s
    assert positions(stargate.farms(alice)) == []
    chain.node.rpc("evm_revert", snapshot)
    chain.node.rpc("evm_setNextBlockTimestamp", at)
    chain.node.mine()
    (farm,) = positions(stargate.farms(alice))
    assert amounts([farm], "supplied") == {stargate.share: 400 * ETH}
    assert amounts([farm], "rewards") == {stargate.stg: payout}
    assert payout > 9 * DAY * 10**15


def test_a_refusing_rewarder_hides_no_stake_and_a_refusing_contract_is_an_issue(stargate: Stargate) -> None:
    (farm,) = positions(stargate.farms(stargate.chain.alice, {(stargate.rewarder, "getRewards"): Reverted()}))
    assert (farm.unknown, farm.rewards) == ("its rewards", ())
    assert amounts([farm], "supplied") == {stargate.share: 400 * ETH}
    (outcome,) = stargate.farms(stargate.chain.alice, {(stargate.staking, "tokens"): Reverted()})
    assert not outcome.positions
    assert len(outcome.issues) == 1


def test_who_has_nothing_there_has_no_position(stargate: Stargate) -> None:
    assert positions(stargate.farms(stargate.chain.bob)) == []
    outcomes = stargate.chain.outcomes("stargate_farm", {"staking": [stargate.staking]}, "0x", ContractInteractions())
    assert outcomes == []
