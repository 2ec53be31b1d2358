"""Orca's Whirlpools: position NFTs, and bundle NFTs with many positions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from chainfolio.adapters.solana.account_layouts import TICKS
from chainfolio.adapters.solana.account_reads import AccountRead
from chainfolio.adapters.solana.account_records import PositionBundle, RangePosition, Whirlpool
from chainfolio.adapters.solana.call_rules import CallRule, by_name, trades
from chainfolio.adapters.solana.layouts import SYSTEM
from chainfolio.adapters.solana.positions import Claim, DecoderPlan, Family, Unreadable, require
from chainfolio.adapters.solana.ranges import RangeReward, check_position, decode_range, tick_locations
from chainfolio.adapters.solana.ticks import orca_root
from chainfolio.plans import Unknown

BUNDLE_SIZE: Final = 256  # positions


class _Reward(NamedTuple):
    """A reward of a pool; rate and growth are times 2^64."""

    number: int
    mint: str
    vault: str
    per_second: int
    growth: int


def position(claim: Claim) -> DecoderPlan:
    """Decode an NFT: what closing its position pays, or each position of its bundle.

    Returns an empty list if the token is neither a position nor a bundle.

    Raises:
        Unreadable: An account could not be read, or is inconsistent with the position.
    """
    single_read = AccountRead(claim.program, "whirlpool_position", (b"position", claim.subject))
    bundle_read = AccountRead(claim.program, "whirlpool_bundle", (b"position_bundle", claim.subject))
    single, bundle = yield [single_read, bundle_read]
    reads = [single_read]
    if isinstance(single, Unknown):
        if isinstance(bundle, Unknown):
            for unknown in (single, bundle):
                if unknown.cause != "absent":
                    raise Unreadable(unknown.reason)
            return []
        reads = list(_bundle_reads(claim, bundle))
    results = yield reads
    positions: list[RangePosition] = [check_position(require(each), claim.subject) for each in results]
    results = yield [AccountRead(claim.program, "whirlpool", (each.pool,)) for each in positions]
    pools: list[Whirlpool] = [require(each) for each in results]
    reads_by_position = [list(_reads(claim.program, each, pool)) for each, pool in zip(positions, pools, strict=True)]
    records = iter((yield [read for reads in reads_by_position for read in reads]))
    decoded = []
    for each, pool, reads in zip(positions, pools, reads_by_position, strict=True):
        lower, upper, *vaults = [require(next(records)) for _ in reads]
        rewards = [
            RangeReward(reward.number, reward.mint, reward.growth + _new_growth(pool, reward, claim.time_s), vault)
            for reward, vault in zip(_rewards(pool), vaults[2:], strict=True)
        ]
        sqrt_prices = (orca_root(each.tick_lower), orca_root(each.tick_upper))
        decoded.append(decode_range(each, pool, sqrt_prices, (lower, upper), vaults[:2], rewards))
    return decoded


def _bundle_reads(claim: Claim, bundle: PositionBundle) -> Iterator[AccountRead]:
    """Yield a read of each position in a bundle."""
    for index in range(BUNDLE_SIZE):
        if bundle.occupied_bits >> index & 1:
            seeds = (b"bundled_position", claim.subject, str(index).encode())
            yield AccountRead(claim.program, "whirlpool_position", seeds)


def _reads(program: str, stored: RangePosition, pool: Whirlpool) -> Iterator[AccountRead]:
    """Yield reads of both ticks, the vaults of tokens a and b, and the vault of each reward."""
    for first_tick, index in tick_locations(stored, pool, TICKS):
        seeds = (b"tick_array", stored.pool, str(first_tick).encode())
        yield AccountRead(program, "whirlpool_tick", seeds, (index,))
    for vault in (pool.vault_a, pool.vault_b, *(reward.vault for reward in _rewards(pool))):
        yield AccountRead("", "token_account", (vault,))


def _rewards(pool: Whirlpool) -> list[_Reward]:
    """Return the initialized rewards of a pool."""
    rewards = [
        _Reward(0, pool.reward_mint_0, pool.reward_vault_0, pool.reward_per_second_0, pool.reward_growth_0),
        _Reward(1, pool.reward_mint_1, pool.reward_vault_1, pool.reward_per_second_1, pool.reward_growth_1),
        _Reward(2, pool.reward_mint_2, pool.reward_vault_2, pool.reward_per_second_2, pool.reward_growth_2),
    ]
    return [reward for reward in rewards if reward.mint != SYSTEM]


def _new_growth(pool: Whirlpool, reward: _Reward, time_s: int) -> int:
    """Return the growth of a reward per unit of liquidity since the pool was last updated, times 2^64."""
    seconds = max(0, time_s - pool.rewards_updated_s)
    return seconds * reward.per_second // pool.liquidity if pool.liquidity else 0


# Accounts and data of instructions: https://github.com/orca-so/whirlpools
ADD, REMOVE = (CallRule(kind, 4, units=8, is_pool=True) for kind in ("add", "remove"))
OPEN = CallRule("open", 3, 1, accounts=(2,), is_pool=True)  # the older token program closes no mints
CLOSE = CallRule("close", 3, accounts=(2,), is_pool=True)
RULES: Final = by_name(
    open_position=OPEN,
    open_position_with_metadata=OPEN,
    open_position_with_token_extensions=OPEN._replace(accounts=(2, 3)),
    increase_liquidity=ADD,
    increase_liquidity_v2=ADD._replace(position=6),
    increase_liquidity_by_token_amounts_v2=ADD._replace(position=6, units=None),
    decrease_liquidity=REMOVE,
    decrease_liquidity_v2=REMOVE._replace(position=6),
    collect_fees=CallRule("earn", 3),
    collect_fees_v2=CallRule("earn", 3),
    collect_reward=CallRule("earn", 3),
    collect_reward_v2=CallRule("earn", 3),
    close_position=CLOSE,
    close_position_with_token_extensions=CLOSE,
    **trades("swap", "swap_v2", "two_hop_swap", "two_hop_swap_v2", "update_fees_and_rewards", "lock_position"),
)

FAMILY = Family("orca_whirlpool", position=position, instructions=RULES)
