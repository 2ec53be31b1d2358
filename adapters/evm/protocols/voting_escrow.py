"""Curve's VotingEscrow and its forks: tokens that are locked until a time of the account's choice."""

from __future__ import annotations

from chainfolio.calls import Call
from chainfolio.protocols import Counterparty, Decoding, Family, Found, Met, Part

LOCKED = "locked(address)(int128,uint256)"


def position(met: Met) -> Decoding:
    """What an account has locked, and until when: in the file's `locked_token`, else in what the escrow says.

    Escrows that are asked in other words have that call as option `locked`: it answers with the amount and the time.
    """
    named = met.contracts.get("locked_token", ())
    (raw, until), *told = yield [
        Call(met.contract, met.options.get("locked", LOCKED), (met.account,)),
        *([] if named else [Call(met.contract, "token()(address)")]),
    ]
    token = named[0] if named else told[0]
    return Found("LOCKED", supplied=(Part(token, raw),), unlock_s=until, pool=met.contract)


FAMILY = Family("voting_escrow", rules=(Counterparty("voting_escrow"),), position=position)
