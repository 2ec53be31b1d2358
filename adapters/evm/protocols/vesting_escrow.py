"""Yearn's vesting escrows, one contract for each grant: the granted tokens that are not claimed yet."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Family, ProtocolMatch
from chainfolio.adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

UINT = "(uint256)"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode a grant: everything it will pay by its end, vested or not, less claims.

    None if the account is not the recipient. A grant that was ended early is worth what had vested before; an active
    one has 0 or its end as `disabled_at`, depending on the escrow's version. The token is the escrow's, or
    `vested_token` of the file.
    """
    file_tokens = match.contracts.get("vested_token", ())
    recipient, granted, claimed, start, end, cliff, disabled_at, *escrow_tokens = yield [
        Call(match.contract, "recipient()(address)"),
        Call(match.contract, "total_locked()" + UINT),
        Call(match.contract, "total_claimed()" + UINT),
        Call(match.contract, "start_time()" + UINT),
        Call(match.contract, "end_time()" + UINT),
        Call(match.contract, "cliff_length()" + UINT),
        Call(match.contract, "disabled_at()" + UINT),
        *([] if file_tokens else [Call(match.contract, "token()(address)")]),
    ]
    if recipient != match.account:
        return None
    unlock_s = min(disabled_at or end, end)
    vested = granted * (unlock_s - start) // (end - start) if unlock_s >= start + cliff else 0
    token = file_tokens[0] if file_tokens else escrow_tokens[0]
    unclaimed = TokenAmount(token, max(vested - claimed, 0))
    return DecodedPosition("VESTING", supplied=(unclaimed,), unlock_s=unlock_s, pool=match.contract)


FAMILY = Family(
    "vesting_escrow",
    rules=(Counterparty("vesting_escrow"),),
    position=position,
    roles=("vested_token",),
    calls=(TypedCalls("CLAIM", "gain", ("claim",)),),
)
