"""Meteora's DAMM v2: position NFTs with liquidity, fees and rewards. Liquidity may be locked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from chainfolio.adapters.solana.account_reads import AccountRead
from chainfolio.adapters.solana.account_records import TokenAccount
from chainfolio.adapters.solana.call_rules import CallRule, by_name, trades
from chainfolio.adapters.solana.pool_layouts import DammPool, DammPosition
from chainfolio.adapters.solana.positions import SLOT_MS, Claim, DecoderPlan, Family, Unreadable, require
from chainfolio.adapters.solana.ranges import NOT_COVERED, sum_by_token, vault_balance
from chainfolio.plans import Unknown
from chainfolio.protocols import DecodedPosition, TokenAmount

Q64: Final = 1 << 64
WORD: Final = 1 << 256
COMPOUNDING: Final = 2  # the fee mode in which fees are added to the pool, whose liquidity is a part of its reserves
LOCKED_FOREVER: Final = "it is locked for good: only what it earns can be taken"


class _Reward(NamedTuple):
    """An active reward of a pool, with the checkpoint and the owed amount of a position."""

    mint: str
    vault: str
    end_s: int
    per_second: int  # times 2^64
    growth: int  # per unit of liquidity, times 2^192
    updated_s: int
    checkpoint: int
    owed_raw: int


def position(claim: Claim) -> DecoderPlan:
    """Decode an NFT: what closing the position pays now, and its locked parts as positions of their own.

    Returns an empty list if the token is no position.

    Raises:
        Unreadable: An account could not be read, or the numbers are inconsistent.
    """
    [result] = yield [AccountRead(claim.program, "damm_position", (b"position", claim.subject))]
    if isinstance(result, Unknown) and result.cause == "absent":
        return []
    stored: DammPosition = require(result)
    if stored.mint != claim.subject:
        raise Unreadable("it is the position of another token")
    [result] = yield [AccountRead(claim.program, "damm_pool", (stored.pool,))]
    pool: DammPool = require(result)
    is_priced = 0 < pool.min_sqrt_price <= pool.sqrt_price <= pool.max_sqrt_price
    if not (pool.liquidity if pool.fee_mode == COMPOUNDING else is_priced):
        raise Unreadable("its pool has no liquidity, or no price between those that it may have")
    rewards = _rewards(pool, stored)
    addresses = [pool.vault_a, pool.vault_b, *(reward.vault for reward in rewards)]
    results = yield [AccountRead("", "token_account", (address,)) for address in addresses]
    return list(_decode_parts(claim, stored, pool, rewards, [require(each) for each in results]))


def _decode_parts(
    claim: Claim, stored: DammPosition, pool: DammPool, rewards: Sequence[_Reward], vaults: Sequence[TokenAccount]
) -> Iterator[DecodedPosition]:
    """Yield the unlocked part with all fees and rewards, the vesting part, and the locked part.

    The first one comes always, the others if there are such parts. All are unverified if the vaults do not cover them.
    Raises Unreadable if a vault holds another token.
    """
    point = claim.time_s if pool.locks_by_time else claim.slot
    unlockable = min(max(0, _unlockable(stored, point)), stored.vesting_liquidity)
    fee_a = _uncollected(stored, pool.fee_growth_a - stored.fee_checkpoint_a, stored.fee_owed_a, 128)
    fee_b = _uncollected(stored, pool.fee_growth_b - stored.fee_checkpoint_b, stored.fee_owed_b, 128)
    fees = [TokenAmount(pool.mint_a, fee_a), TokenAmount(pool.mint_b, fee_b)]
    payable = [
        TokenAmount(reward.mint, min(_reward_owed(claim, stored, pool, reward), vault_balance(vault, reward.mint)))
        for reward, vault in zip(rewards, vaults[2:], strict=True)
    ]
    is_covered = all(
        vault_balance(vault, fee.token) >= raw + fee.raw
        for vault, fee, raw in zip(vaults, fees, _withdrawable(pool, stored.liquidity), strict=False)
    )
    fault = "" if is_covered else NOT_COVERED
    part = partial(DecodedPosition, "LIQUIDITYPOOL", pool=stored.pool, replaces=(stored.mint,))
    unlocked = _amounts(pool, stored.unlocked_liquidity + unlockable)
    yield part(unlocked, rewards=sum_by_token([*fees, *payable]), unverified=fault)
    if stored.vesting_liquidity > unlockable:
        vesting = _amounts(pool, stored.vesting_liquidity - unlockable)
        yield part(vesting, name="Vesting", unlock_s=_vesting_end_s(stored, pool, claim), unverified=fault)
    if stored.permanently_locked_liquidity:
        locked = _amounts(pool, stored.permanently_locked_liquidity)
        yield part(locked, name="Locked for good", unverified=fault or LOCKED_FOREVER)


def _amounts(pool: DammPool, liquidity: int) -> tuple[TokenAmount, TokenAmount]:
    raw_a, raw_b = _withdrawable(pool, liquidity)
    return TokenAmount(pool.mint_a, raw_a), TokenAmount(pool.mint_b, raw_b)


def _withdrawable(pool: DammPool, liquidity: int) -> tuple[int, int]:
    """Return the raw units of tokens a and b that withdrawing some liquidity pays, rounded down."""
    if pool.fee_mode == COMPOUNDING:
        return liquidity * pool.reserve_a // pool.liquidity, liquidity * pool.reserve_b // pool.liquidity
    return (
        liquidity * (pool.max_sqrt_price - pool.sqrt_price) // (pool.sqrt_price * pool.max_sqrt_price),
        liquidity * (pool.sqrt_price - pool.min_sqrt_price) >> 128,
    )


def _uncollected(stored: DammPosition, growth: int, owed_raw: int, scale_bits: int) -> int:
    """Return the uncollected raw units of a token, at most 2^64 - 1.

    Args:
        stored: All its liquidity earns, locked or not.
        growth: Growth since the position last changed, times 2^`scale_bits`.
        owed_raw: Counted at that time.
        scale_bits: The scale of `growth`.
    """
    return min(owed_raw + (stored.liquidity * (growth % WORD) >> scale_bits), Q64 - 1)


def _rewards(pool: DammPool, stored: DammPosition) -> list[_Reward]:
    """Return the active rewards of a pool."""
    rewards = []
    if pool.reward_is_active_0:
        rewards.append(
            _Reward(
                pool.reward_mint_0,
                pool.reward_vault_0,
                pool.reward_end_s_0,
                pool.reward_per_second_0,
                pool.reward_growth_0,
                pool.reward_updated_s_0,
                stored.reward_checkpoint_0,
                stored.reward_owed_0,
            )
        )
    if pool.reward_is_active_1:
        rewards.append(
            _Reward(
                pool.reward_mint_1,
                pool.reward_vault_1,
                pool.reward_end_s_1,
                pool.reward_per_second_1,
                pool.reward_growth_1,
                pool.reward_updated_s_1,
                stored.reward_checkpoint_1,
                stored.reward_owed_1,
            )
        )
    return rewards


def _reward_owed(claim: Claim, stored: DammPosition, pool: DammPool, reward: _Reward) -> int:
    """Return the uncollected raw units of a reward, with its growth since the pool was last updated."""
    seconds = max(0, min(claim.time_s, reward.end_s) - reward.updated_s)
    new_growth = (seconds * reward.per_second << 128) // pool.liquidity if pool.liquidity else 0
    return _uncollected(stored, reward.growth + new_growth - reward.checkpoint, reward.owed_raw, 192)


def _unlockable(stored: DammPosition, point: int) -> int:
    """Return the vesting liquidity that could be unlocked at a slot or a time in seconds."""
    if point < stored.cliff_point:
        return 0
    periods = min((point - stored.cliff_point) // stored.period, stored.period_count) if stored.period else 0
    return stored.cliff_liquidity + periods * stored.liquidity_per_period - stored.released_liquidity


def _vesting_end_s(stored: DammPosition, pool: DammPool, claim: Claim) -> int:
    """Return the time at which vesting ends; 0 if another account has the schedule, or if it has ended."""
    end = stored.cliff_point + stored.period * stored.period_count
    end_s = end if pool.locks_by_time else claim.time_s + (end - claim.slot) * SLOT_MS // 1000
    return end_s if end and end_s > claim.time_s else 0


# Instructions of the program's interface, which its SDK has: https://github.com/MeteoraAg/cp-amm-sdk
OPEN = CallRule("open", 1, 0, accounts=(1, 7), is_pool=True)
REMOVE = CallRule("remove", 9, units=8, is_pool=True)
RULES: Final = by_name(
    create_position=OPEN._replace(accounts=(1, 4)),
    initialize_pool=OPEN._replace(units=8),
    initialize_pool_with_dynamic_config=OPEN._replace(accounts=(1, 8)),
    initialize_customizable_pool=OPEN._replace(accounts=(1, 6)),
    add_liquidity=CallRule("add", 8, units=8, is_pool=True),
    remove_liquidity=REMOVE,
    remove_all_liquidity=REMOVE._replace(units=None, is_whole=True),
    claim_position_fee=CallRule("earn", 9),
    claim_reward=CallRule("earn", 6),
    close_position=CallRule("close", 0, accounts=(3,), is_pool=True),
    **trades("swap", "swap2"),
)

FAMILY = Family("meteora_damm", position=position, role="damm", instructions=RULES)
