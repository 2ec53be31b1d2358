"""GMX: staked GMX and escrowed GMX, and what they earned."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Family, MayRefuse, ProtocolMatch
from chainfolio.adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

TOKENS = ("gmx()(address)", "esGmx()(address)")


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode the deposits in the tracker of staked GMX; rewards come from it and from the tracker of fees.

    The router of the file names the tokens and the tracker of fees, in which the same stake lies once more.
    """
    tracker, account = match.contract, match.account
    (router,) = match.contracts["reward_router"]
    gmx, escrowed, fees, reward = yield [
        *(Call(router, token) for token in TOKENS),
        Call(router, "feeGmxTracker()(address)"),
        Call(tracker, "rewardToken()(address)"),
    ]
    *deposits, earned, fee_token, fee = yield [
        *(Call(tracker, "depositBalances(address,address)(uint256)", (account, token)) for token in (gmx, escrowed)),
        Call(tracker, "claimable(address)(uint256)", (account,)),
        MayRefuse(Call(fees, "rewardToken()(address)")),
        MayRefuse(Call(fees, "claimable(address)(uint256)", (account,))),
    ]
    are_known = None not in (fee_token, fee)
    return DecodedPosition(
        "STAKED",
        supplied=tuple(map(TokenAmount, (gmx, escrowed), deposits)),
        rewards=(TokenAmount(reward, earned), *((TokenAmount(fee_token, fee),) if are_known else ())),
        pool=tracker,
        unknown="" if are_known else "its part of the fees",
    )


FAMILY = Family(
    "gmx_stake",
    rules=(Counterparty("staked_gmx"),),
    position=position,
    roles=("reward_router", "fee_gmx"),
    calls=(
        TypedCalls("STAKE", "loss", ("stakeGmx", "stakeEsGmx")),
        TypedCalls("CLAIM", "gain", ("handleRewards", "claim", "claimFees", "claimEsGmx")),
        TypedCalls("UNSTAKE", "gain", ("unstakeGmx", "unstakeEsGmx")),
        TypedCalls("STAKE", "issued", (), ("staked_gmx",)),
        TypedCalls("UNSTAKE", "redeemed", (), ("staked_gmx",)),
        TypedCalls("CLAIM", "gain", (), ("staked_gmx", "fee_gmx")),
    ),
    is_proven=False,
)
