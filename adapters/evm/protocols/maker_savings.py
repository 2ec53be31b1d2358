"""Dai that earns the savings rate, in Maker's own contract for it (the pot) or by way of its manager."""

from __future__ import annotations

from adapters.evm.positions.rules import Always, Counterparty, DecoderPlan, Event, Family, MayRefuse, ProtocolMatch
from adapters.evm.protocols.maker import PROXIES, holders
from adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount

RAY = 10**27
DIRECT, MANAGED = "pie(address)(uint256)", "pieOf(address)(uint256)"


def position(match: ProtocolMatch) -> DecoderPlan:
    """What leaving pays: the account's share, or its proxies', at the rate as of this block, whoever brought it up to
    date last."""
    (pot,), (dai,) = match.contracts["pot"], match.contracts["dai"]
    keeper, share = (
        (match.contract, MANAGED) if match.contract in match.contracts.get("dsr_manager", ()) else (pot, DIRECT)
    )
    owners = yield from holders(match)
    held = yield [MayRefuse(Call(keeper, share, (owner,))) for owner in owners]
    if not any(held):  # or there is no pot yet at this block
        return None
    chi, rate, updated_s = yield [
        Call(pot, "chi()(uint256)"),
        Call(pot, "dsr()(uint256)"),
        Call(pot, "rho()(uint256)"),
    ]
    grown = power(rate, max(match.time_s - updated_s, 0)) * chi // RAY
    parts = tuple(TokenAmount(dai, each * grown // RAY) for each in held if each)
    return DecodedPosition("DEPOSIT", supplied=parts, name="Savings", pool=keeper)


def power(rate: int, seconds: int) -> int:
    """The rate (times 10**27) to the power of so many seconds, each step rounded as the contract does it."""
    result = rate if seconds % 2 else RAY
    while seconds := seconds // 2:
        rate = (rate * rate + RAY // 2) // RAY
        if seconds % 2:
            result = (result * rate + RAY // 2) // RAY
    return result


FAMILY = Family(
    "maker_savings",
    rules=(
        Always("pot"),  # which writes no event that can be named, and takes no tokens
        Counterparty("dsr_manager"),
        PROXIES,
        Event("dsr_manager", "Join(address indexed dst, uint256 wad)", owner=0),
    ),
    position=position,
    roles=("dai",),
)
