"""Venus' VAI vault: staked VAI that earns XVS."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Family, ProtocolMatch
from chainfolio.adapters.evm.reads import Call, balance_of
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

SCALE = 10**18


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode the account's VAI, and the XVS that a claim pays.

    The vault counts rewards that it received only when an account uses it; a claim does so first. Source: `updateVault`
    and `pendingXVS` of `VAIVault`.
    """
    vault = match.contract
    vai, xvs, (raw, debt), per_share, uncounted = yield [
        Call(vault, "vai()(address)"),
        Call(vault, "xvs()(address)"),
        Call(vault, "userInfo(address)(uint256,uint256)", (match.account,)),
        Call(vault, "accXVSPerShare()(uint256)"),
        Call(vault, "pendingRewards()(uint256)"),
    ]
    (total,) = yield [balance_of(vai, vault)]
    if total:
        per_share += uncounted * SCALE // total
    reward = max(raw * per_share // SCALE - debt, 0)
    return DecodedPosition("STAKED", supplied=(TokenAmount(vai, raw),), rewards=(TokenAmount(xvs, reward),), pool=vault)


FAMILY = Family(
    "venus_vai",
    rules=(Counterparty("vai_vault"),),
    position=position,
    calls=(
        TypedCalls("STAKE", "loss", ("deposit",)),
        TypedCalls("CLAIM", "gain", ("claim",)),
        TypedCalls("UNSTAKE", "gain", ("withdraw",)),
        TypedCalls("STAKE", "loss", (), ("vai_vault",)),
        TypedCalls("UNSTAKE", "gain", (), ("vai_vault",)),
    ),
)
