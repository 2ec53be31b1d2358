"""Trader Joe's sJOE: staked JOE that earns the protocol's fees in other tokens."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Family, MayRefuse, ProtocolMatch
from chainfolio.adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

MAX_REWARDS = 25  # the contract's own limit


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode the account's staked JOE, and what each reward token would pay; refused rewards are unknown.

    At most MAX_REWARDS reward tokens are read.
    """
    staking, account = match.contract, match.account
    joe, count = yield [Call(staking, "joe()(address)"), Call(staking, "rewardTokensLength()(uint256)")]
    indexes = range(min(count, MAX_REWARDS))
    first, *tokens = yield [
        Call(staking, "getUserInfo(address,address)(uint256,uint256)", (account, joe)),
        *(Call(staking, "rewardTokens(uint256)(address)", (index,)) for index in indexes),
    ]
    raws = yield [MayRefuse(Call(staking, "pendingReward(address,address)(uint256)", (account, t))) for t in tokens]
    pairs = [(token, raw) for token, raw in zip(tokens, raws, strict=True) if raw is not None]
    return DecodedPosition(
        "STAKED",
        supplied=(TokenAmount(joe, first[0]),),
        rewards=tuple(TokenAmount(token, raw) for token, raw in pairs),
        pool=staking,
        unknown="one of its rewards" if None in raws else "",
    )


FAMILY = Family(
    "joe_stake",
    rules=(Counterparty("fee_stake"),),
    position=position,
    calls=(
        TypedCalls("STAKE", "loss", ("deposit",)),
        TypedCalls("CLAIM", "gain", ("deposit",)),
        TypedCalls("UNSTAKE", "gain", ("withdraw", "emergencyWithdraw")),
        TypedCalls("STAKE", "loss", (), ("fee_stake",)),
        TypedCalls("UNSTAKE", "gain", (), ("fee_stake",)),
    ),
)
