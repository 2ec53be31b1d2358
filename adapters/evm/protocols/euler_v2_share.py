"""Shares of Euler V2's vaults in a wallet. Anybody can create vaults at the factory."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import DecoderPlan, Family, ProtocolMatch, Token
from chainfolio.adapters.evm.reads import Call
from chainfolio.protocols import TokenAmount, UnlistedShare, UnverifiedShare

NOT_THERE = "the account deposited nothing into this vault, and what it holds could not be withdrawn now"


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """Return the asset of `raw` shares; None if the factory did not create the vault.

    Anybody may lend all assets of an own vault to an own collateral. So a share without a deposit of the account is an
    UnlistedShare if the vault has the assets now, else an UnverifiedShare.
    """
    vault, (factory,) = match.contract, match.contracts["factory"]
    is_vault, asset, assets, cash = yield [
        Call(factory, "isProxy(address)(bool)", (vault,)),
        Call(vault, "asset()(address)"),
        Call(vault, "convertToAssets(uint256)(uint256)", (raw,)),
        Call(vault, "cash()(uint256)"),
    ]
    if not is_vault:
        return None
    parts = (TokenAmount(asset, assets),)
    if match.has_deposited(asset):
        return parts
    return UnlistedShare(parts) if assets <= cash else UnverifiedShare(NOT_THERE)


FAMILY = Family(
    "euler_v2_share",
    rules=(Token("evc", "EVC()(address)"),),
    unwrap=unwrap,
    position_type="LENDING",
    roles=("factory",),
)
