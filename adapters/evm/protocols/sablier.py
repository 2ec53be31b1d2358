"""Sablier's lockup streams, each an ERC-721 token: tokens that are paid to its owner over time."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import Collection, DecoderPlan, Family, MayRefuse, ProtocolMatch
from chainfolio.adapters.evm.reads import OWNER, Call
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

# The name of the function that returns the token, by release.
TOKENS = ("getUnderlyingToken(uint256)(address)", "getAsset(uint256)(address)")
AMOUNTS = ("getDepositedAmount", "getWithdrawnAmount", "getRefundedAmount", "withdrawableAmountOf")


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode one stream: what is still to come (`supplied`), and what can be withdrawn now (`rewards`).

    None if the account does not own the stream, its token cannot be read, or it is empty. A remark says if the sender
    can cancel it: then only what was streamed is paid.
    """
    lockup, number = match.contract, (match.id,)
    owner, end_s, is_cancelable, *results = yield [
        MayRefuse(Call(lockup, OWNER, number)),
        Call(lockup, "getEndTime(uint256)(uint40)", number),
        MayRefuse(Call(lockup, "isCancelable(uint256)(bool)", number)),
        *(MayRefuse(Call(lockup, token, number)) for token in TOKENS),
        *(Call(lockup, f"{name}(uint256)(uint128)", number) for name in AMOUNTS),
    ]
    token = results[0] or results[1]
    deposited, withdrawn, refunded, withdrawable = results[len(TOKENS) :]
    remaining = deposited - withdrawn - refunded
    if owner != match.account or token is None or remaining <= 0:
        return None
    return DecodedPosition(
        "VESTING",
        supplied=(TokenAmount(token, max(remaining - withdrawable, 0)),),
        rewards=(TokenAmount(token, min(withdrawable, remaining)),),
        name=f"Stream {match.id}",
        unlock_s=end_s,
        pool=lockup,
        remark="its sender can cancel the stream" if is_cancelable else "",
    )


FAMILY = Family(
    "sablier",
    rules=(Collection("lockup"),),
    position=position,
    calls=(TypedCalls("CLAIM", "gain", ("withdraw", "withdrawMax", "withdrawMultiple")),),
    is_proven=False,
)
