"""Synthetix' StakingRewards and its copies: one token is staked, another is earned by the second."""

from __future__ import annotations

from adapters.evm.positions.rules import Counterparty, DecoderPlan, Family, MayRefuse, ProtocolMatch, Unread
from adapters.evm.protocols.stakes import borne_out
from adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount


def position(match: ProtocolMatch) -> DecoderPlan:
    """What an account has staked, and what it could claim.

    Of a contract in `staking` it is known that something is staked there, but not how it is asked: Unread where it does
    not answer as one of these, and the account sent something there.
    """
    farm = match.contract
    reads = [
        Call(farm, "balanceOf(address)(uint256)", (match.account,)),
        Call(farm, "earned(address)(uint256)", (match.account,)),
        Call(farm, "stakingToken()(address)"),
        Call(farm, "rewardsToken()(address)"),
    ]
    is_named = match.is_listed("staking_rewards")
    staked, earned, share, reward = yield reads if is_named else [MayRefuse(ask) for ask in reads]
    if None in (staked, earned, share, reward):
        if farm not in match.sent:
            return None
        raise Unread("no decoder knows how to ask what is staked there")
    found = DecodedPosition(
        "FARMING", supplied=(TokenAmount(share, staked),), rewards=(TokenAmount(reward, earned),), pool=farm
    )
    if is_named and not match.is_fork:
        return found
    return (yield from borne_out(match, [found])) if staked or earned else None


FAMILY = Family("staking_rewards", rules=(Counterparty("staking_rewards"), Counterparty("staking")), position=position)
