"""Stargate V2's staking: pool shares that earn the tokens of one rewarder for each share."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Event, Family, MayRefuse, ProtocolMatch
from chainfolio.adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode one position for each share that the account has staked; a withdrawal pays all rewards.

    The staking contract's owner decides which shares it takes. A rewarder that refuses hides no stake.
    """
    staking, account = match.contract, match.account
    (shares,) = yield [Call(staking, "tokens()(address[])")]
    results = yield [
        read
        for share in shares
        for read in (
            Call(staking, "balanceOf(address,address)(uint256)", (share, account)),
            Call(staking, "rewarder(address)(address)", (share,)),
        )
    ]
    stakes = [
        (share, raw, rewarder) for share, raw, rewarder in zip(shares, results[::2], results[1::2], strict=True) if raw
    ]
    rewards = yield [
        MayRefuse(Call(rewarder, "getRewards(address,address)(address[],uint256[])", (share, account)))
        for share, _, rewarder in stakes
    ]
    return [
        DecodedPosition(
            "FARMING",
            supplied=(TokenAmount(share, raw),),
            rewards=() if reward is None else tuple(map(TokenAmount, *reward)),
            pool=staking,
            unknown="its rewards" if reward is None else "",
        )
        for (share, raw, _), reward in zip(stakes, rewards, strict=True)
    ]


FAMILY = Family(
    "stargate_farm",
    rules=(
        Counterparty("staking"),
        Event(
            "staking",
            "Deposit(address indexed token, address indexed from, address indexed to, uint256 amount)",
            owner=2,
        ),
    ),
    position=position,
    roles=("rewarder",),
    calls=(
        TypedCalls("STAKE", "loss", ("deposit", "depositTo")),
        TypedCalls("CLAIM", "gain", ("claim",)),
        TypedCalls("UNSTAKE", "gain", ("withdraw", "emergencyWithdraw")),
        TypedCalls("STAKE", "loss", (), ("staking",)),
        TypedCalls("UNSTAKE", "gain", (), ("staking",)),
        TypedCalls("CLAIM", "gain", (), ("rewarder",)),
    ),
)
