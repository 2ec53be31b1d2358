"""Active part of a delegation: epoch by epoch, within the cluster's limits for activation."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.adapters.solana.stakes import (
    HISTORY_SIZE,
    ActivationStatus,
    ClusterStake,
    activation_status,
    stake_history,
)

NEVER = 2**64 - 1
MANY = {epoch: ClusterStake(1_000, 1_000, 1_000) for epoch in range(5, 200)}


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (4, ActivationStatus(0, 0, 0)),
        (5, ActivationStatus(0, 100, 0)),
        (6, ActivationStatus(9, 91, 0)),
        (7, ActivationStatus(17, 83, 0)),
        (8, ActivationStatus(24, 76, 0)),
    ],
)
def test_stake_comes_by_its_part_of_nine_per_cent_of_what_is_active(epoch: int, expected: ActivationStatus) -> None:
    assert activation_status(100, 5, NEVER, epoch, MANY) == expected


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (10, ActivationStatus(100, 0, 0)),
        (11, ActivationStatus(100, 0, 100)),
        (12, ActivationStatus(91, 0, 91)),
        (13, ActivationStatus(83, 0, 83)),
    ],
)
def test_stake_goes_as_it_comes(epoch: int, expected: ActivationStatus) -> None:
    past = {epoch: ClusterStake(1_000, 0, 1_000) for epoch in range(11, 200)}
    assert activation_status(100, 5, 11, epoch, past) == expected


def test_without_a_history_what_moved_has_arrived() -> None:
    assert activation_status(100, 5, NEVER, 6, {}) == ActivationStatus(100, 0, 0)
    assert activation_status(100, 5, 8, 9, {}) == ActivationStatus(0, 0, 0)
    assert activation_status(100, 5, 5, 9, {}) == ActivationStatus(0, 0, 0), "taken back before it began"
    assert activation_status(100, 5, NEVER, 5, {}).state == "activating"
    assert [activation_status(100, 5, 8, epoch, {}).state for epoch in (7, 8, 9)] == [
        "active",
        "deactivating",
        "inactive",
    ]


@given(
    st.integers(1, 2**63),
    st.integers(0, 5),
    st.integers(1, 40),
    st.lists(st.tuples(*[st.integers(0, 2**63)] * 3), max_size=50),
)
def test_stake_never_leaves_its_bounds_and_comes_before_it_goes(
    stake: int, activation_epoch: int, lasts: int, moving: list[tuple[int, int, int]]
) -> None:
    past = {epoch: ClusterStake(*each) for epoch, each in enumerate(moving)}
    shares = [activation_status(stake, activation_epoch, activation_epoch + lasts, epoch, past) for epoch in range(60)]
    assert all(0 <= each.active <= stake and 0 <= each.activating <= stake for each in shares)
    before, after = shares[activation_epoch : activation_epoch + lasts + 1], shares[activation_epoch + lasts :]
    assert all(earlier.active <= later.active for earlier, later in pairwise(before) if activation_epoch in past)
    assert all(earlier.active >= later.active for earlier, later in pairwise(after))


def test_a_history_is_read_as_far_as_it_goes_and_none_is_refused() -> None:
    entries = b"".join(struct.pack("<4Q", epoch, 1, 2, 3) for epoch in range(512, 0, -1))
    history = stake_history((struct.pack("<Q", 512) + entries)[:HISTORY_SIZE])
    assert (len(history), max(history), history[512]) == (64, 512, ClusterStake(1, 2, 3))
    assert stake_history(bytes(8)) == {}
    assert stake_history(struct.pack("<Q", 2) + entries[:40]) == {512: ClusterStake(1, 2, 3)}
    with pytest.raises(ValueError, match="breaks off"):
        stake_history(bytes(7))
