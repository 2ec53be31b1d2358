"""How much of a delegation is active: epoch by epoch, as far as the cluster lets stake come and go."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.solana.stakes import HISTORY_SIZE, Moving, Share, history, share

NEVER = 2**64 - 1
MANY = {epoch: Moving(1_000, 1_000, 1_000) for epoch in range(5, 200)}


@pytest.mark.parametrize(("epoch", "wanted"), [
    (4, Share(0, 0, 0)), (5, Share(0, 100, 0)), (6, Share(9, 91, 0)), (7, Share(17, 83, 0)), (8, Share(24, 76, 0)),
])  # fmt: skip
def test_stake_comes_by_its_part_of_nine_per_cent_of_what_is_active(epoch: int, wanted: Share) -> None:
    assert share(100, 5, NEVER, epoch, MANY) == wanted


@pytest.mark.parametrize(("epoch", "wanted"), [
    (10, Share(100, 0, 0)), (11, Share(100, 0, 100)), (12, Share(91, 0, 91)), (13, Share(83, 0, 83)),
])  # fmt: skip
def test_stake_goes_as_it_comes(epoch: int, wanted: Share) -> None:
    past = {epoch: Moving(1_000, 0, 1_000) for epoch in range(11, 200)}
    assert share(100, 5, 11, epoch, past) == wanted


def test_without_a_history_what_moved_has_arrived() -> None:
    assert share(100, 5, NEVER, 6, {}) == Share(100, 0, 0)
    assert share(100, 5, 8, 9, {}) == Share(0, 0, 0)
    assert share(100, 5, 5, 9, {}) == Share(0, 0, 0), "taken back before it began"
    assert share(100, 5, NEVER, 5, {}).state == "activating"
    assert [share(100, 5, 8, epoch, {}).state for epoch in (7, 8, 9)] == ["active", "deactivating", "inactive"]


@given(
    st.integers(1, 2**63), st.integers(0, 5), st.integers(1, 40),
    st.lists(st.tuples(*[st.integers(0, 2**63)] * 3), max_size=50),
)  # fmt: skip
def test_stake_never_leaves_its_bounds_and_comes_before_it_goes(
    stake: int, begun: int, lasts: int, moving: list[tuple[int, int, int]]
) -> None:
    past = {epoch: Moving(*each) for epoch, each in enumerate(moving)}
    shares = [share(stake, begun, begun + lasts, epoch, past) for epoch in range(60)]
    assert all(0 <= each.active <= stake and 0 <= each.coming <= stake for each in shares)
    before, after = shares[begun : begun + lasts + 1], shares[begun + lasts :]
    assert all(one.active <= two.active for one, two in pairwise(before) if begun in past)
    assert all(one.active >= two.active for one, two in pairwise(after))


def test_a_history_is_read_as_far_as_it_goes_and_none_is_refused() -> None:
    entries = b"".join(struct.pack("<4Q", epoch, 1, 2, 3) for epoch in range(512, 0, -1))
    found = history((struct.pack("<Q", 512) + entries)[:HISTORY_SIZE])
    assert (len(found), max(found), found[512]) == (64, 512, Moving(1, 2, 3))
    assert history(bytes(8)) == {}
    assert history(struct.pack("<Q", 2) + entries[:40]) == {512: Moving(1, 2, 3)}
    with pytest.raises(ValueError, match="breaks off"):
        history(bytes(7))
