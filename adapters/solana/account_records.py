"""Records of the accounts of protocols on Solana: prices, pools, positions."""

from __future__ import annotations

from typing import NamedTuple


class PriceUpdate(NamedTuple):
    """`PriceUpdateV2` of Pyth's receiver. `price` and `confidence` are times 10^-`exponent`."""

    verification: int  # 1: verified by all required guardians
    feed: bytes
    price: int
    confidence: int
    exponent: int
    time_s: int


class StakePool(NamedTuple):
    """`StakePool` of SPL: `supply` tokens stand for `lamports`, both as of `epoch`."""

    account_type: int  # 1: a stake pool, 2: a list of validators
    mint: str
    lamports: int
    supply: int
    epoch: int


class Lamports(NamedTuple):
    """The lamports of an account of any program; 0 if the account does not exist."""

    raw: int


class Marinade(NamedTuple):
    """`State` of Marinade. `price` is the lamports that one mSOL redeems for, times 2^32."""

    mint: str
    price: int
    rent_exempt_lamports: int  # in the pool's SOL account, and not part of the pool
    lp_mint: str
    msol_vault: str
    lp_supply: int
    ticket_lamports: int  # reserved for tickets


class MarinadeTicket(NamedTuple):
    """`TicketAccountData` of Marinade: lamports of a delayed unstake that was ordered in `epoch`."""

    state: str
    owner: str
    lamports: int
    epoch: int


class BubblegumTree(NamedTuple):
    """`TreeConfig` of Bubblegum: the number of leaves that it minted into a tree."""

    minted_count: int


class TokenAccount(NamedTuple):
    """A token account of either token program."""

    mint: str
    owner: str
    raw: int
    state: int  # 1: initialized, 2: frozen


class MintFacts(NamedTuple):
    """The facts of a mint of either token program that amounts depend on."""

    supply: int
    decimals: int
    extensions: tuple[int, ...]
    authority: str = ""  # the address that may issue more; empty if the supply is fixed


class Whirlpool(NamedTuple):
    """`Whirlpool` of Orca.

    The square root of the price, growths (per unit of liquidity) and reward rates are times 2^64.
    """

    config: str
    tick_spacing: int
    liquidity: int
    sqrt_price: int
    tick: int
    mint_a: str
    vault_a: str
    fee_growth_a: int
    mint_b: str
    vault_b: str
    fee_growth_b: int
    rewards_updated_s: int
    reward_mint_0: str
    reward_vault_0: str
    reward_per_second_0: int
    reward_growth_0: int
    reward_mint_1: str
    reward_vault_1: str
    reward_per_second_1: int
    reward_growth_1: int
    reward_mint_2: str
    reward_vault_2: str
    reward_per_second_2: int
    reward_growth_2: int


class RaydiumPool(NamedTuple):
    """`PoolState` of Raydium's concentrated liquidity (CLMM). Times are in seconds.

    The square root of the price, growths (per unit of liquidity) and reward rates are times 2^64.
    """

    config: str
    mint_a: str
    mint_b: str
    vault_a: str
    vault_b: str
    liquidity: int
    sqrt_price: int
    tick: int
    tick_spacing: int
    fee_growth_a: int
    fee_growth_b: int
    reward_start_s_0: int
    reward_end_s_0: int
    reward_updated_s_0: int
    reward_per_second_0: int
    reward_mint_0: str
    reward_vault_0: str
    reward_growth_0: int
    reward_start_s_1: int
    reward_end_s_1: int
    reward_updated_s_1: int
    reward_per_second_1: int
    reward_mint_1: str
    reward_vault_1: str
    reward_growth_1: int
    reward_start_s_2: int
    reward_end_s_2: int
    reward_updated_s_2: int
    reward_per_second_2: int
    reward_mint_2: str
    reward_vault_2: str
    reward_growth_2: int


class RaydiumReserves(NamedTuple):
    """`PoolState` of Raydium's constant-product pools (CPMM). The vaults also hold fees of others."""

    config: str
    vault_a: str
    vault_b: str
    lp_mint: str
    mint_a: str
    mint_b: str
    lp_supply: int
    protocol_fees_a: int
    protocol_fees_b: int
    fund_fees_a: int
    fund_fees_b: int
    creator_fees_a: int
    creator_fees_b: int

    def reserves(self, raw_a: int, raw_b: int) -> tuple[int, int]:
        """Return the reserves of tokens a and b without fees; negative if the vaults do not cover the fees.

        Args:
            raw_a: The amount in the vault of token a.
            raw_b: The amount in the vault of token b.
        """
        return (
            raw_a - self.protocol_fees_a - self.fund_fees_a - self.creator_fees_a,
            raw_b - self.protocol_fees_b - self.fund_fees_b - self.creator_fees_b,
        )


class RangePosition(NamedTuple):
    """`Position` of Orca, or `PersonalPositionState` of Raydium: liquidity between two ticks.

    Checkpoints are growths inside the range when the position last changed: of fees in tokens a and b, and of rewards 0
    to 2. Owed amounts were counted then.
    """

    pool: str
    mint: str
    liquidity: int
    tick_lower: int
    tick_upper: int
    checkpoint_a: int
    owed_a: int
    checkpoint_b: int
    owed_b: int
    checkpoint_0: int
    owed_0: int
    checkpoint_1: int
    owed_1: int
    checkpoint_2: int
    owed_2: int


class PoolTick(NamedTuple):
    """One tick of a `TickArray` or `DynamicTickArray` of Orca, or of a `TickArrayState` of Raydium.

    Growths are those on the other side of the tick, of fees in tokens a and b, and of rewards 0 to 2.
    """

    pool: str
    is_initialized: bool
    growth_outside_a: int
    growth_outside_b: int
    growth_outside_0: int
    growth_outside_1: int
    growth_outside_2: int


class BinPosition(NamedTuple):
    """`PositionV2` of Meteora's DLMM: shares of a range of bins. `content` is the whole account."""

    pair: str
    owner: str
    bin_lower: int
    bin_upper: int
    lock_release_point: int  # a slot or a time, by the pair
    fee_owner: str  # the system program if the owner gets the fees
    content: bytes


class BinPair(NamedTuple):
    """`LbPair` of Meteora's DLMM. Reward rates are times 2^64; times are in seconds."""

    function_type: int  # 0: unset, 1: pays rewards, 2: has limit orders
    active_bin: int
    locks_by_time: int  # 1: locks end at a time; 0: at a slot
    mint_a: str
    mint_b: str
    vault_a: str
    vault_b: str
    reward_mint_0: str
    reward_vault_0: str
    reward_end_s_0: int
    reward_per_second_0: int
    reward_updated_s_0: int
    reward_mint_1: str
    reward_vault_1: str
    reward_end_s_1: int
    reward_per_second_1: int
    reward_updated_s_1: int


class BinArray(NamedTuple):
    """`BinArray` of Meteora's DLMM. `content` holds its 70 bins."""

    array_index: int
    pair: str
    content: bytes


class PositionBundle(NamedTuple):
    """`PositionBundle` of Orca. Bit i of `occupied_bits` is set if the bundle has a position i, of 256."""

    mint: str
    occupied_bits: int
