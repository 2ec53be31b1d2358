"""Gearbox' staked GEAR and a pool's share, deployed from the code that its authors publish."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chainfolio.localchain.evm import MAX
from chainfolio.plans import Reverted
from chainfolio.protocols import DecodedPosition, TokenAmount
from tests.protocols.artifact_deployment import ETH, WEEK, PublishedChain
from tests.protocols.published import amounts, exchanged, needs_contracts, positions

pytestmark = needs_contracts


class Gearbox:
    """GEAR that Alice staked, 30 of 100 of it on the way out."""

    def __init__(self, chain: PublishedChain) -> None:
        self.chain, alice = chain, chain.alice
        self.gear = chain.token("GEAR", alice=100 * ETH)
        self.staking = chain.deploy("gearbox/GearStakingV3", chain.answering(int(self.gear, 16)))
        chain.approve(alice, self.staking, self.gear)
        chain.do(alice, self.staking, "deposit(uint96,(address,uint96,bool,bytes)[])", 100 * ETH, [])
        chain.wait(2 * WEEK)
        withdraw = "withdraw(uint96,address,(address,uint96,bool,bytes)[])"
        chain.do(alice, self.staking, withdraw, 30 * ETH, alice, [])

    def positions(self) -> Sequence[DecodedPosition]:
        """The positions of Alice."""
        contracts = {"gear_staking": [self.staking]}
        return positions(self.chain.outcomes("gear_staking", contracts, self.chain.alice, exchanged(self.staking)))


@pytest.fixture(scope="module")
def gearbox(published_chain: PublishedChain) -> Gearbox:
    return Gearbox(published_chain)


def test_gear_on_its_way_out_is_shown_apart_and_pays_what_was_shown(gearbox: Gearbox) -> None:
    chain, alice, gear = gearbox.chain, gearbox.chain.alice, gearbox.gear
    snapshot = chain.node.rpc("evm_snapshot")
    staked, leaving = gearbox.positions()
    assert (amounts([staked], "supplied"), amounts([leaving], "supplied")) == ({gear: 70 * ETH}, {gear: 30 * ETH})
    chain.wait(leaving.unlock_s - chain.time_s - 100)  # the last epoch in which it cannot be taken
    assert [each.unlock_s for each in gearbox.positions()[1:]] == [leaving.unlock_s]
    chain.wait(200)
    staked, ready = gearbox.positions()
    assert ready.unlock_s == 0
    chain.do(alice, gearbox.staking, "claimWithdrawals(address)", alice)
    assert amounts([ready], "supplied") == {gear: chain.balance(gear, alice)}
    assert gearbox.positions() == [staked]
    chain.node.rpc("evm_revert", snapshot)


def test_gear_of_which_all_is_on_its_way_out_has_no_stake_left(gearbox: Gearbox) -> None:
    chain, alice = gearbox.chain, gearbox.chain.alice
    snapshot = chain.node.rpc("evm_snapshot")
    withdraw = "withdraw(uint96,address,(address,uint96,bool,bytes)[])"
    chain.do(alice, gearbox.staking, withdraw, 70 * ETH, alice, [])
    staked, *leaving = gearbox.positions()
    assert [each.raw for each in staked.supplied] == [0]
    assert sum(each.supplied[0].raw for each in leaving) == 100 * ETH
    chain.node.rpc("evm_revert", snapshot)


def test_gear_that_has_voted_stays_staked(gearbox: Gearbox) -> None:
    chain, staking = gearbox.chain, gearbox.staking
    snapshot = chain.node.rpc("evm_snapshot")
    poll, owner = chain.answering(1), chain.read(staking, "owner()(address)")
    chain.node.rpc("anvil_impersonateAccount", owner)
    chain.node.rpc("anvil_setBalance", owner, hex(1000 * ETH))
    chain.do(owner, staking, "setVotingContractStatus(address,uint8)", poll, 1)
    chain.do(chain.alice, staking, "multivote((address,uint96,bool,bytes)[])", [(poll, 60 * ETH, True, b"")])
    assert chain.read(staking, "availableBalance(address)(uint256)", chain.alice) == 10 * ETH
    staked, leaving = gearbox.positions()
    assert (amounts([staked], "supplied"), amounts([leaving], "supplied")) == (
        {gearbox.gear: 70 * ETH},
        {gearbox.gear: 30 * ETH},
    )
    chain.node.rpc("evm_revert", snapshot)


def test_a_refusing_contract_is_an_issue_and_not_zero(gearbox: Gearbox) -> None:
    chain, contracts = gearbox.chain, {"gear_staking": [gearbox.staking]}
    overrides = {(gearbox.staking, "getWithdrawableAmounts"): Reverted()}
    (outcome,) = chain.outcomes("gear_staking", contracts, chain.alice, exchanged(gearbox.staking), overrides=overrides)
    assert not outcome.positions
    assert len(outcome.issues) == 1


def test_a_share_of_a_pool_is_a_vault_share_that_pays_what_it_stands_for(gearbox: Gearbox) -> None:
    chain, alice = gearbox.chain, gearbox.chain.alice
    usdc, yes = chain.token("USDC", alice=1000 * ETH), chain.answering(1)
    rates = chain.deploy("gearbox/LinearInterestRateModelV3", 8000, 9000, 0, 200, 500, 4000, False)
    pool = chain.deploy("gearbox/PoolV3", yes, yes, usdc, chain.carol, rates, MAX, "Trade USDC", "dUSDCV3")
    chain.approve(alice, pool, usdc)
    chain.do(alice, pool, "deposit(uint256,address)", 1000 * ETH, alice)
    (part,) = chain.unwrapped("erc4626", {"vault": [pool]}, pool, 400 * ETH)
    chain.do(alice, pool, "redeem(uint256,address,address)", 400 * ETH, alice, alice)
    assert part == TokenAmount(usdc, chain.balance(usdc, alice))
