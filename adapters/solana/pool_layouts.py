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


class DammPool(NamedTuple):
    """`Pool` of Meteora's DAMM v2. Prices are their square roots times 2^64; growths are for a unit of liquidity, those
    of fees times 2^128, of rewards times 2^192; what is paid each second is times 2^64. Times are in seconds."""

    mint_a: str
    mint_b: str
    vault_a: str
    vault_b: str
    liquidity: int
    lowest: int
    highest: int
    root: int
    by_time: int  # whether what is locked is locked by time, and not by slots
    fees_go: int  # 2: into the pool, and so to its liquidity
    growth_a: int
    growth_b: int
    raw_a: int
    raw_b: int
    pays_0: int
    reward_mint_0: str
    reward_vault_0: str
    end_0: int
    per_second_0: int
    reward_growth_0: int
    paid_0: int
    pays_1: int
    reward_mint_1: str
    reward_vault_1: str
    end_1: int
    per_second_1: int
    reward_growth_1: int
    paid_1: int


class DammPosition(NamedTuple):
    """`Position` of the same: liquidity that is free, that is not yet, and that never will be; what was counted when it
    last changed; and when what is not yet free will be, by slots or seconds."""

    pool: str
    mint: str
    seen_a: int
    seen_b: int
    owed_a: int
    owed_b: int
    free: int
    vesting: int
    locked: int
    seen_0: int
    owed_0: int
    seen_1: int
    owed_1: int
    cliff: int
    period: int
    at_cliff: int  # so much is free then
    per_period: int
    released: int  # so much of that is among the free already
    periods: int


class JupiterLending(NamedTuple):
    """`Lending` of Jupiter's Earn: what a share is worth, and what the reserve said when that was counted, both times
    10^12."""

    mint: str
    share: str
    rewards: str  # the account of what is paid beside interest
    reserve_price: int
    price: int
    counted_s: int
    reserve: str


class JupiterReserve(NamedTuple):
    """`TokenReserve` of Jupiter's liquidity. Rates and parts are in hundredths of a per cent; prices of what is
    supplied and borrowed with interest are times 10^12, and so are amounts when they are multiplied by them."""

    mint: str
    rate: int
    fee: int
    used: int  # so much of what is supplied is borrowed
    counted_s: int
    supply_price: int
    borrow_price: int
    supplied: int  # with interest, and without
    supplied_free: int
    borrowed: int
    borrowed_free: int


class JupiterRewards(NamedTuple):
    """`LendingRewardsRateModel` of Jupiter's Earn: what is paid in a year, from when on and how long, and then."""

    mint: str
    least: int  # in all, for which anything is paid
    lasts_s: int
    start_s: int
    per_year: int
    then_lasts_s: int
    then_paid: int


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
    "damm_pool": Layout(
        DammPool, 1_112, (
            (168, "key"), (200, "key"), (232, "key"), (264, "key"), (360, "u128"), (424, "u128"), (440, "u128"),
            (456, "u128"), (480, "u8"), (484, "u8"), (488, "u256"), (520, "u256"), (680, "u64"), (688, "u64"),
            *(
                field for at in (728, 920)
                for field in (
                    (at, "u8"), (at + 16, "key"), (at + 48, "key"), (at + 120, "u64"), (at + 128, "u128"),
                    (at + 144, "u256"), (at + 176, "u64"),
                )
            ),
        ), bytes.fromhex("f19a6d0411b16dbc"),
    ),
    "damm_position": Layout(
        DammPosition, 408, (
            (8, "key"), (40, "key"), (72, "u256"), (104, "u256"), (136, "u64"), (144, "u64"), (152, "u128"),
            (168, "u128"), (184, "u128"), (216, "u256"), (248, "u64"), (264, "u256"), (296, "u64"), (312, "u64"),
            (320, "u64"), (328, "u128"), (344, "u128"), (360, "u128"), (376, "u16"),
        ), bytes.fromhex("aabc8fe47a40f7d0"),
    ),
    "jupiter_lending": Layout(
        JupiterLending, 196, (
            (8, "key"), (40, "key"), (75, "key"), (107, "u64"), (115, "u64"), (123, "u64"), (131, "key"),
        ), bytes.fromhex("87c75210f983b6f1"),
    ),
    "jupiter_reserve": Layout(
        JupiterReserve, 192, (
            (8, "key"), (72, "u16"), (74, "u16"), (76, "u16"), (78, "u64"), (86, "u64"), (94, "u64"), (104, "u64"),
            (112, "u64"), (120, "u64"), (128, "u64"),
        ), bytes.fromhex("15123b8778141f0c"),
    ),
    "jupiter_rewards": Layout(
        JupiterRewards, 89, ((8, "key"), (40, "u64"), (48, "u64"), (56, "u64"), (64, "u64"), (72, "u64"), (80, "u64")),
        bytes.fromhex("a6484783ac4aa6b5"),
    ),
    "raydium_counted": Layout(RaydiumCounted, 2_208, ((0, "key"), (1_024, "u128"), (1_040, "u128"))),
}  # fmt: skip
