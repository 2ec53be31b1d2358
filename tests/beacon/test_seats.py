"""The reward of a seat in the sync committee, inferred from the rewards of one block."""

from __future__ import annotations

import pytest

from chainfolio.adapters.beacon.block_responses import BlockBody, BlockMessage, SyncAggregate
from chainfolio.adapters.beacon.voting import infer_seat_reward, sync_rewards

ROOT = "0x" + "00" * 32
PLACES = ((0, 7), (3, 8), (9, 7), (17, 9))


def block(bits: str | None) -> BlockMessage:
    """A block whose sync committee signed like that; None before there was one."""
    return BlockMessage(1, 1, ROOT, ROOT, BlockBody(sync_aggregate=None if bits is None else SyncAggregate(bits)))


@pytest.mark.parametrize(
    ("bits", "nets"),
    [
        ("0xffffff", {7: 2, 8: 1, 9: 1}),
        ("0x000000", {7: -2, 8: -1, 9: -1}),
        ("0x010002", {7: 0, 8: -1, 9: 1}),
        ("0xff", {7: 0, 8: 1, 9: -1}),  # places beyond the bits are not signed
        ("0x", {7: -2, 8: -1, 9: -1}),
        (None, {7: -2, 8: -1, 9: -1}),
    ],
)
def test_what_one_block_brought_tells_it_of_all(bits: str | None, nets: dict[int, int]) -> None:
    rewards = {validator: 16_411 * net for validator, net in nets.items()}
    assert infer_seat_reward(block(bits), PLACES, rewards) == 16_411
    assert sync_rewards(block(bits), PLACES, 16_411) == rewards


@pytest.mark.parametrize(
    ("bits", "rewards"),
    [
        ("0xffffff", {7: 20, 8: 10, 9: 11}),  # not the same for all
        ("0xffffff", {7: 21, 8: 10, 9: 10}),  # half a gwei a seat
        ("0xffffff", {7: -20, 8: -10, 9: -10}),  # a penalty for who signed
        ("0x000000", {7: -20, 8: 0, 9: -10}),  # nothing was left to take
    ],
)
def test_what_no_one_number_explains_is_told_of_no_other_block(bits: str, rewards: dict[int, int]) -> None:
    assert infer_seat_reward(block(bits), PLACES, rewards) is None


def test_seats_of_which_as_many_signed_as_did_not_tell_nothing() -> None:
    assert infer_seat_reward(block("0x0100"), ((0, 7), (9, 7)), {7: 0}) is None
