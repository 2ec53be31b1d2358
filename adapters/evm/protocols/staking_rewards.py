"""Synthetix' StakingRewards and its copies: one token is staked, another is earned by the second."""

from __future__ import annotations

from chainfolio.calls import Call, Reads
from chainfolio.protocols import Counterparty, Family, Found, Met, Part, all_known


def position(met: Met) -> Reads:
    """What an account has staked, and what it could claim."""
    farm = met.contract
    staked, earned, share, reward = all_known(
        (
            yield [
                Call(farm, "balanceOf(address)(uint256)", (met.account,)),
                Call(farm, "earned(address)(uint256)", (met.account,)),
                Call(farm, "stakingToken()(address)"),
                Call(farm, "rewardsToken()(address)"),
            ]
        )
    )
    return Found("FARMING", supplied=(Part(share, staked),), rewards=(Part(reward, earned),), pool=farm)


FAMILY = Family("staking_rewards", rules=(Counterparty("staking_rewards"),), position=position)
