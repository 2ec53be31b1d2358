"""Aave's safety module (stkAAVE, stkGHO): staked tokens, their rewards, and the end of a cooldown."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import DecoderPlan, Family, ProtocolMatch, Token
from chainfolio.adapters.evm.reads import Call, balance_of
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode what redeeming all of the account's stake pays now, after slashings, and its rewards.

    `unlock_s` is the end of a cooldown that the account began; 0 without one.
    """
    stake, account = match.contract, match.account
    token, reward, raw, earned, (begin_s, _), cooldown_s = yield [
        Call(stake, "STAKED_TOKEN()(address)"),
        Call(stake, "REWARD_TOKEN()(address)"),
        balance_of(stake, account),
        Call(stake, "getTotalRewardsBalance(address)(uint256)", (account,)),
        Call(stake, "stakersCooldowns(address)(uint40,uint216)", (account,)),
        Call(stake, "getCooldownSeconds()(uint256)"),
    ]
    (assets,) = yield [Call(stake, "previewRedeem(uint256)(uint256)", (raw,))]
    return DecodedPosition(
        "STAKED",
        supplied=(TokenAmount(token, assets),),
        rewards=(TokenAmount(reward, earned),),
        unlock_s=begin_s + cooldown_s if begin_s else 0,
        pool=stake,
        replaces=(stake,),
    )


FAMILY = Family(
    "staked_aave",
    rules=(Token("stake_token"),),
    position=position,
    roles=("rewards_vault",),
    calls=(
        TypedCalls("STAKE", "loss", ("stake", "stakeWithPermit")),
        TypedCalls("CLAIM", "gain", ("claimRewards",)),
        TypedCalls("UNSTAKE", "gain", ("redeem",)),
        TypedCalls("CLAIM", "gain", (), ("rewards_vault",)),
    ),
    is_proven=False,
)
