"""Positions in Orca's Whirlpools: bytes by Orca's coder, and every amount by Orca's own arithmetic."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from chainfolio.adapters.solana.account_reads import derived
from chainfolio.adapters.solana.positions import Claim
from chainfolio.adapters.solana.protocols.orca_whirlpool import FAMILY
from chainfolio.adapters.solana.ranges import NOT_COVERED
from chainfolio.adapters.solana.ticks import MAX_TICK, growth_inside, orca_root
from chainfolio.plans import run_offline
from chainfolio.protocols import DecodedPosition
from tests.solana.changes import Change, key, pool_of, sized, spliced, stolen, strange, without
from tests.solana.ledger import Ledger
from tests.solana.sdk import Job, Small, run_job, run_jobs
from tests.solana.whirlpools import CONFIG, PROGRAM, Pool, Position, Tick, write

NOW_S: Final = 1_760_000_000
WORD: Final = 2**128
FAR: Final = 200_000  # ticks from the middle, so that amounts fit 64 bits


def decoded(ledger: Ledger, mint: str) -> Sequence[DecodedPosition]:
    """Decode the position behind a token offline."""
    positions: Sequence[DecodedPosition] = run_offline(FAMILY.position(Claim("somebody", mint, PROGRAM, NOW_S)), ledger)
    return positions


def drawn(chance: random.Random, **overrides: Any) -> Position:
    """Any position that a pool can have: below, around or above the price, with growths that wrap around."""
    spacing = chance.choice((1, 2, 8, 64, 128, 32_896))
    limit = FAR // spacing
    low, high = sorted(chance.sample(range(-limit, limit), 2))
    lower, upper = low * spacing, high * spacing
    tick = chance.choice((chance.randint(-FAR, FAR), lower, upper - 1, upper, (lower + upper) // 2))
    low_root, high_root = orca_root(tick), orca_root(tick + 1)
    fee_growth = (chance.randrange(2**70), chance.randrange(2**100))
    rewards = tuple(
        (key(), key(), chance.randrange(2**70), chance.randrange(2**80)) for _ in range(chance.randint(0, 3))
    )
    pool = Pool(
        (key(), key()),
        (key(), key()),
        spacing,
        chance.randint(low_root, high_root - 1),
        tick,
        chance.randint(1, 2**80),
        fee_growth,
        NOW_S - chance.randint(0, 10**6),
        rewards,
    )

    def random_growth() -> int:
        return chance.choice((chance.randrange(2**60), WORD - chance.randrange(2**60)))

    def checkpoint(at: Callable[[Tick], int], total: int) -> int:
        """Return a checkpoint below the growth inside the range by less than 2^80."""
        low, high = ((index, each.used, at(each)) for index, each in zip((lower, upper), ticks, strict=True))
        return (growth_inside(tick, low, high, total) - chance.randrange(2**80)) % WORD

    ticks = tuple(
        Tick(True, (random_growth(), random_growth()), (random_growth(), random_growth(), random_growth()))
        for _ in range(2)
    )
    position = Position(
        pool,
        key(),
        chance.randrange(2**40),
        lower,
        upper,
        (ticks[0], ticks[1]),
        (
            checkpoint(lambda each: each.beyond[0], fee_growth[0]),
            checkpoint(lambda each: each.beyond[1], fee_growth[1]),
        ),
        (chance.randrange(2**40), chance.randrange(2**40)),
        tuple(
            (checkpoint(lambda each, at=at: each.rewards[at], growth), chance.randrange(2**40))  # type: ignore[misc]
            for at, growth in enumerate([*(reward[3] for reward in rewards), 0, 0, 0][:3])
        ),
        chance.random() < 0.5,
    )
    return replace(position, **overrides)


def test_the_root_of_the_price_at_every_kind_of_tick_is_orcas() -> None:
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
    assert run_job("orca_roots", ticks=list(map(Small, ticks))) == [orca_root(tick) for tick in ticks]


@pytest.mark.parametrize("seed", range(12))
def test_every_amount_of_a_position_is_what_orcas_own_arithmetic_gives(seed: int) -> None:
    position = drawn(random.Random(seed))
    ledger = Ledger()
    write(ledger, position, vaults=2**64 - 1)
    closing, fees, rewards = run_jobs(position.sdk_jobs(NOW_S))
    [decoded_position] = decoded(ledger, position.mint)
    sides = zip(position.pool.mints, (closing["tokenEstA"], closing["tokenEstB"]), strict=True)
    assert [(each.token, each.raw) for each in decoded_position.supplied] == list(sides)
    expected = [*zip(position.pool.mints, (fees["feeOwedA"], fees["feeOwedB"]), strict=True)]
    expected += [
        (reward[0], each["rewardsOwed"])
        for reward, each in zip(position.pool.rewards, rewards["rewards"], strict=False)
    ]
    assert [(each.token, each.raw) for each in decoded_position.rewards] == expected
    assert (decoded_position.position_type, decoded_position.pool, decoded_position.replaces) == (
        "LIQUIDITYPOOL",
        position.pool.address,
        (position.mint,),
    )


def test_addresses_are_where_orcas_sdk_says() -> None:
    position = drawn(random.Random(3))
    jobs: list[Job] = [
        ("orca_address", {"of": "getPositionAddress", "arguments": [position.mint]}),
        ("orca_address", {"of": "getTickArrayAddress", "arguments": [position.pool.address, Small(-5632)]}),
        ("orca_address", {"of": "getPositionBundleAddress", "arguments": [position.mint]}),
        ("orca_address", {"of": "getBundledPositionAddress", "arguments": [position.mint, Small(255)]}),
        (
            "orca_address",
            {"of": "getWhirlpoolAddress", "arguments": [*position.pool.mints, Small(position.pool.spacing)]},
        ),
    ]
    assert run_jobs(jobs) == [
        position.address,
        derived(PROGRAM, (b"tick_array", position.pool.address, b"-5632")),
        derived(PROGRAM, (b"position_bundle", position.mint)),
        derived(PROGRAM, (b"bundled_position", position.mint, b"255")),
        position.pool.address,
    ]
    assert position.pool.config == CONFIG


def test_a_bundle_is_all_positions_that_it_has() -> None:
    bundle, indexes = key(), (0, 7, 255)
    bundled = [
        replace(drawn(random.Random(10 + at)), mint=bundle, seeds=(b"bundled_position", bundle, str(at).encode()))
        for at in indexes
    ]
    ledger = Ledger()
    write(ledger, *bundled, vaults=2**64 - 1)
    bitmap = sum(1 << at for at in indexes).to_bytes(32, "little")
    fields = {"positionBundleMint": bundle, "positionBitmap": bitmap}
    content = run_job("orca", encoder="getPositionBundleEncoder", fields=fields)
    ledger.put(derived(PROGRAM, (b"position_bundle", bundle)), PROGRAM, content)
    assert [each.pool for each in decoded(ledger, bundle)] == [each.pool.address for each in bundled]
    quotes = [run_jobs(each.sdk_jobs(NOW_S))[0] for each in bundled]
    assert [[side.raw for side in each.supplied] for each in decoded(ledger, bundle)] == [
        [each["tokenEstA"], each["tokenEstB"]] for each in quotes
    ]


def test_a_token_that_stands_for_nothing_is_no_position() -> None:
    assert decoded(Ledger(), key()) == []


def test_lamports_at_the_address_of_a_position_make_none() -> None:
    mint, ledger = key(), Ledger()
    ledger.put(derived(PROGRAM, (b"position", mint)), "1" * 32, b"")
    assert decoded(ledger, mint) == []


def without_ticks(ledger: Ledger, position: Position) -> None:
    """The arrays of ticks are gone."""
    for address, (_, content) in list(ledger.accounts.items()):
        if content[:8].hex() in ("4561bdbe6e0742bb", "11d8f68ee1c7da38"):
            del ledger.accounts[address]


def of_another_mint(ledger: Ledger, position: Position) -> None:
    """The position is that of another token."""
    content = ledger.accounts[position.address][1]
    ledger.put(position.address, PROGRAM, content[:40] + bytes(32) + content[72:])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (sized(-1), "it has 215 bytes"),
        (stolen, "it belongs to the program"),
        (without(pool_of), "there is no account"),
        (without_ticks, "there is no account"),
        (of_another_mint, "of another token"),
        (spliced(88, b"\xff\xff\xff\x7f"), "between no ticks"),
        (spliced(41, bytes(2), pool_of), "no spacing"),
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
    position = drawn(random.Random(5), liquidity=2**60)
    ledger = Ledger()
    write(ledger, position, vaults=0)
    [decoded_position] = decoded(ledger, position.mint)
    assert decoded_position.unverified == NOT_COVERED
    assert all(each.raw == 0 for each in decoded_position.rewards[2:])  # a reward is paid as far as it is there
