"""Synthetix' StakingRewards and its copies: one token is staked, another one is earned every second."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import (
    Counterparty,
    DecoderPlan,
    Family,
    MayRefuse,
    ProtocolMatch,
    ReadError,
)
from chainfolio.adapters.evm.protocols.stakes import verify_stakes
from chainfolio.adapters.evm.reads import Call, balance_of
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode what an account has staked, and what it could claim.

    Only contracts in role `staking_rewards` of a reviewed protocol are trusted: their positions are returned even with
    amounts of 0. Others are verified by `verify_stakes`, and None without a stake and a reward.

    Contracts in other roles (`staking`) are known to take stakes, but not by which functions. None if such a contract
    refuses the calls and the account sent nothing there.

    Raises:
        ReadError: It refuses the calls, but the account sent something there.
    """
    farm = match.contract
    reads = [
        balance_of(farm, match.account),
        Call(farm, "earned(address)(uint256)", (match.account,)),
        Call(farm, "stakingToken()(address)"),
        Call(farm, "rewardsToken()(address)"),
    ]
    is_listed = match.is_listed("staking_rewards")
    staked, reward, staking_token, reward_token = yield reads if is_listed else [MayRefuse(read) for read in reads]
    if None in (staked, reward, staking_token, reward_token):
        if farm not in match.sent:
            return None
        raise ReadError("no decoder knows how to ask what is staked there")
    stake = DecodedPosition(
        "FARMING",
        supplied=(TokenAmount(staking_token, staked),),
        rewards=(TokenAmount(reward_token, reward),),
        pool=farm,
    )
    if is_listed and not match.is_fork:
        return stake
    return (yield from verify_stakes(match, [stake])) if staked or reward else None


FAMILY = Family(
    "staking_rewards",
    rules=(Counterparty("staking_rewards"), Counterparty("staking")),
    position=position,
    calls=(
        TypedCalls("STAKE", "loss", ("stake", "stakeFor", "stakeWithPermit", "deposit")),
        TypedCalls("CLAIM", "gain", ("getReward", "claim")),
        TypedCalls("UNSTAKE", "gain", ("withdraw", "exit", "unstake")),
        TypedCalls("STAKE", "loss", (), ("staking_rewards", "staking")),
        TypedCalls("UNSTAKE", "gain", (), ("staking_rewards", "staking")),
    ),
)
