"""Raydium's concentrated liquidity (CLMM): position NFTs with liquidity, fees and rewards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from chainfolio.adapters.solana.account_reads import AccountRead
from chainfolio.adapters.solana.account_records import RangePosition, RaydiumPool
from chainfolio.adapters.solana.call_rules import CallRule, by_name, trades
from chainfolio.adapters.solana.layouts import SYSTEM
from chainfolio.adapters.solana.positions import Claim, DecoderPlan, Family, Unreadable, require
from chainfolio.adapters.solana.ranges import RangeReward, check_position, decode_range, tick_locations
from chainfolio.adapters.solana.ticks import raydium_root
from chainfolio.plans import Unknown

TICKS: Final = 60  # per tick array
REWARDS: Final = 3  # per pool


class _Reward(NamedTuple):
    """A reward of a pool; rate and growth are times 2^64."""

    number: int
    start_s: int
    end_s: int
    updated_s: int
    per_second: int
    mint: str
    vault: str
    growth: int


def position(claim: Claim) -> DecoderPlan:
    """Decode an NFT: the amounts, fees and rewards that closing its position pays.

    Returns an empty list if the token is no position.

    Raises:
        Unreadable: An account could not be read, or is inconsistent with the position.
    """
    [result] = yield [AccountRead(claim.program, "raydium_position", (b"position", claim.subject))]
    if isinstance(result, Unknown):
        if result.cause != "absent":
            raise Unreadable(result.reason)
        return []
    stored: RangePosition = check_position(result, claim.subject)
    [result] = yield [AccountRead(claim.program, "raydium_clmm", (stored.pool,))]
    pool: RaydiumPool = require(result)
    results = yield list(_reads(claim.program, stored, pool))
    lower, upper, *vaults = [require(each) for each in results]
    rewards = [
        RangeReward(reward.number, reward.mint, reward.growth + _new_growth(pool, reward, claim.time_s), vault)
        for reward, vault in zip(_rewards(pool), vaults[2:], strict=True)
    ]
    sqrt_prices = (raydium_root(stored.tick_lower), raydium_root(stored.tick_upper))
    return [decode_range(stored, pool, sqrt_prices, (lower, upper), vaults[:2], rewards)]


def _reads(program: str, stored: RangePosition, pool: RaydiumPool) -> Iterator[AccountRead]:
    """Yield reads of both ticks, the vaults of tokens a and b, and the vault of each reward."""
    for first_tick, index in tick_locations(stored, pool, TICKS):
        seeds = (b"tick_array", stored.pool, first_tick.to_bytes(4, "big", signed=True))
        yield AccountRead(program, "raydium_tick", seeds, (index,))
    for vault in (pool.vault_a, pool.vault_b, *(reward.vault for reward in _rewards(pool))):
        yield AccountRead("", "token_account", (vault,))


def _rewards(pool: RaydiumPool) -> list[_Reward]:
    """Return the initialized rewards of a pool."""
    fields = ("start_s", "end_s", "updated_s", "per_second", "mint", "vault", "growth")
    rewards = [
        _Reward(number, *(getattr(pool, f"reward_{field}_{number}") for field in fields)) for number in range(REWARDS)
    ]
    return [reward for reward in rewards if reward.mint != SYSTEM]


def _new_growth(pool: RaydiumPool, reward: _Reward, time_s: int) -> int:
    """Return the growth of a reward per unit of liquidity since the pool was last updated, times 2^64."""
    seconds = min(time_s, reward.end_s) - reward.updated_s
    if time_s <= reward.start_s or seconds <= 0 or not pool.liquidity:
        return 0
    return seconds * reward.per_second // pool.liquidity


# Accounts and data of instructions: https://github.com/raydium-io/raydium-clmm
OPEN = CallRule("open", 2, 1, units=24, accounts=(9,), is_pool=True)  # the older program closes no mints
ADD = CallRule("add", 1, units=8, is_pool=True)
REMOVE = CallRule("remove", 1, units=8, vaults=(5, 6), is_pool=True)
RULES: Final = by_name(
    open_position=OPEN,
    open_position_v2=OPEN,
    open_position_with_token22_nft=OPEN._replace(accounts=(2, 8)),
    increase_liquidity=ADD,
    increase_liquidity_v2=ADD,
    decrease_liquidity=REMOVE,
    decrease_liquidity_v2=REMOVE,
    close_position=CallRule("close", 1, accounts=(3,), is_pool=True),
    **trades("swap", "swap_v2", "swap_router_base_in"),
)

FAMILY = Family("raydium_clmm", position=position, role="clmm", instructions=RULES)
