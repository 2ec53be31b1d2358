"""The search for blocks in which nonces and balances changed, in histories of random values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.adapters.starknet import changes
from chainfolio.adapters.starknet.changes import (
    MAX_INTERVALS,
    MAX_TRANSACTIONS,
    Interval,
    TooManyChanges,
    count_transactions,
    find_balance_changes,
    find_changes,
)
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer

ENDPOINT: Any = SimpleNamespace(name="node")
HASHES: Any = None  # histories have none
Histories = Mapping[Any, Sequence[int]]  # the value of a subject after each height


def reading(monkeypatch: pytest.MonkeyPatch, name: str, histories: Histories) -> list[int]:
    """Let the module read from histories, and return the number of probes of each round."""
    rounds: list[int] = []

    async def read(endpoint: Any, hashes: Any, probes: Sequence[tuple[Any, int]]) -> list[int]:
        assert len(set(probes)) == len(probes), "nothing is asked twice"
        rounds.append(len(probes))
        return [histories[subject][height] for subject, height in probes]

    monkeypatch.setattr(changes, name, read)
    return rounds


@given(st.lists(st.lists(st.integers(0, 2), min_size=20, max_size=20), min_size=1, max_size=3), st.data())
async def test_each_change_of_a_value_that_only_rises_is_found(steps: list[list[int]], data: st.DataObject) -> None:
    histories = [[sum(each[: height + 1]) for height in range(len(each))] for each in steps]
    low = data.draw(st.integers(0, 18))
    high = data.draw(st.integers(low + 1, 19))

    async def read(probes: Sequence[tuple[int, int]]) -> list[int]:
        return [histories[subject][height] for subject, height in probes]

    found = await find_changes(read, [Interval(subject, low, high) for subject in range(len(histories))])
    assert found == {
        (subject, height): step
        for subject, each in enumerate(steps)
        for height, step in enumerate(each)
        if step and low < height <= high
    }


async def test_a_search_of_too_many_intervals_ends() -> None:
    async def read(probes: Sequence[tuple[int, int]]) -> list[int]:
        return [height for _, height in probes]

    end = MAX_INTERVALS + 1
    assert len(await find_changes(read, [Interval(0, 0, end // 2)])) == end // 2
    with pytest.raises(TooManyChanges):
        await find_changes(read, [Interval(0, 0, 4 * end)])


@pytest.mark.parametrize(
    ("span", "known_heights", "expected"),
    [
        (Span(0, 9), [], {1, 4, 5, 9}),
        (Span(1, 9), [], {1, 4, 5, 9}),
        (Span(2, 9), [], {4, 5, 9}),
        (Span(0, 8), [], {1, 4, 5}),
        (Span(4, 4), [], {4}),
        (Span(3, 3), [], set()),
        (Span(0, 9), [4], {1, 5, 9}),
        (Span(0, 9), [9, 5, 1], {4}),
        (Span(1, 9), [0, 1, 4, 5, 9], set()),
        (Span(2, 5), [3], {4, 5}),
    ],
)
async def test_balances_are_searched_between_known_heights(
    span: Span, known_heights: list[int], expected: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    histories = {
        ("a", "x"): [0, 5, 5, 5, 6, 6, 6, 6, 6, 6],
        ("a", "y"): [0] * 10,
        ("b", "x"): [3, 3, 3, 3, 3, 4, 4, 4, 4, 4],
        ("b", "y"): [7, 7, 7, 7, 7, 7, 7, 7, 7, 6],
    }
    reading(monkeypatch, "read_balances", histories)
    assert await find_balance_changes(ENDPOINT, span, ["a", "b"], ["x", "y"], known_heights, HASHES) == expected


@pytest.mark.parametrize("first", [0, 1, 2, 5])
async def test_transactions_are_counted_by_their_nonces(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    histories = {"a": [0, 1, 1, 4, 4, 5], "b": [2, 2, 3, 3, 3, 3]}
    reading(monkeypatch, "read_nonces", histories)
    counts = {("a", 1): 1, ("a", 3): 3, ("a", 5): 1, ("b", 2): 1}
    counted_span, counts_by_key = await count_transactions(ENDPOINT, Span(first, 5), ["a", "b"], HASHES)
    assert counted_span == Span(first, 5)
    assert counts_by_key == {key: count for key, count in counts.items() if key[1] >= first}


@pytest.mark.parametrize(("busy", "last"), [(MAX_TRANSACTIONS, 8), (MAX_TRANSACTIONS + 1, 4)])
async def test_a_busy_span_is_cut_to_its_first_half(busy: int, last: int, monkeypatch: pytest.MonkeyPatch) -> None:
    histories = {"a": [0, 1, 1, 1, 1, 1, 1, 1, busy - 1], "b": [5] * 8 + [6]}
    rounds = reading(monkeypatch, "read_nonces", histories)
    counted_span, counts_by_key = await count_transactions(ENDPOINT, Span(1, 8), ["a", "b"], HASHES)
    assert counted_span == Span(1, last)
    assert counts_by_key == {("a", 1): 1, **({("a", 8): busy - 2, ("b", 8): 1} if last == 8 else {})}
    assert rounds[:2] == [2, 2]


async def test_a_nonce_that_falls_is_a_fault_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    reading(monkeypatch, "read_nonces", {"a": [3, 3, 2, 2]})
    with pytest.raises(BadAnswer) as error:
        await count_transactions(ENDPOINT, Span(1, 3), ["a"], HASHES)
    assert str(error.value) == "node: the nonce of a is lower after block 3 than before"


async def test_a_span_of_the_first_block_alone_has_no_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    reading(monkeypatch, "read_nonces", {"a": [3]})
    assert await count_transactions(ENDPOINT, Span(0, 0), ["a"], HASHES) == (Span(0, 0), {})
