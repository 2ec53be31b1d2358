"""A lake that is copied into a folder or a bucket has the same rows and marks, also if the copy is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from deltalake import DeltaTable

from chainfolio.errors import CorruptFile, StoreError
from chainfolio.storage.checksums import ReadAt
from chainfolio.storage.lake import Lake
from chainfolio.storage.lake_storage import LOG
from chainfolio.storage.lake_transfer import transfer_lake
from chainfolio.storage.parquet import Bucket, Folder
from chainfolio.tables import ACCOUNT_TRANSFERS, BLOCKS
from tests.storage.conftest import make, stored
from tests.storage.s3_server import S3

BATCHES = 3
Place = Callable[[str], Lake]


@pytest.fixture
def place(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Makes an empty lake in a new `folder` or `bucket`."""
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    folders = (tmp_path / f"lake-{number}" for number in range(10))
    return lambda kind: Lake(s3.bucket() if kind == "bucket" else str(next(folders)))


def fill(lake: Lake) -> None:
    """Two tables, one of them with merged files, a checkpoint and later entries."""
    for batch in range(BATCHES):
        lake.append(BLOCKS, make(BLOCKS, "a", [batch]), stream="s", batch=batch)
        if batch == 1:
            assert lake.merge_crowded(BLOCKS, "a", 1)
            DeltaTable(f"{lake.uri}/blocks", storage_options=lake.storage.delta_options).create_checkpoint()
    lake.append(ACCOUNT_TRANSFERS, make(ACCOUNT_TRANSFERS, "a", [0], per_block=1), stream="s", batch=0)


def assert_equal(copy: Lake, original: Lake) -> None:
    copy, original = Lake(copy.uri), Lake(original.uri)
    for table in (BLOCKS, ACCOUNT_TRANSFERS):
        assert stored(copy, table, "a").equals(stored(original, table, "a"))
        assert copy.last(table, "s") == original.last(table, "s")


def test_a_lake_is_the_same_after_it_was_copied_and_goes_on(place: Place) -> None:
    original, middle, copy = place("folder"), place("bucket"), place("folder")
    fill(original)
    results = list(transfer_lake(original.storage, middle.storage)), list(transfer_lake(middle.storage, copy.storage))
    assert results[0] == results[1]
    assert [(each.table, each.rows, each.copied) for each in results[0]] == [
        ("account_transfers", 1, True),
        ("blocks", 2 * BATCHES, True),
    ]
    assert_equal(copy, original)
    for lake in (original, copy):
        assert not lake.append(BLOCKS, make(BLOCKS, "a", [BATCHES]), stream="s", batch=BATCHES - 1), "it has this batch"
        assert lake.append(BLOCKS, make(BLOCKS, "a", [BATCHES]), stream="s", batch=BATCHES)
    assert_equal(copy, original)


def test_what_was_copied_from_one_bucket_into_another_is_not_copied_again(place: Place) -> None:
    original, copy = place("bucket"), place("bucket")
    original.append(BLOCKS, make(BLOCKS, "a", [0]), stream="s", batch=0)
    (first,), (second,) = (list(transfer_lake(original.storage, copy.storage)) for _ in range(2))
    assert (first.copied, second.copied, second.digest) == (True, False, first.digest)


def test_a_copy_that_was_interrupted_is_no_table_and_is_finished_by_the_next_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, copy, created = place("folder"), place("folder"), list[str]()
    fill(original)
    create = Folder.create

    def interrupted(self: Folder, directory: str, final_name: Callable[[], str]) -> AbstractContextManager[BinaryIO]:
        if self.root.name == "blocks":
            created.append(directory)
            if created.count(LOG) > 2:
                raise KeyboardInterrupt
        return create(self, directory, final_name)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "create", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(transfer_lake(original.storage, copy.storage))
    with pytest.raises(StoreError):
        Lake(copy.uri).count(BLOCKS)
    damaged = next(Path(copy.uri, "blocks").glob("*/*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:50])
    assert [each.copied for each in transfer_lake(original.storage, copy.storage)] == [False, True]
    assert_equal(copy, original)


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_a_place_with_another_lake_is_refused_and_left_as_it_is(place: Place, kind: str) -> None:
    original, other = place("folder"), place(kind)
    fill(original)
    rows = make(BLOCKS, "b", range(3))
    other.append(BLOCKS, rows, stream="s", batch=1)
    with pytest.raises(StoreError, match="table blocks of the target has another entry") as caught:
        list(transfer_lake(original.storage, other.storage))
    assert "name an empty place" in caught.value.remedy
    assert other.storage.table_names() == ["blocks"]
    assert stored(Lake(other.uri), BLOCKS, "b").num_rows == rows.num_rows
    with pytest.raises(StoreError, match="has the table account_transfers, which the source does not have"):
        list(transfer_lake(other.storage, original.storage))


def test_a_copy_with_later_commits_is_refused(place: Place) -> None:
    original, copy = place("folder"), place("folder")
    fill(original)
    list(transfer_lake(original.storage, copy.storage))
    assert copy.count(BLOCKS) == original.count(BLOCKS)
    copy.append(BLOCKS, make(BLOCKS, "a", [9]), stream="s", batch=9)
    with pytest.raises(StoreError, match="has another entry"):
        list(transfer_lake(original.storage, copy.storage))


@pytest.mark.parametrize("change", ["commit", "table"])
def test_a_lake_that_changes_meanwhile_is_noticed(place: Place, change: str) -> None:
    original, copy = place("folder"), place("folder")
    original.append(BLOCKS, make(BLOCKS, "a", [0]), stream="s", batch=0)
    steps: Iterator[Any] = transfer_lake(original.storage, copy.storage)
    next(steps)
    table = BLOCKS if change == "commit" else ACCOUNT_TRANSFERS
    original.append(table, make(table, "a", [1]), stream="s", batch=1)
    with pytest.raises(StoreError, match="were changed while they were copied"):
        list(steps)


def test_a_damaged_file_is_not_copied_as_if_it_were_whole(place: Place) -> None:
    original, copy = place("folder"), place("bucket")
    fill(original)
    path = next(Path(original.uri, "account_transfers").glob("*/*/*.parquet"))
    content = bytearray(path.read_bytes())
    content[50] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptFile):
        list(transfer_lake(original.storage, copy.storage))
    assert isinstance(copy.storage.folder("account_transfers"), Bucket)
    assert copy.storage.table_names() == []


def test_an_empty_lake_and_a_missing_bucket(place: Place) -> None:
    assert list(transfer_lake(place("folder").storage, place("bucket").storage)) == []
    original = place("folder")
    fill(original)
    with pytest.raises(StoreError, match="the bucket does not exist"):
        list(transfer_lake(original.storage, Lake("s3://no-such-bucket/data").storage))


@pytest.mark.parametrize(("is_size_right", "says"), [(True, "was read only in part"), (False, "differs after it was")])
def test_an_entry_that_is_read_in_part_is_noticed(
    place: Place, monkeypatch: pytest.MonkeyPatch, is_size_right: bool, says: str
) -> None:
    original, copy, source = place("folder"), place("folder"), Folder.source
    fill(original)

    @contextmanager
    def read(self: Folder, path: str) -> Iterator[tuple[int, ReadAt]]:
        with source(self, path) as (size, read_at):
            if str(self.root) == f"{original.uri}/blocks" and path.endswith("4.json"):
                lines = [line for line in read_at(0, size).splitlines(keepends=True) if b'"add"' not in line]
                content = b"".join(lines)
                yield size if is_size_right else len(content), lambda at, count: content[at : at + count]
            else:
                yield size, read_at

    monkeypatch.setattr(Folder, "source", read)
    with pytest.raises(StoreError, match=says):
        list(transfer_lake(original.storage, copy.storage))


def test_commits_that_come_to_the_target_meanwhile_are_kept(place: Place) -> None:
    original, copy = place("folder"), place("folder")
    fill(original)
    steps = transfer_lake(original.storage, copy.storage)
    assert next(steps).table == "account_transfers"
    rows = make(BLOCKS, "a", range(20, 23))
    copy.append(BLOCKS, rows, stream="s", batch=50)
    with pytest.raises(StoreError, match="table blocks of the target has another entry"):
        next(steps)
    assert stored(Lake(copy.uri), BLOCKS, "a").equals(rows)


def test_folders_of_files_that_are_there_are_forced_to_the_disk(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    original, copy, synced = place("folder"), place("folder"), set[Path]()
    fill(original)
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "sync_directories", lambda *_: None)
        list(transfer_lake(original.storage, copy.storage))
    monkeypatch.setattr("chainfolio.storage.parquet.sync", synced.add)
    assert not any(each.copied for each in transfer_lake(original.storage, copy.storage))
    root = Path(copy.uri)
    assert {root, root / "blocks", root / "blocks" / "chain=a"} <= synced


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_a_log_without_entries_is_no_table(place: Place, kind: str) -> None:
    original, copy = place("folder"), place(kind)
    original.append(BLOCKS, make(BLOCKS, "a", [0]), stream="s", batch=0)
    (Path(original.uri) / "transfers" / LOG).mkdir(parents=True)
    with copy.storage.folder("prices").create(LOG, lambda: "_last_checkpoint") as file:
        file.write(b"{}")
    assert [each.table for each in transfer_lake(original.storage, copy.storage)] == ["blocks"]
    assert copy.storage.table_names() == ["blocks"]
