"""Dai that earns the savings rate, in Maker's contract for it (the pot) or through its manager."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import (
    Counterparty,
    DecoderPlan,
    Event,
    EveryAccount,
    Family,
    MayRefuse,
    ProtocolMatch,
)
from chainfolio.adapters.evm.protocols.maker import PROXIES, holders, savings_changes
from chainfolio.adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount

RAY = 10**27
DIRECT, MANAGED = "pie(address)(uint256)", "pieOf(address)(uint256)"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode the savings of the account or its proxies, with interest; None if there are none."""
    (pot,), (dai,) = match.contracts["pot"], match.contracts["dai"]
    contract, balance_call = (match.contract, MANAGED) if match.is_listed("dsr_manager") else (pot, DIRECT)
    owners = yield from holders(match)
    shares = yield [MayRefuse(Call(contract, balance_call, (owner,))) for owner in owners]
    if not any(shares):  # or the pot does not exist yet at this block
        return None
    chi, rate, updated_s = yield [
        Call(pot, "chi()(uint256)"),
        Call(pot, "dsr()(uint256)"),
        Call(pot, "rho()(uint256)"),
    ]
    index = power(rate, max(match.time_s - updated_s, 0)) * chi // RAY
    parts = tuple(TokenAmount(dai, share * index // RAY) for share in shares if share)
    return DecodedPosition("DEPOSIT", supplied=parts, name="Savings", pool=contract)


def power(rate: int, seconds: int) -> int:
    """Return the rate (times 10^27) to the power of `seconds`, rounded as `rpow` of the pot does it."""
    result = rate if seconds % 2 else RAY
    while seconds := seconds // 2:
        rate = (rate * rate + RAY // 2) // RAY
        if seconds % 2:
            result = (result * rate + RAY // 2) // RAY
    return result


FAMILY = Family(
    "maker_savings",
    rules=(
        EveryAccount("pot"),  # its events name no account that a rule can match, and it takes no tokens
        Counterparty("dsr_manager"),
        PROXIES,
        Event("dsr_manager", "Join(address indexed dst, uint256 wad)", owner=0),
    ),
    position=position,
    roles=("dai",),
    vault_changes=savings_changes,
)
