"""Synthetix' StakingRewards and its copies: one token is staked, another is earned by the second."""

from __future__ import annotations

from adapters.evm.protocols.stakes import borne_out
from chainfolio.calls import Call
from chainfolio.protocols import Counterparty, Decoding, Family, Found, Maybe, Met, Part, Unread


def position(met: Met) -> Decoding:
    """What an account has staked, and what it could claim.

    Of a contract in `staking` it is known that something is staked there, but not how it is asked: Unread where it does
    not answer as one of these, and the account sent something there.
    """
    farm = met.contract
    asks = [
        Call(farm, "balanceOf(address)(uint256)", (met.account,)),
        Call(farm, "earned(address)(uint256)", (met.account,)),
        Call(farm, "stakingToken()(address)"),
        Call(farm, "rewardsToken()(address)"),
    ]
    is_named = met.is_listed("staking_rewards")
    staked, earned, share, reward = yield asks if is_named else [Maybe(ask) for ask in asks]
    if None in (staked, earned, share, reward):
        if farm not in met.sent:
            return None
        raise Unread("no decoder knows how to ask what is staked there")
    found = Found("FARMING", supplied=(Part(share, staked),), rewards=(Part(reward, earned),), pool=farm)
    if is_named and not met.is_fork:
        return found
    return (yield from borne_out(met, [found])) if staked or earned else None


FAMILY = Family("staking_rewards", rules=(Counterparty("staking_rewards"), Counterparty("staking")), position=position)
