"""Positions in Raydium's concentrated liquidity: bytes and amounts by its SDK."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import pytest

from chainfolio.adapters.solana.positions import Claim
from chainfolio.adapters.solana.protocols.raydium_clmm import FAMILY
from chainfolio.adapters.solana.ranges import NOT_COVERED
from chainfolio.adapters.solana.ticks import MAX_TICK, growth_inside, raydium_root
from chainfolio.plans import run_offline
from chainfolio.protocols import DecodedPosition
from tests.solana.changes import Change, key, pool_of, sized, spliced, stolen, strange, without
from tests.solana.ledger import Ledger
from tests.solana.raydium import CLMM, Pool, Position, Reward, Tick, write
from tests.solana.sdk import Small, run_job, run_jobs

NOW_S: Final = 1_760_000_000
WORD: Final = 2**128
FAR: Final = 200_000  # ticks from the middle, so that amounts fit 64 bits


def decoded(ledger: Ledger, mint: str) -> Sequence[DecodedPosition]:
    """Decode the position behind a token offline."""
    positions: Sequence[DecodedPosition] = run_offline(FAMILY.position(Claim("somebody", mint, CLMM, NOW_S)), ledger)
    return positions


def drawn_reward(chance: random.Random) -> Reward:
    """A reward that is to come, is paid, is over, or was counted to its end."""
    open_s = NOW_S + chance.choice((-(10**6), -(10**4), 0, 10**4))
    end_s = open_s + chance.choice((10**3, 10**5, 10**7))
    paid_s = min(chance.choice((open_s, end_s, NOW_S - 10)), end_s)
    return Reward(key(), key(), chance.randrange(2**70), chance.randrange(2**80), open_s, end_s, max(paid_s, open_s))


def drawn(chance: random.Random) -> Position:
    """Any position that a pool can have: below, around or above the price, with growths that wrap around."""
    spacing = chance.choice((1, 10, 60, 120))
    low, high = sorted(chance.sample(range(-FAR // spacing, FAR // spacing), 2))
    lower, upper = low * spacing, high * spacing
    tick = chance.choice((chance.randint(-FAR, FAR), lower, upper - 1, upper, (lower + upper) // 2))
    root = chance.randint(raydium_root(tick), raydium_root(tick + 1) - 1)
    growth = (chance.randrange(2**70), chance.randrange(2**100))
    rewards = tuple(drawn_reward(chance) for _ in range(chance.randint(0, 3)))
    pool = Pool(key(), (key(), key()), (key(), key()), spacing, root, tick, chance.randint(1, 2**80), growth, rewards)

    def random_growth() -> int:
        return chance.choice((chance.randrange(2**60), WORD - chance.randrange(2**60)))

    ticks = tuple(
        Tick((random_growth(), random_growth()), (random_growth(), random_growth(), random_growth())) for _ in range(2)
    )

    def checkpoint(at: Callable[[Tick], int], total: int) -> int:
        """Return a checkpoint below the growth inside the range by less than 2^80."""
        below, above = ((index, True, at(each)) for index, each in zip((lower, upper), ticks, strict=True))
        return (growth_inside(tick, below, above, total) - chance.randrange(2**80)) % WORD

    wholes = [*(each.growth for each in rewards), 0, 0, 0][:3]
    return Position(
        pool,
        key(),
        chance.randrange(2**40),
        lower,
        upper,
        (ticks[0], ticks[1]),
        (checkpoint(lambda each: each.beyond[0], growth[0]), checkpoint(lambda each: each.beyond[1], growth[1])),
        (chance.randrange(2**40), chance.randrange(2**40)),
        tuple(
            (checkpoint(lambda each, at=at: each.rewards[at], total), chance.randrange(2**40))  # type: ignore[misc]
            for at, total in enumerate(wholes)
        ),
    )


def test_the_root_of_the_price_at_every_kind_of_tick_is_raydiums() -> None:
    chance = random.Random(1)
    ticks = sorted(
        {
            0,
            MAX_TICK,
            -MAX_TICK,
            *(sign * 2**bit for bit in range(19) for sign in (1, -1) if 2**bit <= MAX_TICK),
            *(chance.randint(-MAX_TICK, MAX_TICK) for _ in range(20_000)),
        }
    )
    assert run_job("raydium_roots", ticks=list(map(Small, ticks))) == [raydium_root(tick) for tick in ticks]


@pytest.mark.parametrize("seed", range(12))
def test_every_amount_of_a_position_is_what_raydiums_own_arithmetic_gives(seed: int) -> None:
    position = drawn(random.Random(seed))
    ledger = Ledger()
    write(ledger, position, vaults=2**64 - 1)
    raws, claims = run_jobs(position.sdk_jobs(NOW_S))
    [decoded_position] = decoded(ledger, position.mint)
    mints = position.pool.mints
    assert [(each.token, each.raw) for each in decoded_position.supplied] == [
        (mints[0], raws["amountA"]),
        (mints[1], raws["amountB"]),
    ]
    rewards = [each.mint for each in position.pool.rewards]
    assert [(each.token, each.raw) for each in decoded_position.rewards] == [
        *zip(mints, claims["fees"], strict=True),
        *zip(rewards, claims["rewards"], strict=True),
    ]
    assert (
        decoded_position.position_type,
        decoded_position.pool,
        decoded_position.replaces,
        decoded_position.unverified,
    ) == (
        "LIQUIDITYPOOL",
        position.pool.address,
        (position.mint,),
        "",
    )


def test_addresses_are_where_raydiums_sdk_says() -> None:
    position = drawn(random.Random(3))
    start = position.start(position.lower)
    addresses = run_jobs(
        [
            ("raydium_address", {"of": "getPdaPersonalPositionAddress", "arguments": [CLMM, position.mint]}),
            (
                "raydium_address",
                {"of": "getPdaTickArrayAddress", "arguments": [CLMM, position.pool.address, Small(start)]},
            ),
        ]
    )
    assert addresses[0] == position.address
    assert addresses[1] in position.jobs


def test_a_token_that_stands_for_nothing_is_no_position() -> None:
    assert decoded(Ledger(), key()) == []


def other_arrays(change: Callable[[bytes], bytes]) -> Change:
    """The arrays of ticks are others."""

    def changed(ledger: Ledger, position: Position) -> None:
        for address, (owner, content) in list(ledger.accounts.items()):
            if content[:8].hex() == "c09b55cd31f9812a":
                ledger.put(address, owner, change(content))

    return changed


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (sized(-1), "it has 280 bytes"),
        (sized(1), "it has 282 bytes"),
        (stolen, "it belongs to the program"),
        (spliced(0, b"\0"), "another kind"),
        (without(pool_of), "there is no account"),
        (spliced(9, bytes(32)), "of another token"),
        (spliced(73, b"\xff\xff\xff\x7f"), "between no ticks"),
        (spliced(235, bytes(2), pool_of), "no spacing"),
        (other_arrays(lambda content: content[:-1]), "no array of ticks"),
        (other_arrays(lambda content: content[:8] + bytes(32) + content[40:]), "those of another pool"),
        (strange(lambda position: position.pool.vaults[0]), "another token"),
    ],
)
def test_what_a_position_cannot_be_is_said_and_never_zero(change: Change, reason: str) -> None:
    position = drawn(random.Random(5))
    ledger = Ledger()
    write(ledger, position)
    change(ledger, position)
    with pytest.raises(Exception, match=reason):
        decoded(ledger, position.mint)


def test_a_pool_that_was_drained_pays_nobody_and_its_positions_have_no_value() -> None:
    position = replace(drawn(random.Random(5)), liquidity=2**60)
    ledger = Ledger()
    write(ledger, position, vaults=0)
    [decoded_position] = decoded(ledger, position.mint)
    assert decoded_position.unverified == NOT_COVERED
    assert all(each.raw == 0 for each in decoded_position.rewards[2:])


def test_huge_numbers_of_a_liar_end_in_amounts_that_its_pool_does_not_have() -> None:
    position = drawn(random.Random(5))
    ledger = Ledger()
    write(ledger, position)
    for at, size in ((81, 16), (97, 32), (129, 16), (145, 72)):
        spliced(at, b"\xff" * size)(ledger, position)
    [decoded_position] = decoded(ledger, position.mint)
    assert decoded_position.unverified == NOT_COVERED
