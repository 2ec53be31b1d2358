"""ether.fi's withdrawal requests, each an ERC-721 token: ether that waits or can be claimed."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import Collection, DecoderPlan, Family, MayRefuse, ProtocolMatch
from chainfolio.adapters.evm.reads import OWNER, Call
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

REQUEST = "getRequest(uint256)(uint96,uint96,bool,uint32)"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode one request: what it pays if it is finalized, else at most what was asked for.

    None if the account does not own it, or if it was claimed or invalidated.
    """
    queue, number = match.contract, match.id
    owner, request, is_final = yield [
        MayRefuse(Call(queue, OWNER, (number,))),
        MayRefuse(Call(queue, REQUEST, (number,))),
        MayRefuse(Call(queue, "isFinalized(uint256)(bool)", (number,))),
    ]
    if owner != match.account or request is None or not request[2]:
        return None
    raw = request[0]
    if is_final:
        (raw,) = yield [Call(queue, "getClaimableAmount(uint256)(uint256)", (number,))]
    return DecodedPosition(
        "LOCKED", supplied=(TokenAmount(ZERO_ADDRESS, raw),), name=f"Withdrawal {number}", pool=queue
    )


FAMILY = Family(
    "etherfi_withdrawals",
    rules=(Collection("withdrawals"),),
    position=position,
    roles=("liquidity_pool",),
    calls=(
        TypedCalls(
            "STAKE", "issued", (), ("liquidity_pool",)
        ),  # the pool takes the ether, and eETH is another contract
        TypedCalls("UNSTAKE", "loss", ("requestWithdraw", "requestWithdrawWithPermit")),
        TypedCalls("UNSTAKE", "gain", ("claimWithdraw", "batchClaimWithdraw")),
    ),
    is_proven=False,
)
