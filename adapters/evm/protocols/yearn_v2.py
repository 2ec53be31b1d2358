"""Yearn's vaults of release 2: a share stands for its price per share in the vault's token."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import DecoderPlan, Family, ProtocolMatch, Token
from chainfolio.adapters.evm.reads import Call
from chainfolio.protocols import TokenAmount, TypedCalls, UnlistedShare

MAX_DECIMALS = 36


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """Return what `withdraw` pays for `raw` shares without a loss.

    None if the vault has fewer shares, or more than MAX_DECIMALS decimals. In unreviewed code an UnlistedShare.
    """
    vault = match.contract
    token, price, decimals, supply = yield [
        Call(vault, "token()(address)"),
        Call(vault, "pricePerShare()(uint256)"),
        Call(vault, "decimals()(uint8)"),
        Call(vault, "totalSupply()(uint256)"),
    ]
    if not 0 < raw <= supply or decimals > MAX_DECIMALS:
        return None
    parts = (TokenAmount(token, raw * price // 10**decimals),)
    return UnlistedShare(parts) if match.is_fork else parts


FAMILY = Family(
    "yearn_v2",
    rules=(Token("vault"),),
    unwrap=unwrap,
    position_type="VAULT",
    calls=(TypedCalls("DEPOSIT", "loss", ("deposit",)), TypedCalls("WITHDRAW", "gain", ("withdraw",))),
    is_proven=False,
)
