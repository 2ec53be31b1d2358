"""Raydium's concentrated liquidity: each position is a token, worth its liquidity, its fees and its rewards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from adapters.solana.account_layouts import RangePosition, RaydiumPool
from adapters.solana.account_reads import AccountRead
from adapters.solana.layouts import SYSTEM
from adapters.solana.positions import Claim, DecoderPlan, Family, Unreadable, sure
from adapters.solana.ranges import checked, places, worth
from adapters.solana.ticks import raydium_root
from chainfolio.plans import Unknown

TICKS: Final = 60  # of an array


class _Reward(NamedTuple):
    """A reward of a pool: from when to when it is paid, up to when that is counted, and how much."""

    number: int
    open_s: int
    end_s: int
    paid_s: int
    per_second: int
    mint: str
    vault: str
    growth: int


def position(claim: Claim) -> DecoderPlan:
    """What closing the position gives."""
    [said] = yield [AccountRead(claim.program, "raydium_position", (b"position", claim.subject))]
    if isinstance(said, Unknown):
        if said.cause != "absent":
            raise Unreadable(said.reason)
        return []
    stored: RangePosition = checked(said, claim.subject)
    [whole] = yield [AccountRead(claim.program, "raydium_clmm", (stored.pool,))]
    pool: RaydiumPool = sure(whole)
    rewards = _rewards(pool)
    lower, upper, *vaults = [sure(each) for each in (yield list(_reads(claim.program, stored, pool)))]
    grown = [
        (each.number, each.mint, each.growth + _since(pool, each, claim.time_s), vault)
        for each, vault in zip(rewards, vaults[2:], strict=True)
    ]
    roots = (raydium_root(stored.lower), raydium_root(stored.upper))
    return [worth(stored, pool, roots, (lower, upper), vaults[:2], grown)]


def _reads(program: str, stored: RangePosition, pool: RaydiumPool) -> Iterator[AccountRead]:
    """The two ticks, the vaults, and those of rewards."""
    for start, place in places(stored, pool, TICKS):
        seeds = (b"tick_array", stored.pool, start.to_bytes(4, "big", signed=True))
        yield AccountRead(program, "raydium_tick", seeds, (place,))
    for vault in (pool.vault_a, pool.vault_b, *(each.vault for each in _rewards(pool))):
        yield AccountRead("", "token_account", (vault,))


def _rewards(pool: RaydiumPool) -> list[_Reward]:
    fields = ("open", "end", "paid", "per_second", "reward_mint", "reward_vault", "reward_growth")
    every = [_Reward(number, *(getattr(pool, f"{field}_{number}") for field in fields)) for number in range(3)]
    return [each for each in every if each.mint != SYSTEM]


def _since(pool: RaydiumPool, reward: _Reward, time_s: int) -> int:
    """What a unit of liquidity earned of a reward since it was last counted."""
    seconds = min(time_s, reward.end_s) - reward.paid_s
    if time_s <= reward.open_s or seconds <= 0 or not pool.liquidity:
        return 0
    return seconds * reward.per_second // pool.liquidity


FAMILY = Family("raydium_clmm", position=position, role="clmm")
