"""Pieces fetched by several processes fit together. Kills of several lanes are in `test_kills.py`."""

from __future__ import annotations

import pytest

from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer
from indexer.lanes import Ends


def block(height: int, hash_: str, parent: str) -> Block:
    return Block(height, hash_, parent, 0)


def test_pieces_that_lie_side_by_side_must_be_parent_and_child() -> None:
    ends = Ends("local")
    ends.joins(block(0, "a", "-"), block(9, "b", "x"))
    ends.joins(block(20, "e", "d"), block(29, "f", "y"))
    ends.joins(block(10, "c", "b"), block(19, "d", "z"))
    with pytest.raises(BadAnswer, match="does not follow"):
        ends.joins(block(30, "g", "another"), block(39, "h", "g"))


def test_a_piece_that_does_not_lead_to_the_next_one_is_refused_too() -> None:
    ends = Ends("local")
    ends.joins(block(10, "c", "b"), block(19, "d", "z"))
    with pytest.raises(BadAnswer, match="does not precede"):
        ends.joins(block(0, "a", "-"), block(9, "not b", "x"))
