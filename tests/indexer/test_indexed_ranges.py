"""Missing ranges, by arithmetic on spans and by counting heights one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from chainfolio.blocks import Block, Span, Spans
from chainfolio.engine.snapshots.account_index import gap_issues, unindexed, unindexed_transfers
from chainfolio.indexer.materialise import indexed_in_lake, pending
from chainfolio.indexer.work import missing
from chainfolio.storage.tail import Tail, TailBlock

CHAIN = "a"
LAST = 25
DATASETS = ("blocks", "native", "transfers", "approvals")
FILTERS = ("", "0xa", "0xb", "0xc")
spans = st.tuples(st.integers(0, LAST), st.integers(0, LAST)).map(lambda pair: Span(min(pair), max(pair)))
covered = st.lists(st.tuples(st.sampled_from(DATASETS), st.sampled_from(FILTERS), spans), max_size=12)


@contextmanager
def a_tail() -> Iterator[Tail]:
    with TemporaryDirectory() as folder:
        tail = Tail(Path(folder) / "tail.db")
        yield tail
        tail.close()


def heights(spans: Spans | Span) -> set[int]:
    """One by one."""
    each = [spans] if isinstance(spans, Span) else spans
    return {height for span in each for height in range(span.first, span.last + 1)}


@settings(max_examples=60)
@given(covered, spans, st.sets(st.sampled_from(DATASETS)), st.lists(st.sampled_from(FILTERS[1:]), max_size=4))
def test_what_is_missing_is_what_nobody_covered(
    indexed: list[tuple[str, str, Span]], requested: Span, datasets: set[str], contracts: list[str]
) -> None:
    with a_tail() as tail:
        have: dict[tuple[str, str], set[int]] = {}
        for dataset, filter_, span in indexed:
            tail.add_ranges(CHAIN, [(dataset, filter_)], span)
            have.setdefault((dataset, filter_), set()).update(heights(span))
        work = missing(tail, CHAIN, requested, sorted(datasets), contracts)
        missing_heights = [
            (dataset, filter_, height)
            for item in work
            for dataset in item.datasets
            for filter_ in item.filters
            for height in heights(item.spans)
        ]
        expected = {
            (dataset, filter_, height)
            for dataset in datasets
            for filter_ in (contracts if contracts and dataset in ("transfers", "approvals") else [""])
            for height in heights(requested)
            if height not in have.get((dataset, ""), set()) | have.get((dataset, filter_), set())
        }
        assert len(missing_heights) == len(set(missing_heights)), "nothing is missing twice"
        assert set(missing_heights) == expected
        assert all(("" in item.filters) == (item.filters == ("",)) for item in work)


@settings(max_examples=40)
@given(covered, st.one_of(st.none(), spans))
def test_what_the_tail_holds_is_not_in_the_lake(indexed: list[tuple[str, str, Span]], tail_span: Span | None) -> None:
    with a_tail() as tail:
        for dataset, filter_, span in indexed:
            tail.add_ranges(CHAIN, [(dataset, filter_)], span)
        if tail_span:
            blocks = [Block(height, str(height), str(height - 1), height) for height in sorted(heights(tail_span))]
            tail.put(CHAIN, [TailBlock(block, {}) for block in blocks], datasets=["transfers"])
        for filter_ in FILTERS:
            indexed_ranges = heights(tail.indexed_ranges(CHAIN, "transfers", filter_))
            below = {height for height in indexed_ranges if tail_span is None or height < tail_span.first}
            assert heights(indexed_in_lake(tail, CHAIN, "transfers", filter_)) == below
            tail.add_ranges(CHAIN, [("account_transfers/transfers", "")], Span(5, 9))
            pending_heights = below - set(range(5, 10))
            assert heights(pending(tail, CHAIN, "transfers", filter_)) == pending_heights


def test_what_nobody_listened_to_is_said_by_contract_beside_what_nobody_indexed() -> None:
    first_filter, also, other_filter = "0xa/0x1", "0xa/0x2", "0xb/0x1"
    with a_tail() as tail:
        for dataset, filter_, span in (
            ("transfers", "", Span(0, 30)),
            ("events", first_filter, Span(10, 19)),
            ("events", also, Span(3, 19)),
            ("events", other_filter, Span(0, 30)),
        ):
            tail.add_ranges(CHAIN, [(dataset, filter_)], span)
        gaps = unindexed_transfers(tail, CHAIN, 40, ["0x1"])
        issues = gap_issues(CHAIN, gaps, unindexed(tail, CHAIN, 40, [first_filter, also, other_filter], ["0x1"]))
    assert [(issue.subject, issue.makes_partial) for issue in issues] == [(CHAIN, True), ("0xa", True)]
    assert "31..40" in issues[0].reason
    assert "0..9, 20..30" in issues[1].reason
