"""Logs of tables stay short: checkpoints delete old entries, and open readers continue."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from chainfolio.storage import deltalog, disk, lake_storage
from chainfolio.storage import lake as lake_module
from chainfolio.storage.backup import StorePaths, back_up
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.tables import BLOCKS
from tests.storage.conftest import make

RETENTION = deltalog.LOG_RETENTION
OLD_S = 25 * 3600


def add(lake: Lake, first: int, last: int, *, is_old: bool = True) -> None:
    """Commit a block at each height; the log's entries get the age of 25 hours if `is_old`."""
    log = Path(lake.uri) / BLOCKS.name / "_delta_log"
    for height in range(first, last + 1):
        if is_old and log.exists() and height % 10 == 9:
            for entry in log.iterdir():
                os.utime(entry, (time.time() - OLD_S,) * 2)
        lake.append(BLOCKS, make(BLOCKS, "a", [height], per_block=1), stream="a", batch=height)


def entries(lake: Lake) -> int:
    """The number of files in the log."""
    return len(list((Path(lake.uri) / BLOCKS.name / "_delta_log").iterdir()))


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_entries_before_a_checkpoint_go_after_a_day(tmp_path: Path) -> None:
    lake, reader, second_writer = (Lake(str(tmp_path)) for _ in range(3))
    add(lake, 1, 20)
    assert (reader.count(BLOCKS), second_writer.last(BLOCKS, "a")) == (20, 20)
    add(lake, 21, 220)
    assert entries(lake) <= 100 + 3
    assert reader.count(BLOCKS) == lake.count(BLOCKS) == 220, "a reader whose version is no longer in the log"
    add(second_writer, 221, 222)
    assert Lake(str(tmp_path)).count(BLOCKS) == 222


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_young_entries_stay_for_readers_of_their_versions(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    add(lake, 1, 120, is_old=False)
    assert entries(lake) >= 120
    assert DeltaTable(str(tmp_path / BLOCKS.name), version=5).version() == 5


def test_entries_stay_as_long_as_replaced_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(str(tmp_path))

    def retention() -> str | None:
        return DeltaTable(str(tmp_path / BLOCKS.name)).metadata().configuration.get(RETENTION)

    with monkeypatch.context() as before:  # a table of an earlier release
        before.setattr(lake_module, "retention_properties", lambda hours: {})
        add(lake, 1, 3)
    assert retention() is None
    for hours in (24, 24, 2):
        version = DeltaTable(str(tmp_path / BLOCKS.name)).version()
        is_new = retention() != f"interval {hours} hours"
        lake.delete_replaced(BLOCKS, hours)
        assert retention() == f"interval {hours} hours"
        assert DeltaTable(str(tmp_path / BLOCKS.name)).version() == version + is_new, "it is stored once"
    add(lake, 4, 5)
    assert (lake.count(BLOCKS), retention()) == (5, "interval 2 hours")


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_checkpoints_forget_files_that_were_replaced_long_ago(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, real = Lake(str(tmp_path)), time.time_ns
    add(lake, 1, 20)
    with monkeypatch.context() as earlier:
        earlier.setattr(time, "time_ns", lambda: real() - OLD_S * 10**9)
        lake.compact(BLOCKS, "a")
    add(lake, 21, 60)
    lake.compact(BLOCKS, "a")
    add(lake, 61, 110)
    (checkpoint,) = (tmp_path / BLOCKS.name / "_delta_log").glob("*.checkpoint.parquet")
    removed = [row["path"] for row in pq.read_table(checkpoint)["remove"].to_pylist() if row]
    assert len(removed) == 41, "those of the second merge, and not the 20 of the first"


def test_all_commits_are_forced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, synced = Lake(str(tmp_path)), set[str]()

    def sync(path: Path) -> None:
        synced.add(path.name)
        disk.sync(path)

    monkeypatch.setattr(lake_storage, "sync", sync)
    add(lake, 1, 3)
    lake.delete_replaced(BLOCKS, 2)
    add(lake, 4, 5)
    lake.compact(BLOCKS, "a", retention_hours=0)
    add(lake, 6, 6)
    log = tmp_path / BLOCKS.name / "_delta_log"
    operations = [entry.read_text().count('"VACUUM ') for entry in sorted(log.glob("*.json"))]
    assert sum(operations) == 2, "a vacuum that deletes files has two commits"
    assert {entry.name for entry in log.glob("*.json")} <= synced


@pytest.mark.parametrize("last_old", [20, 28], ids=["before a checkpoint", "all"])
def test_a_backup_has_all_rows_although_old_entries_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last_old: int
) -> None:
    often = deltalog.PROPERTIES | {"delta.checkpointInterval": "10"}
    monkeypatch.setattr(lake_module, "PROPERTIES", often)
    paths = StorePaths(tmp_path, tmp_path / "lake", tmp_path / "tail.db", tmp_path / "state.db")
    Tail(paths.tail).close()
    lake, out, counts = Lake(str(paths.lake)), tmp_path / "out", list[int]()
    log = Path(BLOCKS.name, "_delta_log")
    add(lake, 1, 28, is_old=False)
    for entry in (paths.lake / log).glob("0*"):
        if int(entry.name[:20]) <= last_old:
            os.utime(entry, (time.time() - OLD_S,) * 2)

    def write_on(copied_count: int, total: int) -> None:
        is_log_copied = (out / "lake" / log / f"{28:020}.json").exists()
        if not counts and (is_log_copied or any(out.rglob("chain=*"))):
            counts.append(entries(lake))
            add(lake, 29, 29, is_old=False)

    backup = back_up(paths, out, {}, release="1", now=lambda: "now", on_progress=write_on)
    assert backup.tables == {BLOCKS.name: 28}
    copied = {int(entry.name[:20]) for entry in (out / "lake" / log).glob("0*")}
    assert copied == set(range(19, 29)), "from the last checkpoint on"
    assert entries(lake) <= counts[0] + 2 - 19, "a commit deleted old entries"
    copy = Lake(str(out / "lake"))
    assert (copy.count(BLOCKS), lake.count(BLOCKS)) == (28, 29)
    add(copy, 28, 42)
    assert copy.count(BLOCKS) == 42, "batch 28 is not written again"
