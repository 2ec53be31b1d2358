"""Logs of tables stay short: old entries go at a checkpoint, and whoever opened a table before reads on."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from chainfolio.storage import deltalog
from chainfolio.storage.lake import Lake
from chainfolio.tables import BLOCKS
from tests.storage.conftest import make

RETENTION = "delta.logRetentionDuration"
OLD_S = 3 * 3600


def add(lake: Lake, first: int, last: int, *, is_old: bool = True) -> None:
    """Commit a block at each height; the log's entries get the age of three hours if `is_old`."""
    log = Path(lake.uri) / BLOCKS.name / "_delta_log"
    for height in range(first, last + 1):
        if is_old and log.exists() and height % 10 == 9:
            for entry in log.iterdir():
                os.utime(entry, (time.time() - OLD_S,) * 2)
        lake.append(BLOCKS, make(BLOCKS, "a", [height], per_block=1), stream="a", batch=height)


def entries(lake: Lake) -> int:
    """The number of files in the log."""
    return len(list((Path(lake.uri) / BLOCKS.name / "_delta_log").iterdir()))


def test_entries_before_a_checkpoint_go_after_two_hours(tmp_path: Path) -> None:
    lake, reader, other = (Lake(str(tmp_path)) for _ in range(3))
    add(lake, 1, 20)
    assert (reader.count(BLOCKS), other.last(BLOCKS, "a")) == (20, 20)
    add(lake, 21, 220)
    assert entries(lake) <= 100 + 3
    assert reader.count(BLOCKS) == lake.count(BLOCKS) == 220, "a reader whose version is no longer in the log"
    add(other, 221, 222)
    assert Lake(str(tmp_path)).count(BLOCKS) == 222


def test_young_entries_stay_for_readers_of_their_versions(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    add(lake, 1, 120, is_old=False)
    assert entries(lake) >= 120
    assert DeltaTable(str(tmp_path / BLOCKS.name), version=5).version() == 5


def test_a_table_of_an_earlier_release_gets_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(str(tmp_path))
    with monkeypatch.context() as before:
        before.delitem(deltalog.PROPERTIES, RETENTION)
        add(lake, 1, 3)
    table = DeltaTable(str(tmp_path / BLOCKS.name))
    assert RETENTION not in table.metadata().configuration
    lake.delete_replaced(BLOCKS, 24)
    version = DeltaTable(str(tmp_path / BLOCKS.name)).version()
    assert DeltaTable(str(tmp_path / BLOCKS.name)).metadata().configuration[RETENTION] == "interval 2 hours"
    lake.delete_replaced(BLOCKS, 24)
    add(lake, 4, 5)
    table = DeltaTable(str(tmp_path / BLOCKS.name))
    assert table.metadata().configuration[RETENTION] == "interval 2 hours"
    assert (lake.count(BLOCKS), table.version()) == (5, version + 2), "the properties are set once"
