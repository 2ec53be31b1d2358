"""Pieces fetched by several processes fit together. Kills of several worker processes are in `test_kills.py`."""

from __future__ import annotations

import pytest

from chainfolio.blocks import Block, Span
from chainfolio.errors import BadAnswer
from chainfolio.indexer.worker_pool import BoundaryCheck, WorkerProcess
from chainfolio.settings import Settings


def block(height: int, hash_: str, parent: str) -> Block:
    return Block(height, hash_, parent, 0)


def test_pieces_that_lie_side_by_side_must_be_parent_and_child() -> None:
    ends = BoundaryCheck("local")
    ends.check_boundary(Span(0, 9), block(0, "a", "-"), block(9, "b", "x"))
    ends.check_boundary(Span(20, 29), block(20, "e", "d"), block(29, "f", "y"))
    ends.check_boundary(Span(10, 19), block(10, "c", "b"), block(19, "d", "z"))
    with pytest.raises(BadAnswer, match="does not follow"):
        ends.check_boundary(Span(30, 39), block(30, "g", "another"), block(39, "h", "g"))


def test_a_piece_that_does_not_lead_to_the_next_one_is_refused_too() -> None:
    ends = BoundaryCheck("local")
    ends.check_boundary(Span(10, 19), block(10, "c", "b"), block(19, "d", "z"))
    with pytest.raises(BadAnswer, match="does not follow"):
        ends.check_boundary(Span(0, 9), block(0, "a", "-"), block(9, "not b", "x"))


def test_a_piece_without_a_block_joins_the_two_beside_it() -> None:
    ends = BoundaryCheck("slots")
    ends.check_boundary(Span(10, 19), None, None)
    ends.check_boundary(Span(0, 9), block(0, "a", "-"), block(8, "b", "x"))
    ends.check_boundary(Span(20, 29), None, None)
    with pytest.raises(BadAnswer, match="block 31 does not follow the block 8"):
        ends.check_boundary(Span(30, 39), block(31, "g", "another"), block(39, "h", "g"))
    ends.check_boundary(Span(30, 39), block(31, "c", "b"), block(39, "h", "g"))


def test_a_process_that_finished_no_piece_has_no_errors() -> None:
    worker = WorkerProcess(1, 2, Settings(), "ethereum")
    try:
        assert (worker.requests, worker.errors_by_endpoint) == (0, {})
    finally:
        worker.close()
