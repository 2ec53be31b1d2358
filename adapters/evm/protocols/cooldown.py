"""Vaults with a cooldown (Ethena's sUSDe): assets that left the vault and wait in its silo."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import DecoderPlan, Event, Family, ProtocolMatch
from chainfolio.adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode the assets in the account's cooldown; None if there are none.

    No token and no share represents this amount. It stays claimable after the end.
    """
    (end_s, raw), asset = yield [
        Call(match.contract, "cooldowns(address)(uint104,uint152)", (match.account,)),
        Call(match.contract, "asset()(address)"),
    ]
    if not raw:
        return None
    return DecodedPosition(
        "LOCKED", supplied=(TokenAmount(asset, raw),), name="Cooldown", unlock_s=end_s, pool=match.contract
    )


FAMILY = Family(
    "cooldown",
    rules=(
        Event(
            "vault",
            "Withdraw(address indexed sender, address indexed receiver, address indexed owner, uint256 a, uint256 s)",
            owner=2,
        ),
    ),
    position=position,
    calls=(
        TypedCalls("UNSTAKE", "loss", ("cooldownShares", "cooldownAssets")),
        TypedCalls("UNSTAKE", "gain", ("unstake",)),
    ),
)
