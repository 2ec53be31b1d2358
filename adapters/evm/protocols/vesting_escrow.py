"""Yearn's vesting escrows, one contract for each grant: what was granted and has not been claimed."""

from __future__ import annotations

from chainfolio.calls import Call
from chainfolio.protocols import Counterparty, Decoding, Family, Found, Met, Part

UINT = "(uint256)"


def position(met: Met) -> Decoding:
    """What the account will have been paid at the end, less what it was: vested and not, the end is when all is.

    None where the grant is somebody else's. A grant that was ended early is worth what had vested until then; active
    ones say 0 or their end there, as they are newer or older. The token is the escrow's, or `vested_token` of the file.
    """
    named = met.contracts.get("vested_token", ())
    recipient, granted, claimed, start, end, cliff, ended, *told = yield [
        Call(met.contract, "recipient()(address)"),
        Call(met.contract, "total_locked()" + UINT),
        Call(met.contract, "total_claimed()" + UINT),
        Call(met.contract, "start_time()" + UINT),
        Call(met.contract, "end_time()" + UINT),
        Call(met.contract, "cliff_length()" + UINT),
        Call(met.contract, "disabled_at()" + UINT),
        *([] if named else [Call(met.contract, "token()(address)")]),
    ]
    if recipient != met.account:
        return None
    until = min(ended or end, end)
    vested = granted * (until - start) // (end - start) if until >= start + cliff else 0
    token = named[0] if named else told[0]
    return Found("VESTING", supplied=(Part(token, max(vested - claimed, 0)),), unlock_s=until, pool=met.contract)


FAMILY = Family("vesting_escrow", rules=(Counterparty("vesting_escrow"),), position=position, roles=("vested_token",))
