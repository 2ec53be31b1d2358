"""The base token lent to a Compound V3 market by a wallet that only received the market's own token."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import DecoderPlan, Family, ProtocolMatch, Token
from chainfolio.adapters.evm.reads import Call
from chainfolio.protocols import TokenAmount, UnlistedShare


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """Return `raw` of the base token: balances of the market's token include interest."""
    (base,) = yield [Call(match.contract, "baseToken()(address)")]
    parts = (TokenAmount(base, raw),)
    return UnlistedShare(parts) if match.is_fork else parts


FAMILY = Family("compound_v3_base", rules=(Token("market"),), unwrap=unwrap, position_type="LENDING")
