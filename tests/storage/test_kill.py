"""A writer that is killed at any moment loses no row and doubles none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chainfolio.blocks import Span, Spans
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.tables import BLOCKS
from tests.depth import IS_DEEP
from tests.storage.appender import FIRST, LAST, PER_BATCH


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_a_writer_that_is_killed_at_any_moment_loses_and_doubles_nothing(tmp_path: Path, tail_place: str) -> None:
    kills, longest_s = (300 if IS_DEEP else 20, 0.25)
    if tail_place.startswith("postgresql"):  # a child connects first
        kills, longest_s = (300 if IS_DEEP else 8, 0.5)
    program = str(Path(__file__).with_name("appender.py"))
    command = [sys.executable, program, str(tmp_path), tail_place, str(kills), str(longest_s), "7"]
    root = str(Path(__file__).parents[2])
    appender_run = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": root}, check=False
    )
    assert appender_run.returncode == 0, appender_run.stderr
    assert int(appender_run.stdout) == kills
    tail = Tail(tail_place)
    lake = Lake(str(tmp_path / "lake"))
    heights = lake.scan(BLOCKS, chain="a").collect()["height"].to_list()
    anchor = tail.anchor("a")
    assert anchor is not None
    batch_count = (anchor.height + 1) // PER_BATCH - FIRST - LAST
    assert batch_count > 0, "children came far enough to be killed in the middle of something"
    assert sorted(heights) == list(range(anchor.height + 1))
    assert tail.indexed_ranges("a", "blocks") == Spans([Span(0, anchor.height)])
    assert tail.open_batches("a") == []
    tail.close()
