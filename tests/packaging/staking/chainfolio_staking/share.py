"""A share in a token: what an account holds of the contract, as a stake in it."""

from __future__ import annotations

from chainfolio.plugins.protocol import (
    DecodedPosition,
    DecoderPlan,
    EveryAccount,
    Family,
    ProtocolMatch,
    TokenAmount,
    balance_of,
)


def position(match: ProtocolMatch) -> DecoderPlan:
    """Read the account's balance of the contract."""
    (balance,) = yield [balance_of(match.contract, match.account)]
    return DecodedPosition("STAKED", supplied=(TokenAmount(match.contract, balance),), pool=match.contract)


FAMILY = Family("third_party_share", rules=(EveryAccount("pool"),), position=position)
