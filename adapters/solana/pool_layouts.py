"""What accounts of pools hold whose shares are tokens, byte by byte. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from adapters.solana.account_fields import Layout

MOST_DECIMALS: Final = 19  # what a number of 64 bits has room for


class RaydiumAmm(NamedTuple):
    """`AmmInfo` of Raydium's first program (AMM v4). Token a is its coin, and b its pc. Profits are counted in units of
    which one token has so many as `unit`."""

    status: int  # what may be done with the pool: 0 to 7
    decimals_a: int
    decimals_b: int
    unit: int
    part: int  # of profits so many of `parts` are the protocol's
    parts: int
    taken_a: int  # what lies in the vaults and is the protocol's
    taken_b: int
    vault_a: str
    vault_b: str
    mint_a: str
    mint_b: str
    share: str
    counted: str  # the account that says of what profits were taken
    shares: int


class RaydiumCounted(NamedTuple):
    """`TargetOrders` of the same: what its pool had when profits were last taken."""

    pool: str
    raw_b: int
    raw_a: int


def _amm_fault(found: RaydiumAmm) -> str:
    if not 0 < found.status <= 7 or max(found.decimals_a, found.decimals_b) > MOST_DECIMALS:
        return "it is of no known status, or its tokens have more decimals than there are"
    return "" if found.unit and found.parts else "it has no unit to count profits in"


POOLS: Final[Mapping[str, Layout]] = {
    "raydium_amm": Layout(
        RaydiumAmm, 752, (
            (0, "u64"), (32, "u64"), (40, "u64"), (120, "u64"), (160, "u64"), (168, "u64"), (192, "u64"), (200, "u64"),
            (336, "key"), (368, "key"), (400, "key"), (432, "key"), (464, "key"), (592, "key"), (720, "u64"),
        ), check=_amm_fault,
    ),
    "raydium_counted": Layout(RaydiumCounted, 2_208, ((0, "key"), (1_024, "u128"), (1_040, "u128"))),
}  # fmt: skip
