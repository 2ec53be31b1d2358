"""Orca's Whirlpools: each position is a token, worth its liquidity, its fees and its rewards; a bundle has several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from adapters.solana.account_layouts import TICKS, TokenAccount, Whirlpool, WhirlpoolPosition, WhirlpoolTick
from adapters.solana.account_reads import AccountRead
from adapters.solana.layouts import SYSTEM
from adapters.solana.positions import Claim, DecoderPlan, Family, Unreadable, sure
from adapters.solana.ticks import MAX_TICK, amounts, earned, inside, orca_root
from chainfolio.plans import Unknown
from chainfolio.protocols import DecodedPosition, TokenAmount

NOT_COVERED: Final = "its pool does not have what it says that the position is worth"
REWARDS: Final = range(3)


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
        places = [place for place in range(256) if several.taken >> place & 1]
        reads = [
            AccountRead(claim.program, "whirlpool_position", (b"bundled_position", claim.subject, str(place).encode()))
            for place in places
        ]
    stored: list[WhirlpoolPosition] = [sure(each) for each in (yield reads)]
    for each in stored:
        if each.mint != claim.subject or not -MAX_TICK <= each.lower < each.upper <= MAX_TICK:
            raise Unreadable("it is the position of another token, or lies between no ticks")
    wholes = yield [AccountRead(claim.program, "whirlpool", (each.pool,)) for each in stored]
    pools: list[Whirlpool] = [sure(each) for each in wholes]
    asks = [list(_reads(claim.program, each, pool)) for each, pool in zip(stored, pools, strict=True)]
    answers = iter((yield [read for several in asks for read in several]))
    found = []
    for each, pool, asked in zip(stored, pools, asks, strict=True):
        found.append(_worth(each, pool, [sure(next(answers)) for _ in asked], claim.time_s))
    return found


def _reads(program: str, stored: WhirlpoolPosition, pool: Whirlpool) -> Iterator[AccountRead]:
    """The two ticks, the vaults, and those of rewards."""
    if not pool.spacing or stored.lower % pool.spacing or stored.upper % pool.spacing:
        raise Unreadable("its pool has no spacing, or has no such ticks")
    for tick in (stored.lower, stored.upper):
        start = tick // (TICKS * pool.spacing) * TICKS * pool.spacing
        seeds = (b"tick_array", stored.pool, str(start).encode())
        yield AccountRead(program, "whirlpool_tick", seeds, ((tick - start) // pool.spacing,))
    for vault in (pool.vault_a, pool.vault_b, *(vault for mint, vault, *_ in _rewards(pool) if mint != SYSTEM)):
        yield AccountRead("", "token_account", (vault,))


def _rewards(pool: Whirlpool) -> list[tuple[str, str, int, int]]:
    """Mint, vault, pay a second and growth of each reward."""
    return [
        (pool.reward_mint_0, pool.reward_vault_0, pool.per_second_0, pool.reward_growth_0),
        (pool.reward_mint_1, pool.reward_vault_1, pool.per_second_1, pool.reward_growth_1),
        (pool.reward_mint_2, pool.reward_vault_2, pool.per_second_2, pool.reward_growth_2),
    ]


def _worth(stored: WhirlpoolPosition, pool: Whirlpool, said: Sequence[Any], time_s: int) -> DecodedPosition:
    """What a position is worth, by its pool, its ticks and the vaults."""
    lower, upper, *vaults = said
    if {lower.pool, upper.pool} != {stored.pool}:
        raise Unreadable("its ticks are those of another pool")
    raws = amounts(stored.liquidity, pool.root, orca_root(stored.lower), orca_root(stored.upper))
    fees = (
        _earned(stored, pool.tick, (lower, upper), pool.growth_a, "a"),
        _earned(stored, pool.tick, (lower, upper), pool.growth_b, "b"),
    )
    own, of_rewards = vaults[:2], iter(vaults[2:])
    rewards = [TokenAmount(pool.mint_a, fees[0]), TokenAmount(pool.mint_b, fees[1])]
    for number, (mint, _, per_second, growth) in enumerate(_rewards(pool)):
        if mint != SYSTEM:
            grown = growth + _since(pool, per_second, time_s)
            owed = _earned(stored, pool.tick, (lower, upper), grown, str(number))
            # What the program pays is what is owed, as far as it is there.
            rewards.append(TokenAmount(mint, min(owed, _held(next(of_rewards), mint))))
    needed = [raw + fee for raw, fee in zip(raws, fees, strict=True)]
    held = [_held(vault, mint) for vault, mint in zip(own, (pool.mint_a, pool.mint_b), strict=True)]
    covered = all(have >= need for have, need in zip(held, needed, strict=True))
    return DecodedPosition(
        "LIQUIDITYPOOL",
        supplied=(TokenAmount(pool.mint_a, raws[0]), TokenAmount(pool.mint_b, raws[1])),
        rewards=_summed(rewards),
        pool=stored.pool,
        replaces=(stored.mint,),
        unverified="" if covered else NOT_COVERED,
    )


def _earned(
    stored: WhirlpoolPosition, tick: int, ticks: tuple[WhirlpoolTick, WhirlpoolTick], whole: int, of: str
) -> int:
    """What was earned of one token and not collected: `a` and `b` are fees, numbers are rewards."""
    lower, upper = (
        (at, each.used, getattr(each, f"beyond_{of}"))
        for at, each in zip((stored.lower, stored.upper), ticks, strict=True)
    )
    grown = inside(tick, lower, upper, whole) - getattr(stored, f"seen_{of}")
    return earned(getattr(stored, f"owed_{of}"), grown, stored.liquidity)


def _since(pool: Whirlpool, per_second: int, time_s: int) -> int:
    """What a unit of liquidity earned of a reward since it was last counted."""
    seconds = max(0, time_s - pool.paid_s)
    return seconds * per_second // pool.liquidity if pool.liquidity else 0


def _held(vault: TokenAccount, mint: str) -> int:
    if vault.mint != mint:
        raise Unreadable(f"a vault of its pool holds another token: {vault.mint}")
    return vault.raw


def _summed(several: Sequence[TokenAmount]) -> tuple[TokenAmount, ...]:
    """A reward may be of the same token as the fees."""
    sums: dict[str, int] = {}
    for each in several:
        sums[each.token] = sums.get(each.token, 0) + each.raw
    return tuple(TokenAmount(token, raw) for token, raw in sums.items())


FAMILY = Family("orca_whirlpool", position=position)
