"""Spans behave as the sets of heights they stand for."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.blocks import Block, Span, Spans

heights = st.integers(0, 60)
some_span = st.tuples(heights, heights).map(lambda ends: Span(min(ends), max(ends)))
some_spans = st.lists(some_span, max_size=8)


def model(spans: list[Span] | Spans) -> set[int]:
    return {height for span in spans for height in range(span.first, span.last + 1)}


@given(some_spans)
def test_spans_are_disjoint_ordered_maximal_and_hold_what_was_given(given_spans: list[Span]) -> None:
    spans = Spans(given_spans)
    assert model(spans) == model(given_spans)
    assert all(first.last + 1 < right.first for first, right in pairwise(spans))


@given(some_spans, some_spans)
def test_union_intersection_and_difference_are_those_of_sets(first: list[Span], right: list[Span]) -> None:
    a, b = Spans(first), Spans(right)
    assert model(a | b) == model(a) | model(b)
    assert model(a & b) == model(a) & model(b)
    assert model(a - b) == model(a) - model(b)


@given(some_spans, some_spans)
def test_equal_sets_of_heights_are_equal_spans(first: list[Span], right: list[Span]) -> None:
    a, b = Spans(first), Spans(right)
    assert (a == b) is (model(a) == model(b))
    assert Spans(reversed(first)) == a
    assert hash(Spans(reversed(first))) == hash(a)
    assert (a - b) | (a & b) == a


@given(some_spans, heights)
def test_membership_size_and_emptiness_are_those_of_the_set(given_spans: list[Span], height: int) -> None:
    spans = Spans(given_spans)
    assert (height in spans) is (height in model(spans))
    assert len(spans) == len(model(spans))
    assert bool(spans) is bool(model(spans))


@given(some_spans, some_span)
def test_a_span_is_covered_where_each_of_its_heights_is(given_spans: list[Span], span: Span) -> None:
    assert Spans(given_spans).covers(span) is (model([span]) <= model(given_spans))


@given(some_span, st.integers(1, 70))
def test_the_pieces_of_a_cut_are_the_span_in_order_and_none_is_too_long(span: Span, size: int) -> None:
    pieces = list(span.cut(size))
    assert [height for piece in pieces for height in range(piece.first, piece.last + 1)] == sorted(model([span]))
    assert all(len(piece) == size for piece in pieces[:-1])
    assert 1 <= len(pieces[-1]) <= size


def test_both_ends_of_a_span_are_in_it() -> None:
    span = Span(5, 7)
    assert len(span) == 3
    assert [height in span for height in (4, 5, 7, 8)] == [False, True, True, False]


@pytest.mark.parametrize(("first", "last"), [(-1, 3), (4, 3), (-2, -1)])
def test_what_is_no_span_is_a_bug_of_the_caller(first: int, last: int) -> None:
    with pytest.raises(AssertionError, match="not a span"):
        Span(first, last)


def test_spans_are_no_other_kind_of_set() -> None:
    assert Spans([Span(1, 2)]) != {1, 2}
    assert repr(Spans([Span(4, 4), Span(1, 2)])) == "Spans(1..2, 4..4)"


@given(st.integers(0, 253_402_300_799_999_999))
def test_the_time_of_a_block_is_exact_to_the_microsecond(time_us: int) -> None:
    time = Block(1, "0x", "0x", time_us).time
    elapsed = time - datetime(1970, 1, 1, tzinfo=UTC)
    assert (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds == time_us


def test_a_set_of_very_many_heights_takes_no_room_for_each() -> None:
    huge = Spans([Span(0, 2**62)])
    assert huge | huge == huge == Spans(huge)
    assert huge - Spans([Span(5, 5)]) == Spans([Span(0, 4), Span(6, 2**62)])
