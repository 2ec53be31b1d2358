"""Orca's Whirlpools: each position is a token, worth its liquidity, its fees and its rewards; a bundle has several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from adapters.solana.account_layouts import TICKS, RangePosition, Whirlpool
from adapters.solana.account_reads import AccountRead
from adapters.solana.layouts import SYSTEM
from adapters.solana.positions import Claim, DecoderPlan, Family, Unreadable, sure
from adapters.solana.ranges import checked, places, worth
from adapters.solana.ticks import orca_root
from chainfolio.plans import Unknown

BUNDLED: Final = range(256)  # the places of a bundle


def position(claim: Claim) -> DecoderPlan:
    """What closing the position gives, or all positions of the bundle that the token stands for."""
    own = AccountRead(claim.program, "whirlpool_position", (b"position", claim.subject))
    bundle = AccountRead(claim.program, "whirlpool_bundle", (b"position_bundle", claim.subject))
    single, several = yield [own, bundle]
    reads = [own]
    if isinstance(single, Unknown):
        if isinstance(several, Unknown):
            for said in (single, several):
                if said.cause != "absent":
                    raise Unreadable(said.reason)
            return []
        reads = [
            AccountRead(claim.program, "whirlpool_position", (b"bundled_position", claim.subject, str(place).encode()))
            for place in BUNDLED
            if several.taken >> place & 1
        ]
    stored: list[RangePosition] = [checked(sure(each), claim.subject) for each in (yield reads)]
    wholes = yield [AccountRead(claim.program, "whirlpool", (each.pool,)) for each in stored]
    pools: list[Whirlpool] = [sure(each) for each in wholes]
    asks = [list(_reads(claim.program, each, pool)) for each, pool in zip(stored, pools, strict=True)]
    answers = iter((yield [read for several in asks for read in several]))
    found = []
    for each, pool, asked in zip(stored, pools, asks, strict=True):
        lower, upper, *vaults = [sure(next(answers)) for _ in asked]
        rewards = [
            (number, mint, growth + _since(pool, per_second, claim.time_s), vault)
            for (number, mint, _, per_second, growth), vault in zip(_rewards(pool), vaults[2:], strict=True)
        ]
        roots = (orca_root(each.lower), orca_root(each.upper))
        found.append(worth(each, pool, roots, (lower, upper), vaults[:2], rewards))
    return found


def _reads(program: str, stored: RangePosition, pool: Whirlpool) -> Iterator[AccountRead]:
    """The two ticks, the vaults, and those of rewards."""
    for start, place in places(stored, pool, TICKS):
        seeds = (b"tick_array", stored.pool, str(start).encode())
        yield AccountRead(program, "whirlpool_tick", seeds, (place,))
    for vault in (pool.vault_a, pool.vault_b, *(vault for _, _, vault, *_ in _rewards(pool))):
        yield AccountRead("", "token_account", (vault,))


def _rewards(pool: Whirlpool) -> list[tuple[int, str, str, int, int]]:
    """Number, mint, vault, pay a second and growth of each reward that there is."""
    every = [
        (0, pool.reward_mint_0, pool.reward_vault_0, pool.per_second_0, pool.reward_growth_0),
        (1, pool.reward_mint_1, pool.reward_vault_1, pool.per_second_1, pool.reward_growth_1),
        (2, pool.reward_mint_2, pool.reward_vault_2, pool.per_second_2, pool.reward_growth_2),
    ]
    return [each for each in every if each[1] != SYSTEM]


def _since(pool: Whirlpool, per_second: int, time_s: int) -> int:
    """What a unit of liquidity earned of a reward since it was last counted."""
    seconds = max(0, time_s - pool.paid_s)
    return seconds * per_second // pool.liquidity if pool.liquidity else 0


FAMILY = Family("orca_whirlpool", position=position)
