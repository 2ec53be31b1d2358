"""Lido's withdrawal queue: waiting and claimable requests, one ERC-721 token each."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import Collection, DecoderPlan, Family, ProtocolMatch
from chainfolio.adapters.evm.reads import Call
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

STATUS = "getWithdrawalStatus(uint256[])((uint256,uint256,address,uint256,bool,bool)[])"
HINTS = "findCheckpointHints(uint256[],uint256,uint256)(uint256[])"
CLAIMABLE = "getClaimableEther(uint256[],uint256[])(uint256[])"
WAITING = "the request is not finalized: it pays at most this amount, and less after a loss of Lido's validators"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode one request: the ether that a claim pays now, or the amount that it waits for.

    None if the request was claimed or belongs to another account. A waiting request earns nothing.
    """
    queue, request = match.contract, match.id
    statuses, checkpoint = yield [
        Call(queue, STATUS, ((request,),)),
        Call(queue, "getLastCheckpointIndex()(uint256)"),
    ]
    ((amount, _, owner, _, is_finalized, is_claimed),) = statuses
    if is_claimed or owner != match.account:
        return None
    if is_finalized:
        (hints,) = yield [Call(queue, HINTS, ((request,), 1, checkpoint))]
        ((amount,),) = yield [Call(queue, CLAIMABLE, ((request,), hints))]
    return DecodedPosition(
        "LOCKED",
        supplied=(TokenAmount(ZERO_ADDRESS, amount),),
        name=f"Withdrawal request {request}",
        pool=queue,
        remark="" if is_finalized else WAITING,
    )


FAMILY = Family(
    "lido_withdrawals",
    rules=(Collection("withdrawals"),),
    position=position,
    calls=(TypedCalls("UNSTAKE", "gain", ("claimWithdrawal", "claimWithdrawals", "claimWithdrawalsTo")),),
)
