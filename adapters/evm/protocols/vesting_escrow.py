"""Yearn's vesting escrows, one contract for each grant: what was granted and has not been claimed."""

from __future__ import annotations

from adapters.evm.positions.rules import Counterparty, DecoderPlan, Family, ProtocolMatch
from adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount

UINT = "(uint256)"


def position(match: ProtocolMatch) -> DecoderPlan:
    """What the account will have been paid at the end, less what it was: vested and not, the end is when all is.

    None where the grant is somebody else's. A grant that was ended early is worth what had vested until then; active
    ones say 0 or their end there, as they are newer or older. The token is the escrow's, or `vested_token` of the file.
    """
    named = match.contracts.get("vested_token", ())
    recipient, granted, claimed, start, end, cliff, ended, *told = yield [
        Call(match.contract, "recipient()(address)"),
        Call(match.contract, "total_locked()" + UINT),
        Call(match.contract, "total_claimed()" + UINT),
        Call(match.contract, "start_time()" + UINT),
        Call(match.contract, "end_time()" + UINT),
        Call(match.contract, "cliff_length()" + UINT),
        Call(match.contract, "disabled_at()" + UINT),
        *([] if named else [Call(match.contract, "token()(address)")]),
    ]
    if recipient != match.account:
        return None
    until = min(ended or end, end)
    vested = granted * (until - start) // (end - start) if until >= start + cliff else 0
    token = named[0] if named else told[0]
    return DecodedPosition(
        "VESTING", supplied=(TokenAmount(token, max(vested - claimed, 0)),), unlock_s=until, pool=match.contract
    )


FAMILY = Family("vesting_escrow", rules=(Counterparty("vesting_escrow"),), position=position, roles=("vested_token",))
