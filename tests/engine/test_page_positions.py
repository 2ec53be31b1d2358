"""Pages of a list whose newest blocks are replaced between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.engine.results import ListPosition
from chainfolio.engine.transactions.page_positions import MAX_NAMES, position_after, remaining
from chainfolio.portfolio.activity import Activity, sort_activities

ALICE = "0x" + "a1" * 20
FINAL = 100  # heights up to this one stay


def activity(number: int, height: int, tx_index: int = 0) -> Activity:
    return Activity("local", ALICE, height, height * 12_000_000, tx_index, f"0x{number:064x}")


def is_replaceable(key: Activity) -> bool:
    return key.height > FINAL


def read_page(
    keys: Sequence[Activity], size: int, at: ListPosition | None, *, newest_first: bool
) -> tuple[list[Activity], ListPosition | None]:
    """One page of the list, and the position behind it; None at its end."""
    order = sort_activities(keys, newest_first)
    remaining_keys = order if at is None else remaining(order, at, newest_first)
    page = remaining_keys[:size]
    if len(page) < size:
        return page, None
    return page, position_after((at.count if at else 0) + size, page[-1], remaining_keys, is_replaceable, at)


heights = st.integers(FINAL - 8, FINAL + 8)


@given(
    st.lists(heights, min_size=1, max_size=30),
    st.integers(1, 6),
    st.lists(st.lists(st.integers(1, 12), min_size=30, max_size=30), max_size=6),
    st.booleans(),
)
def test_replaced_blocks_hide_no_row_and_repeat_none(
    first_heights: list[int], size: int, moves: list[list[int]], newest_first: bool
) -> None:
    keys = [activity(number, height, number) for number, height in enumerate(first_heights)]
    hashes: list[str] = []
    at: ListPosition | None = None
    while True:
        page, at = read_page(keys, size, at, newest_first=newest_first)
        hashes += [key.tx_hash for key in page]
        if at is None:
            break
        if moves:  # every row above the final block gets another block
            step = moves.pop()
            keys = [
                replace(key, height=FINAL + step[n], time_us=(FINAL + step[n]) * 12_000_000)
                if is_replaceable(key)
                else key
                for n, key in enumerate(keys)
            ]
    assert sorted(hashes) == sorted(key.tx_hash for key in keys)


def test_rows_that_come_between_two_pages_are_not_shown_at_the_wrong_place() -> None:
    keys = [activity(number, 100 + number) for number in range(6)]
    page, at = read_page(keys, 2, None, newest_first=True)
    assert [key.height for key in page] == [105, 104]
    keys = [*keys, activity(9, 106)]
    page, _ = read_page(keys, 4, at, newest_first=True)
    assert [key.height for key in page] == [103, 102, 101, 100]


def test_a_row_that_moves_above_the_end_of_a_page_is_on_the_next_one() -> None:
    keys = [activity(1, 105), activity(2, 104), activity(3, 103)]
    _, at = read_page(keys, 1, None, newest_first=True)
    replaced_keys = [activity(1, 105), activity(2, 106), activity(3, 103)]
    page, _ = read_page(replaced_keys, 5, at, newest_first=True)
    assert [key.tx_hash for key in page] == [keys[1].tx_hash, keys[2].tx_hash]


def test_a_position_is_bounded_and_survives_its_encoding() -> None:
    keys = [activity(number, FINAL + 1, number) for number in range(2 * MAX_NAMES + 100)]
    at = None
    for _ in range(2):
        _, at = read_page(keys, MAX_NAMES, at, newest_first=True)
    assert at is not None
    assert (len(at.shown), len(at.pending)) == (MAX_NAMES, 100)
    encoded = msgspec.msgpack.encode(at)
    assert len(encoded) < 30_000
    assert msgspec.msgpack.decode(encoded, type=ListPosition) == at


@pytest.mark.parametrize("newest_first", [True, False])
def test_a_position_of_final_rows_names_none(newest_first: bool) -> None:
    keys = [activity(number, number) for number in range(10)]
    _, at = read_page(keys, 4, None, newest_first=newest_first)
    assert at is not None
    assert not at.shown
    assert not at.pending
