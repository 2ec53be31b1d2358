"""Local copies of files of the lake: a copy gets its name once compared, and drafts are removed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from chainfolio.errors import CorruptFile, StoreError
from chainfolio.storage.downloads import KEEP_S, Downloads
from chainfolio.storage.lake import Lake
from chainfolio.storage.parquet import LakeFile
from chainfolio.tables import BLOCKS
from tests.storage.conftest import Maker


@pytest.fixture
def file(lake: Lake, make_rows: Maker) -> LakeFile:
    lake.append(BLOCKS, make_rows(BLOCKS, "a", range(9)), stream="s", batch=1)
    return lake.entries(BLOCKS)[0]


@pytest.fixture
def downloads(tmp_path: Path) -> Downloads:
    return Downloads(tmp_path / "downloads")


def names(downloads: Downloads) -> list[str]:
    return sorted(path.name for path in downloads.folder.rglob("part-*"))


@pytest.mark.parametrize("at", [100, -100], ids=["data", "footer"])
def test_a_damaged_copy_never_gets_its_name(
    lake: Lake, file: LakeFile, downloads: Downloads, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    original = Path(lake.address(BLOCKS, file))
    content = bytearray(original.read_bytes())
    content[at] ^= 1
    original.write_bytes(content)
    renamed: list[Path] = []
    monkeypatch.setattr(Path, "rename", lambda path, target: renamed.append(target))
    with pytest.raises(CorruptFile, match=f"{BLOCKS.name}/chain=a"):
        downloads.fetch(lake, BLOCKS, [file], lambda count: None)
    assert not renamed
    assert names(downloads) == []


def test_a_copy_has_a_temporary_name_until_it_is_compared(lake: Lake, file: LakeFile, downloads: Downloads) -> None:
    progress_names: list[str] = []
    downloads.fetch(lake, BLOCKS, [file], lambda count: progress_names.extend(names(downloads)))
    assert [name.endswith(".tmp") for name in progress_names] == [True]
    assert names(downloads) == [Path(file.path).name]
    assert downloads.path(BLOCKS, file).read_bytes() == Path(lake.address(BLOCKS, file)).read_bytes()


def test_old_copies_and_drafts_are_deleted_and_new_ones_stay(lake: Lake, file: LakeFile, downloads: Downloads) -> None:
    folder = downloads.path(BLOCKS, file).parent
    folder.mkdir(parents=True)
    for name, age_s in (("old.tmp", KEEP_S + 60), ("old.parquet", KEEP_S + 60), ("new.tmp", 0), ("new.parquet", 0)):
        path = folder / f"part-{name}"
        path.write_bytes(b"")
        os.utime(path, (time.time() - age_s,) * 2)
    downloads.fetch(lake, BLOCKS, [file], lambda count: None)
    assert names(downloads) == sorted(["part-new.parquet", "part-new.tmp", Path(file.path).name])


def test_a_missing_file_and_a_folder_that_cannot_be_written_are_typed_errors(
    lake: Lake, file: LakeFile, downloads: Downloads
) -> None:
    downloads.folder.write_text("not a folder")
    with pytest.raises(StoreError, match="cannot be opened for writing"):
        downloads.fetch(lake, BLOCKS, [file], lambda count: None)
    downloads.folder.unlink()
    Path(lake.address(BLOCKS, file)).unlink()
    with pytest.raises(StoreError, match=f"table {BLOCKS.name}"):
        downloads.fetch(lake, BLOCKS, [file], lambda count: None)
    assert names(downloads) == []
