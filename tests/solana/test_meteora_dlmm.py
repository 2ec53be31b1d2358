"""Positions in Meteora's DLMM: bytes and amounts as Meteora's SDK encodes and computes them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest

from chainfolio.adapters.solana.positions import Claim
from chainfolio.adapters.solana.protocols.meteora_dlmm import FAMILY
from chainfolio.adapters.solana.ranges import NOT_COVERED
from chainfolio.plans import run_offline
from chainfolio.protocols import DecodedPosition, InstalledProtocol, InstalledProtocols
from tests.solana.changes import Change, key, sized, spliced, strange, without
from tests.solana.fakes import WALLET
from tests.solana.ledger import Ledger
from tests.solana.ledger_node import LedgerNode, read
from tests.solana.meteora import DLMM, Bin, BinShare, Pair, Position, Reward, sdk_amounts, write
from tests.solana.sdk import Small, run_job

NOW_S: Final = 1_760_000_000
SLOT: Final = 380_000_000
FAR: Final = b"\xff\xff\xff\x7f"  # the highest number of a bin
INSTALLED: Final = InstalledProtocols((InstalledProtocol("meteora", FAMILY, {"dlmm": (DLMM,)}, {}),))


def decoded(ledger: Ledger, position: Position) -> Sequence[DecodedPosition]:
    """Decode a position offline."""
    claim = Claim(WALLET, position.address, DLMM, NOW_S, 1, SLOT, 700)
    positions: Sequence[DecodedPosition] = run_offline(FAMILY.position(claim), ledger)
    return positions


def drawn(chance: random.Random, width: int = 0) -> Position:
    """Any position: below, around or above the price, in one bin or in hundreds."""
    width = width or chance.choice((1, 2, 69, 70, 71, 140, 300))
    lower = chance.randint(-500, 500)
    numbers = range(lower, lower + width)

    def two(limit: int) -> tuple[int, int]:
        return chance.randrange(limit), chance.randrange(limit)

    bins = {
        number: Bin(two(2**40), chance.choice((0, chance.randrange(2**64, 2**110))), two(2**100), two(2**100))
        for number in numbers
    }

    def bin_share(of: Bin) -> BinShare:
        share = chance.choice((0, chance.randrange(of.supply + 1)))
        checkpoints = [
            tuple(growth - chance.randrange(min(growth, 2**60) + 1) for growth in each)
            for each in (of.fees, of.rewards)
        ]
        return BinShare(
            share,
            (checkpoints[0][0], checkpoints[0][1]),
            two(2**30),
            (checkpoints[1][0], checkpoints[1][1]),
            two(2**30),
        )

    def reward() -> Reward:
        end_s = NOW_S + chance.randint(-(10**5), 10**5)
        return chance.choice((Reward(), Reward(key(), key(), end_s, chance.randrange(2**90), NOW_S - 10**6)))

    rewards = (reward(), reward())
    pair = Pair(
        key(),
        (key(), key()),
        (key(), key()),
        chance.choice((lower - 5, lower, lower + width // 2, lower + width)),
        bins,
        rewards,
        chance.choice((0, 1, 2)),
    )
    return Position(pair, key(), WALLET, lower, tuple(bin_share(bins[number]) for number in numbers))


@pytest.mark.parametrize("seed", range(12))
def test_every_amount_of_a_position_is_what_meteoras_own_arithmetic_gives(seed: int) -> None:
    position = drawn(random.Random(seed))
    ledger = Ledger()
    write(ledger, position)
    x, y, fee_x, fee_y, *rewards = sdk_amounts(ledger, position, NOW_S)
    [decoded_position] = decoded(ledger, position)
    mints = position.pair.mints
    assert [(each.token, each.raw) for each in decoded_position.supplied] == [(mints[0], x), (mints[1], y)]
    reward_amounts = [
        (each.mint, raw)
        for each, raw in zip(position.pair.rewards, rewards, strict=True)
        if each != Reward() and position.pair.function != 2
    ]
    assert [(each.token, each.raw) for each in decoded_position.rewards] == [
        (mints[0], fee_x),
        (mints[1], fee_y),
        *reward_amounts,
    ]
    assert (
        decoded_position.position_type,
        decoded_position.pool,
        decoded_position.replaces,
        decoded_position.unlock_s,
        decoded_position.unverified,
    ) == (
        "LIQUIDITYPOOL",
        position.pair.address,
        (),
        0,
        "",
    )


def test_arrays_are_where_meteoras_sdk_says() -> None:
    position = drawn(random.Random(1))
    for index in (-70, -1, 0, 1, 6_000):
        reported = run_job("dlmm_address", pair=position.pair.address, index=Small(index), program=DLMM)
        assert reported == position.pair.at(index)


def test_bins_that_nobody_ever_made_are_empty_as_meteoras_sdk_has_them() -> None:
    position = drawn(random.Random(2), 140)
    ledger = Ledger()
    write(ledger, position)
    del ledger.accounts[next(iter(position.pair.arrays))]
    position = replace(position, pair=position.pair)
    with pytest.raises(Exception, match="counted more than its bins"):
        decoded(ledger, position)
    fresh = replace(position, shares=tuple(BinShare(share=each.share) for each in position.shares))
    write(ledger, fresh)
    del ledger.accounts[next(iter(position.pair.arrays))]
    [decoded_position] = decoded(ledger, fresh)
    assert [each.raw for each in decoded_position.supplied] == sdk_amounts(ledger, fresh, NOW_S)[:2]


def rewarded(paid_s: int, end_s: int) -> Position:
    """Half of the one bin that is traded in, of a pair that pays a token each second."""
    reward = Reward(key(), key(), end_s, 10**6 << 64, paid_s)
    pair = Pair(key(), (key(), key()), (key(), key()), 7, {7: Bin((9, 9), 2**100)}, (reward, Reward()))
    return Position(pair, key(), WALLET, 7, (BinShare(2**99, rewards=(3, 0)),))


@pytest.mark.parametrize(
    ("paid_s", "end_s", "seconds"),
    [(NOW_S - 150, NOW_S + 90, 150), (NOW_S - 150, NOW_S - 60, 90)],
)
def test_rewards_are_paid_up_to_now_or_to_their_end_as_meteoras_sdk_has_it(
    paid_s: int, end_s: int, seconds: int
) -> None:
    position, ledger = rewarded(paid_s, end_s), Ledger()
    write(ledger, position)
    [*_, reward] = decoded(ledger, position)[0].rewards
    assert reward.raw == sdk_amounts(ledger, position, NOW_S)[4]
    assert abs(reward.raw - 3 - 10**6 * seconds // 15 // 2) <= 1


def test_a_reward_that_is_said_to_be_counted_beyond_its_end_takes_nothing_back() -> None:
    position, ledger = rewarded(NOW_S - 150, NOW_S - 300), Ledger()
    write(ledger, position)
    assert decoded(ledger, position)[0].rewards[-1].raw == 3


def test_of_a_reward_no_more_is_paid_than_its_vault_has() -> None:
    position, ledger = rewarded(NOW_S - 150, NOW_S), Ledger()
    write(ledger, position, vaults=77)
    assert decoded(ledger, position)[0].rewards[-1].raw == 77


def test_fees_that_go_to_the_owner_by_name_are_the_owners() -> None:
    position, ledger = rewarded(NOW_S, NOW_S), Ledger()
    write(ledger, replace(position, fee_owner=WALLET))
    assert {each.token for each in decoded(ledger, position)[0].rewards} >= set(position.pair.mints)


def test_a_position_of_more_bins_than_there_can_be_is_none() -> None:
    position, ledger = rewarded(NOW_S, NOW_S), Ledger()
    write(ledger, position)
    sized(112 * (1_401 - 70))(ledger, position)
    spliced(7_916, (position.lower + 1_400).to_bytes(4, "little"))(ledger, position)
    with pytest.raises(Exception, match="lies in no bins, or in more"):
        decoded(ledger, position)


def test_fees_that_go_to_somebody_else_are_not_the_owners() -> None:
    position = replace(drawn(random.Random(3), 5), fee_owner=key())
    ledger = Ledger()
    write(ledger, position)
    [decoded_position] = decoded(ledger, position)
    assert not {each.token for each in decoded_position.rewards} & set(position.pair.mints)


@pytest.mark.parametrize(
    ("by_time", "locked_until", "unlock_s"),
    [(1, NOW_S + 5, NOW_S + 5), (1, NOW_S, 0), (0, SLOT + 1_000, NOW_S + 400), (0, SLOT, 0), (1, 0, 0)],
)
def test_a_locked_position_says_until_when(by_time: int, locked_until: int, unlock_s: int) -> None:
    position = drawn(random.Random(4), 5)
    position = replace(position, pair=replace(position.pair, by_time=by_time), locked_until=locked_until)
    ledger = Ledger()
    write(ledger, position)
    assert decoded(ledger, position)[0].unlock_s == unlock_s


def test_a_position_that_was_closed_meanwhile_is_none() -> None:
    assert decoded(Ledger(), drawn(random.Random(5), 2)) == []


def pair_of(position: Position) -> str:
    """Return the address of the pair."""
    return position.pair.address


def array_of(position: Position) -> str:
    """Return the address of the first array of bins."""
    return next(iter(position.pair.arrays))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (sized(-1), "more than it has room for"),
        (spliced(0, b"\0"), "another kind"),
        (spliced(40, bytes(32)), "a position of 1111"),
        (spliced(7_916, FAR), "lies in no bins"),
        (spliced(7_912, FAR), "lies in no bins"),
        (without(pair_of), "there is no account"),
        (spliced(0, b"\0", pair_of), "another kind"),
        (spliced(8, b"\x7f", array_of), "those of another pair"),
        (spliced(24, bytes(32), array_of), "those of another pair"),
        (spliced(0, b"\0", array_of), "another kind"),
        (strange(lambda position: position.pair.vaults[0]), "another token"),
    ],
)
def test_what_a_position_cannot_be_is_said_and_never_zero(change: Change, reason: str) -> None:
    position = drawn(random.Random(6), 90)
    ledger = Ledger()
    write(ledger, position)
    change(ledger, position)
    with pytest.raises(Exception, match=reason):
        decoded(ledger, position)


def test_huge_shares_of_a_liar_end_in_amounts_that_its_pair_does_not_have() -> None:
    position = drawn(random.Random(7), 5)
    position = replace(position, pair=replace(position.pair, bins={n: Bin((5, 5), 1) for n in position.pair.bins}))
    ledger = Ledger()
    write(ledger, replace(position, shares=(BinShare(share=2**128 - 1),) * 5))
    [decoded_position] = decoded(ledger, position)
    assert decoded_position.unverified == NOT_COVERED


def test_a_pair_that_was_drained_pays_nobody_and_its_positions_have_no_value() -> None:
    position = drawn(random.Random(8), 70)
    ledger = Ledger()
    write(ledger, position, vaults=0)
    [decoded_position] = decoded(ledger, position)
    assert decoded_position.unverified == NOT_COVERED
    assert all(each.raw == 0 for each in decoded_position.rewards if each.token not in position.pair.mints)


async def test_positions_are_found_by_their_owner_in_a_wallet_without_tokens() -> None:
    position, foreign = drawn(random.Random(9), 3), replace(drawn(random.Random(10), 3), owner=key())
    ledger = Ledger()
    write(ledger, position)
    write(ledger, foreign)
    states = await read(LedgerNode(ledger, {WALLET: []}), WALLET, installed=INSTALLED)
    [decoded_position] = states[WALLET].positions
    assert (decoded_position.protocol, decoded_position.pool) == ("meteora", position.pair.address)
    assert not states[WALLET].issues
