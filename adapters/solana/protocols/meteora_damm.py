"""Meteora's DAMM v2: each position is a token, worth its liquidity, its fees and its rewards; some may be locked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from adapters.solana.account_layouts import TokenAccount
from adapters.solana.account_reads import AccountRead
from adapters.solana.pool_layouts import DammPool, DammPosition
from adapters.solana.positions import SLOT_MS, Claim, DecoderPlan, Family, Unreadable, sure
from adapters.solana.ranges import NOT_COVERED, held, summed
from chainfolio.plans import Unknown
from chainfolio.protocols import DecodedPosition, TokenAmount

Q64: Final = 1 << 64
WORD: Final = 1 << 256
COMPOUNDING: Final = 2  # fees go into the pool: liquidity is a part of what it has
FOR_GOOD: Final = "it is locked for good: only what it earns can be taken"


def position(claim: Claim) -> DecoderPlan:
    """What closing the position gives now; what is locked stands by itself."""
    [said] = yield [AccountRead(claim.program, "damm_position", (b"position", claim.subject))]
    if isinstance(said, Unknown) and said.cause == "absent":
        return []
    stored: DammPosition = sure(said)
    if stored.mint != claim.subject:
        raise Unreadable("it is the position of another token")
    [whole] = yield [AccountRead(claim.program, "damm_pool", (stored.pool,))]
    pool: DammPool = sure(whole)
    if not (pool.liquidity if pool.fees_go == COMPOUNDING else 0 < pool.lowest <= pool.root <= pool.highest):
        raise Unreadable("its pool has no liquidity, or no price between those that it may have")
    rewards = _rewards(pool)
    at = [pool.vault_a, pool.vault_b, *(vault for _, _, vault, _ in rewards)]
    vaults = [sure(each) for each in (yield [AccountRead("", "token_account", (each,)) for each in at])]
    return list(_parts(claim, stored, pool, vaults))


def _parts(
    claim: Claim, stored: DammPosition, pool: DammPool, vaults: Sequence[TokenAccount]
) -> Iterator[DecodedPosition]:
    """What is free, with all that was earned; what will be free; and what never will."""
    fresh = min(max(0, _unlocked(stored, claim.time_s if pool.by_time else claim.slot)), stored.vesting)
    fees = [
        TokenAmount(pool.mint_a, _earned(stored, pool.growth_a - stored.seen_a, stored.owed_a, 128)),
        TokenAmount(pool.mint_b, _earned(stored, pool.growth_b - stored.seen_b, stored.owed_b, 128)),
    ]
    paid = [
        TokenAmount(mint, min(_rewarded(claim, stored, pool, number), held(vault, mint)))
        for (number, mint, *_), vault in zip(_rewards(pool), vaults[2:], strict=True)
    ]
    everything = _amounts(pool, stored.free + stored.vesting + stored.locked)
    covered = all(
        held(vault, amount.token) >= raw + amount.raw
        for vault, amount, raw in zip(vaults, fees, everything, strict=False)
    )
    fault = "" if covered else NOT_COVERED
    yield _part(stored, pool, stored.free + fresh, rewards=summed([*fees, *paid]), unverified=fault)
    if stored.vesting > fresh:
        end = _end_s(stored, pool, claim)
        yield _part(stored, pool, stored.vesting - fresh, name="Vesting", unlock_s=end, unverified=fault)
    if stored.locked:
        yield _part(stored, pool, stored.locked, name="Locked for good", unverified=fault or FOR_GOOD)


def _part(stored: DammPosition, pool: DammPool, liquidity: int, **other: Any) -> DecodedPosition:
    raws = _amounts(pool, liquidity)
    supplied = (TokenAmount(pool.mint_a, raws[0]), TokenAmount(pool.mint_b, raws[1]))
    return DecodedPosition("LIQUIDITYPOOL", supplied, pool=stored.pool, replaces=(stored.mint,), **other)


def _amounts(pool: DammPool, liquidity: int) -> tuple[int, int]:
    """What taking out so much liquidity gives, rounded down."""
    if pool.fees_go == COMPOUNDING:
        return liquidity * pool.raw_a // pool.liquidity, liquidity * pool.raw_b // pool.liquidity
    return (
        liquidity * (pool.highest - pool.root) // (pool.root * pool.highest),
        liquidity * (pool.root - pool.lowest) >> 128,
    )


def _earned(stored: DammPosition, grown: int, owed: int, scale: int) -> int:
    """What all of its liquidity earned of a token, with what is owed; no more than 64 bits have room for."""
    liquidity = stored.free + stored.vesting + stored.locked
    return min(owed + (liquidity * (grown % WORD) >> scale), Q64 - 1)


def _rewards(pool: DammPool) -> list[tuple[int, str, str, int]]:
    """Number, mint, vault and growth of each reward that there is."""
    every = [
        (0, pool.reward_mint_0, pool.reward_vault_0, pool.reward_growth_0),
        (1, pool.reward_mint_1, pool.reward_vault_1, pool.reward_growth_1),
    ]
    return [each for each, pays in zip(every, (pool.pays_0, pool.pays_1), strict=True) if pays]


def _rewarded(claim: Claim, stored: DammPosition, pool: DammPool, number: int) -> int:
    """What it earned of a reward, with what was paid since that was last counted."""
    growth, end_s, paid_s, rate, seen, owed = (
        (pool.reward_growth_0, pool.end_0, pool.paid_0, pool.per_second_0, stored.seen_0, stored.owed_0),
        (pool.reward_growth_1, pool.end_1, pool.paid_1, pool.per_second_1, stored.seen_1, stored.owed_1),
    )[number]
    seconds = max(0, min(claim.time_s, end_s) - paid_s)
    fresh = (seconds * rate << 128) // pool.liquidity if pool.liquidity else 0
    return _earned(stored, growth + fresh - seen, owed, 192)


def _unlocked(stored: DammPosition, now: int) -> int:
    """How much of what is not yet free could be made free now. `now` is a slot, or in seconds."""
    if now < stored.cliff:
        return 0
    passed = min((now - stored.cliff) // stored.period, stored.periods) if stored.period else 0
    return stored.at_cliff + passed * stored.per_period - stored.released


def _end_s(stored: DammPosition, pool: DammPool, claim: Claim) -> int:
    """When all of it is free; 0 where another account says that, or it could be made free already."""
    end = stored.cliff + stored.period * stored.periods
    end_s = end if pool.by_time else claim.time_s + (end - claim.slot) * SLOT_MS // 1000
    return end_s if end and end_s > claim.time_s else 0


FAMILY = Family("meteora_damm", position=position, role="damm")
