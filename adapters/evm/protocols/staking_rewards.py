"""Synthetix' StakingRewards and its copies: one token is staked, another is earned by the second."""

from __future__ import annotations

from chainfolio.calls import Call
from chainfolio.protocols import Counterparty, Decoding, Family, Found, Met, Part


def position(met: Met) -> Decoding:
    """What an account has staked, and what it could claim."""
    farm = met.contract
    staked, earned, share, reward = yield [
        Call(farm, "balanceOf(address)(uint256)", (met.account,)),
        Call(farm, "earned(address)(uint256)", (met.account,)),
        Call(farm, "stakingToken()(address)"),
        Call(farm, "rewardsToken()(address)"),
    ]
    return Found("FARMING", supplied=(Part(share, staked),), rewards=(Part(reward, earned),), pool=farm)


FAMILY = Family("staking_rewards", rules=(Counterparty("staking_rewards"),), position=position)
