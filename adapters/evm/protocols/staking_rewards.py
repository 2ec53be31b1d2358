"""Synthetix' StakingRewards and its copies: one token is staked, another is earned by the second."""

from __future__ import annotations

from chainfolio.calls import Call
from chainfolio.protocols import Counterparty, DecodedPosition, DecoderPlan, Family, ProtocolMatch, TokenAmount


def position(match: ProtocolMatch) -> DecoderPlan:
    """What an account has staked, and what it could claim."""
    farm = match.contract
    staked, earned, share, reward = yield [
        Call(farm, "balanceOf(address)(uint256)", (match.account,)),
        Call(farm, "earned(address)(uint256)", (match.account,)),
        Call(farm, "stakingToken()(address)"),
        Call(farm, "rewardsToken()(address)"),
    ]
    return DecodedPosition(
        "FARMING", supplied=(TokenAmount(share, staked),), rewards=(TokenAmount(reward, earned),), pool=farm
    )


FAMILY = Family("staking_rewards", rules=(Counterparty("staking_rewards"),), position=position)
