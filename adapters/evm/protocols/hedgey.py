"""Hedgey's plans, each an ERC-721 token: tokens that unlock in periods."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import Collection, DecoderPlan, Family, MayRefuse, ProtocolMatch
from chainfolio.adapters.evm.reads import OWNER, Call
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

PLAN = "plans(uint256)(address,uint256,uint256,uint256,uint256,uint256)"
BALANCE = "planBalanceOf(uint256,uint256,uint256)(uint256,uint256,uint256)"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode one plan: what is still locked, and what can be redeemed at the block's time.

    None if the account does not own the plan, or if it was redeemed in whole. A vesting plan can be revoked.
    """
    plans, number = match.contract, match.id
    owner, plan, balance = yield [
        MayRefuse(Call(plans, OWNER, (number,))),
        MayRefuse(Call(plans, PLAN, (number,))),
        MayRefuse(Call(plans, BALANCE, (number, match.time_s, match.time_s))),
    ]
    if owner != match.account or plan is None or not plan[1]:
        return None
    token, amount, start_s, cliff_s, rate, period_s = plan
    periods = -(-amount // rate) if rate else 0
    redeemable = 0 if balance is None else min(balance[0], amount)
    return DecodedPosition(
        "VESTING",
        supplied=(TokenAmount(token, amount - redeemable),),
        rewards=(TokenAmount(token, redeemable),),
        name=f"Plan {number}",
        unlock_s=max(start_s + periods * period_s, cliff_s),
        pool=plans,
        unknown="what can be redeemed" if balance is None else "",
    )


FAMILY = Family(
    "hedgey",
    rules=(Collection("plans"),),
    position=position,
    calls=(TypedCalls("CLAIM", "gain", ("redeemPlans", "partialRedeemPlans", "redeemAllPlans")),),
    is_proven=False,
)
