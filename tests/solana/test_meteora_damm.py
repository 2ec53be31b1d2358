"""Positions in Meteora's DAMM v2: bytes and amounts as Meteora's SDK encodes and computes them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from chainfolio.adapters.solana.positions import Claim
from chainfolio.adapters.solana.protocols.meteora_damm import FAMILY, LOCKED_FOREVER
from chainfolio.adapters.solana.ranges import NOT_COVERED
from chainfolio.plans import Unknown, run_offline
from chainfolio.protocols import DecodedPosition, InstalledProtocol, InstalledProtocols
from tests.solana.changes import Change, key, pool_of, sized, spliced, stolen, strange, without
from tests.solana.damm import DAMM, Pool, Position, Reward, sdk_amounts, write
from tests.solana.fakes import WALLET
from tests.solana.ledger import Ledger
from tests.solana.ledger_node import LedgerNode, read
from tests.solana.sdk import run_job

NOW_S: Final = 1_760_000_000
SLOT: Final = 380_000_000
INSTALLED: Final = InstalledProtocols((InstalledProtocol("meteora", FAMILY, {"damm": (DAMM,)}, {}),))
LOWEST, HIGHEST = 4_295_048_016, 79_226_673_521_066_979_257_578_248_091  # of any pool


def drawn(chance: random.Random, mode: int = 0) -> Position:
    """Any position: free, locked or both, in a pool of one range or of all prices."""

    def two(limit: int) -> tuple[int, int]:
        return chance.randrange(limit), chance.randrange(limit)

    def reward() -> Reward:
        end_s = NOW_S + chance.randint(-(10**5), 10**5)
        random_reward = Reward(key(), key(), end_s, chance.randrange(2**80), chance.randrange(2**190), NOW_S - 10**6)
        return chance.choice((Reward(), random_reward))

    lowest, highest = chance.choice(((LOWEST, HIGHEST), (2**60, 2**70)))
    root = chance.randrange(2**61, 2**69)
    growth, rewards = two(2**200), (reward(), reward())
    by_time = chance.randrange(2)
    pool = Pool(
        key(),
        (key(), key()),
        (key(), key()),
        chance.randrange(2**100, 2**110),
        (lowest, root, highest),
        growth,
        rewards,
        mode,
        two(2**50),
        by_time,
    )
    vesting = chance.choice((0, chance.randrange(2**90, 2**92)))
    now = NOW_S if by_time else SLOT
    terms = (now + chance.randint(-5_000, 1_000), 1_000, vesting // 10, vesting // 30, 0, 20) if vesting else (0,) * 6
    checkpoints = [tuple(each - chance.randrange(min(each, 2**150) + 1) for each in growth)]
    seen_rewards = [each.growth - chance.randrange(min(each.growth, 2**120) + 1) for each in rewards]
    return Position(
        pool,
        key(),
        (chance.randrange(2**90), vesting, chance.choice((0, chance.randrange(2**80)))),
        (checkpoints[0][0], checkpoints[0][1]),
        two(2**40),
        ((seen_rewards[0], 5), (seen_rewards[1], 6)),
        terms,
    )


def decoded(ledger: Any, position: Position) -> Sequence[DecodedPosition]:
    """Decode a position offline."""
    claim = Claim(WALLET, position.mint, DAMM, NOW_S, 1, SLOT, 700)
    positions: Sequence[DecodedPosition] = run_offline(FAMILY.position(claim), ledger)
    return positions


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("seed", range(5))
def test_every_amount_of_a_position_is_what_meteoras_own_arithmetic_gives(seed: int, mode: int) -> None:
    position, ledger = drawn(random.Random(seed), mode), Ledger()
    write(ledger, position)
    pool = position.pool
    expected = sdk_amounts(ledger, position, NOW_S, NOW_S if pool.by_time else SLOT)
    positions = {each.name: each for each in decoded(ledger, position)}
    amounts = {name: [each.raw for each in part.supplied] for name, part in positions.items()}
    assert amounts[""] == expected["free"]
    assert amounts.get("Vesting", [0, 0]) == expected["vesting"]
    assert amounts.get("Locked for good", [0, 0]) == expected["locked"]
    reward_amounts = [
        (each.mint, raw) for each, raw in zip(pool.rewards, expected["rewards"], strict=True) if each != Reward()
    ]
    assert [(each.token, each.raw) for each in positions[""].rewards] == [
        *zip(pool.mints, expected["fees"], strict=True),
        *reward_amounts,
    ]
    for each in positions.values():
        assert (each.position_type, each.pool, each.replaces) == ("LIQUIDITYPOOL", pool.address, (position.mint,))
        assert [amount.token for amount in each.supplied] == list(pool.mints)


def test_a_position_is_where_meteoras_sdk_says() -> None:
    position = drawn(random.Random(1))
    assert run_job("damm_address", mint=position.mint) == position.address


def plain(liquidity: tuple[int, int, int], **overrides: Any) -> Position:
    """A position that earned nothing."""
    pool = Pool(key(), (key(), key()), (key(), key()), 2**100, (LOWEST, 2**64, HIGHEST))
    return Position(pool, key(), liquidity, **overrides)


def test_what_is_locked_for_good_has_no_value_and_what_is_vesting_says_until_when() -> None:
    ledger = Ledger()
    position = plain((2**90, 2**90, 2**90), vesting=(NOW_S + 100, 10, 2**89, 2**86, 0, 4))
    write(ledger, position)
    free, vesting, locked = decoded(ledger, position)
    assert [each.unverified for each in (free, vesting, locked)] == ["", "", LOCKED_FOREVER]
    assert [each.unlock_s for each in (free, vesting, locked)] == [0, NOW_S + 140, 0]
    by_slots = replace(position, pool=replace(position.pool, by_time=0), vesting=(SLOT + 100, 10, 2**89, 2**86, 0, 4))
    write(ledger, by_slots)
    assert [each.unlock_s for each in decoded(ledger, by_slots)] == [0, NOW_S + 56, 0]


def test_more_that_was_released_than_is_due_takes_nothing_from_what_is_free() -> None:
    ledger, position = Ledger(), plain((2**90, 2**90, 0), vesting=(NOW_S - 100, 10, 2**80, 2**80, 2**85, 4))
    write(ledger, position)
    free, vesting = decoded(ledger, position)
    assert [each.raw for each in free.supplied] == [each.raw for each in vesting.supplied] == [2**26 - 1] * 2


def test_no_more_becomes_free_than_is_vesting() -> None:
    ledger, position = Ledger(), plain((0, 2**90, 0), vesting=(NOW_S - 1, 0, 2**100, 0, 0, 0))
    write(ledger, position)
    [decoded_position] = decoded(ledger, position)
    assert [each.raw for each in decoded_position.supplied] == [2**26 - 1] * 2


def test_what_vests_by_another_account_is_shown_without_a_time() -> None:
    ledger, position = Ledger(), plain((0, 2**90, 0))
    write(ledger, position)
    free, vesting = decoded(ledger, position)
    assert [each.raw for each in free.supplied] == [0, 0]
    assert (vesting.unlock_s, vesting.name) == (0, "Vesting")


def test_a_token_that_stands_for_nothing_is_no_position() -> None:
    assert decoded(Ledger(), drawn(random.Random(5))) == []
    with pytest.raises(Exception, match="busy"):
        decoded(lambda asked: Unknown("busy"), drawn(random.Random(5)))


def test_a_pool_that_was_drained_pays_nobody_and_its_positions_have_no_value() -> None:
    ledger, position = Ledger(), drawn(random.Random(8))
    write(ledger, position, vaults=0)
    positions = decoded(ledger, position)
    assert {each.unverified for each in positions} == {NOT_COVERED}
    assert all(each.raw == 0 for each in positions[0].rewards if each.token not in position.pool.mints)


def test_huge_numbers_of_a_liar_end_in_amounts_that_its_pool_does_not_have() -> None:
    ledger, position = Ledger(), plain((2**128 - 1, 2**128 - 1, 2**128 - 1), vesting=(1, 0, 2**128 - 1, 0, 5, 0))
    write(ledger, replace(position, fee_checkpoints=(5, 5), pool=replace(position.pool, growth=(4, 4))))
    assert {each.unverified for each in decoded(ledger, position)} == {NOT_COVERED}


@pytest.fixture(scope="module")
def sample() -> tuple[Ledger, Position]:
    """A position that can be read."""
    ledger, position = Ledger(), plain((2**90, 0, 0))
    write(ledger, position)
    return ledger, position


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (sized(-1), "407 bytes"),
        (sized(1), "409 bytes"),
        (spliced(0, b"\0"), "another kind"),
        (spliced(40, bytes(32)), "of another token"),
        (stolen, "belongs to the program"),
        (without(pool_of), "there is no account"),
        (sized(-1, pool_of), "1111 bytes"),
        (sized(1, pool_of), "1113 bytes"),
        (spliced(0, b"\0", pool_of), "another kind"),
        (spliced(424, bytes(16), pool_of), "no price between"),
        (spliced(456, bytes(16), pool_of), "no price between"),
        (spliced(440, bytes(16), pool_of), "no price between"),
        (spliced(360, bytes(16) + bytes(108) + b"\2", pool_of), "no liquidity"),
        (strange(lambda position: position.pool.vaults[1]), "another token"),
    ],
)
def test_what_a_position_cannot_be_is_said_and_never_zero(
    sample: tuple[Ledger, Position], change: Change, reason: str
) -> None:
    ledger, position = Ledger({**sample[0].accounts}), sample[1]
    change(ledger, position)
    with pytest.raises(Exception, match=reason):
        decoded(ledger, position)


async def test_a_wallet_with_a_position_has_it_in_place_of_the_token(sample: tuple[Ledger, Position]) -> None:
    ledger, position = sample
    states = await read(LedgerNode(ledger, {WALLET: [position.mint, key()]}), WALLET, installed=INSTALLED)
    [decoded_position] = states[WALLET].positions
    assert [asset.reference for asset in decoded_position.replaces] == [position.mint]
    assert sorted(asset.reference for asset in decoded_position.supplied) == sorted(position.pool.mints)
    assert not states[WALLET].issues
