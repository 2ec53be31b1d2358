"""Aura: Balancer's pool shares that are staked through its booster, and locked AURA, in Convex' code."""

from __future__ import annotations

from dataclasses import replace

from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Event, Family, ProtocolMatch
from chainfolio.adapters.evm.protocols import convex
from chainfolio.protocols import DecodedPosition

MINTED = "the AURA that a claim mints"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode as the family `convex` does. The AURA that a claim mints is unknown."""
    positions: list[DecodedPosition] = yield from convex.position(match)
    if match.is_listed("locker"):
        return positions
    return [replace(each, unknown=each.unknown or MINTED) if each.rewards else each for each in positions]


FAMILY = Family(
    "aura",
    rules=(
        Event(
            "booster", "Deposited(address indexed user, uint256 indexed poolid, uint256 amount)", owner=0, values=(1,)
        ),
        Counterparty("reward_pool"),
        Counterparty("locker"),
    ),
    position=position,
    calls=convex.FAMILY.calls,
    is_proven=False,
)
