"""Layouts of the accounts of pools that issue shares, and of their positions. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from chainfolio.adapters.solana.account_fields import Layout

MAX_DECIMALS: Final = 19  # 10^19 is the largest power of ten in 64 bits


class RaydiumAmm(NamedTuple):
    """`AmmInfo` of Raydium's AMM v4. Token a is the coin of the program, token b its pc.

    PnL is the protocol's part of the fees, counted in units of `pnl_unit` per token.
    """

    status: int  # 0 to 7: the operations that the pool allows
    decimals_a: int
    decimals_b: int
    pnl_unit: int
    pnl_numerator: int
    pnl_denominator: int
    unclaimed_pnl_a: int  # raw units in the vault that belong to the protocol
    unclaimed_pnl_b: int
    vault_a: str
    vault_b: str
    mint_a: str
    mint_b: str
    lp_mint: str
    target_orders: str  # the account with the baseline of PnL
    lp_supply: int


class RaydiumTargetOrders(NamedTuple):
    """`TargetOrders` of Raydium's AMM v4: the reserves of a pool when PnL was last taken."""

    pool: str
    baseline_b: int
    baseline_a: int


class DammPool(NamedTuple):
    """`Pool` of Meteora's DAMM v2. Times are in seconds.

    Square roots of prices and reward rates are times 2^64. Growths are per unit of liquidity: those of fees times
    2^128, those of rewards times 2^192.
    """

    mint_a: str
    mint_b: str
    vault_a: str
    vault_b: str
    liquidity: int
    min_sqrt_price: int
    max_sqrt_price: int
    sqrt_price: int
    locks_by_time: int  # 1: locks end at a time; 0: at a slot
    fee_mode: int  # 2: fees are added to the liquidity
    fee_growth_a: int
    fee_growth_b: int
    reserve_a: int
    reserve_b: int
    reward_is_active_0: int
    reward_mint_0: str
    reward_vault_0: str
    reward_end_s_0: int
    reward_per_second_0: int
    reward_growth_0: int
    reward_updated_s_0: int
    reward_is_active_1: int
    reward_mint_1: str
    reward_vault_1: str
    reward_end_s_1: int
    reward_per_second_1: int
    reward_growth_1: int
    reward_updated_s_1: int


class DammPosition(NamedTuple):
    """`Position` of Meteora's DAMM v2, with its vesting schedule in slots or seconds.

    Checkpoints are the growths when the position last changed; owed amounts were counted then.
    """

    pool: str
    mint: str
    fee_checkpoint_a: int
    fee_checkpoint_b: int
    fee_owed_a: int
    fee_owed_b: int
    unlocked_liquidity: int
    vesting_liquidity: int
    permanently_locked_liquidity: int
    reward_checkpoint_0: int
    reward_owed_0: int
    reward_checkpoint_1: int
    reward_owed_1: int
    cliff_point: int
    period: int
    cliff_liquidity: int  # unlocked at the cliff
    liquidity_per_period: int
    released_liquidity: int  # already part of the unlocked liquidity
    period_count: int

    @property
    def liquidity(self) -> int:
        """The liquidity of the position, locked or not."""
        return self.unlocked_liquidity + self.vesting_liquidity + self.permanently_locked_liquidity


class JupiterLending(NamedTuple):
    """`Lending` of Jupiter's Earn. Both exchange prices are times 10^12, as of `updated_s`."""

    mint: str
    share_mint: str
    rewards: str  # address of the `JupiterRewards`
    reserve_exchange_price: int
    exchange_price: int  # of a share in the token
    updated_s: int
    reserve: str


class JupiterReserve(NamedTuple):
    """`TokenReserve` of Jupiter's liquidity layer, as of `updated_s`.

    Rates, fee and utilization are in hundredths of a per cent. Exchange prices are times 10^12. Amounts with interest
    are in units that the exchange price multiplies.
    """

    mint: str
    borrow_rate: int
    interest_fee: int
    utilization: int
    updated_s: int
    supply_exchange_price: int
    borrow_exchange_price: int
    supplied_with_interest: int
    supplied_without_interest: int
    borrowed_with_interest: int
    borrowed_without_interest: int


class JupiterRewards(NamedTuple):
    """`LendingRewardsRateModel` of Jupiter's Earn: two consecutive periods of rewards."""

    mint: str
    min_assets: int  # no rewards are paid below this total
    duration_s: int
    start_s: int
    yearly_reward: int
    next_duration_s: int
    next_reward: int  # over the whole next period


def _amm_fault(pool: RaydiumAmm) -> str:
    if not 0 < pool.status <= 7 or max(pool.decimals_a, pool.decimals_b) > MAX_DECIMALS:
        return "it is of no known status, or its tokens have more decimals than there are"
    return "" if pool.pnl_unit and pool.pnl_denominator else "it has no unit to count profits in"


POOLS: Final[Mapping[str, Layout]] = {
    "raydium_amm": Layout(
        RaydiumAmm,
        752,
        (
            (0, "u64"),
            (32, "u64"),
            (40, "u64"),
            (120, "u64"),
            (160, "u64"),
            (168, "u64"),
            (192, "u64"),
            (200, "u64"),
            (336, "key"),
            (368, "key"),
            (400, "key"),
            (432, "key"),
            (464, "key"),
            (592, "key"),
            (720, "u64"),
        ),
        find_fault=_amm_fault,
    ),
    "damm_pool": Layout(
        DammPool,
        1_112,
        (
            (168, "key"),
            (200, "key"),
            (232, "key"),
            (264, "key"),
            (360, "u128"),
            (424, "u128"),
            (440, "u128"),
            (456, "u128"),
            (480, "u8"),
            (484, "u8"),
            (488, "u256"),
            (520, "u256"),
            (680, "u64"),
            (688, "u64"),
            *(
                field
                for start in (728, 920)
                for field in (
                    (start, "u8"),
                    (start + 16, "key"),
                    (start + 48, "key"),
                    (start + 120, "u64"),
                    (start + 128, "u128"),
                    (start + 144, "u256"),
                    (start + 176, "u64"),
                )
            ),
        ),
        bytes.fromhex("f19a6d0411b16dbc"),
    ),
    "damm_position": Layout(
        DammPosition,
        408,
        (
            (8, "key"),
            (40, "key"),
            (72, "u256"),
            (104, "u256"),
            (136, "u64"),
            (144, "u64"),
            (152, "u128"),
            (168, "u128"),
            (184, "u128"),
            (216, "u256"),
            (248, "u64"),
            (264, "u256"),
            (296, "u64"),
            (312, "u64"),
            (320, "u64"),
            (328, "u128"),
            (344, "u128"),
            (360, "u128"),
            (376, "u16"),
        ),
        bytes.fromhex("aabc8fe47a40f7d0"),
    ),
    "jupiter_lending": Layout(
        JupiterLending,
        196,
        (
            (8, "key"),
            (40, "key"),
            (75, "key"),
            (107, "u64"),
            (115, "u64"),
            (123, "u64"),
            (131, "key"),
        ),
        bytes.fromhex("87c75210f983b6f1"),
    ),
    "jupiter_reserve": Layout(
        JupiterReserve,
        192,
        (
            (8, "key"),
            (72, "u16"),
            (74, "u16"),
            (76, "u16"),
            (78, "u64"),
            (86, "u64"),
            (94, "u64"),
            (104, "u64"),
            (112, "u64"),
            (120, "u64"),
            (128, "u64"),
        ),
        bytes.fromhex("15123b8778141f0c"),
    ),
    "jupiter_rewards": Layout(
        JupiterRewards,
        89,
        ((8, "key"), (40, "u64"), (48, "u64"), (56, "u64"), (64, "u64"), (72, "u64"), (80, "u64")),
        bytes.fromhex("a6484783ac4aa6b5"),
    ),
    "raydium_counted": Layout(RaydiumTargetOrders, 2_208, ((0, "key"), (1_024, "u128"), (1_040, "u128"))),
}
