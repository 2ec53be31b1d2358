"""The lake in an object store: several processes, and a service that fails or refuses."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from pathlib import Path

import pyarrow.compute as pc
import pytest

from chainfolio.errors import AccessDenied, CorruptFile, StoreError, StoreUnavailable
from chainfolio.storage.downloads import Downloads
from chainfolio.storage.lake import Lake
from chainfolio.storage.object_store import ObjectStore
from chainfolio.tables import ACCOUNT_TRANSFERS, BLOCKS
from tests.depth import IS_DEEP
from tests.storage.conftest import Maker, stored
from tests.storage.s3_server import S3


def heights(lake: Lake) -> list[int]:
    return sorted(lake.scan(BLOCKS).collect()["height"].to_list())


def write_together(s3: S3, uri: str, commits: int) -> list[int]:
    """Run four writers at once. Return how many of the shared batches each one stored."""
    environment = os.environ | s3.environment()
    writers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.storage.s3_writer", uri, str(number), str(commits)],
            stdout=subprocess.PIPE,
            env=environment,
        )
        for number in range(1, 5)
    ]
    try:
        outputs = [writer.communicate(timeout=500)[0] for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
    assert [writer.returncode for writer in writers] == [0] * 4
    return [int(output) for output in outputs]


@pytest.mark.parametrize(
    "commits",
    [
        3,
        pytest.param(
            25 if IS_DEEP else 8,
            marks=[pytest.mark.slow("four processes append more batches"), pytest.mark.timeout(600)],
        ),
    ],
)
def test_four_processes_lose_and_double_no_row_of_one_table(s3: S3, bucket_lake: Lake, commits: int) -> None:
    shared = write_together(s3, bucket_lake.uri, commits)
    assert sum(shared) <= commits, "a shared batch was stored by one process, which may have missed the answer"
    stream_heights = [1000 * number + batch for number in range(1, 5) for batch in range(commits)]
    assert heights(bucket_lake) == [*range(commits), *stream_heights]


def test_histories_of_accounts_are_read_from_merged_objects(bucket_lake: Lake, make_rows: Maker) -> None:
    parts = [make_rows(ACCOUNT_TRANSFERS, "a", range(at, at + 5)) for at in (0, 5)]
    for batch, rows in enumerate(parts):
        assert bucket_lake.append(ACCOUNT_TRANSFERS, rows, stream="s", batch=batch)
    assert bucket_lake.compact(ACCOUNT_TRANSFERS, "a", retention_hours=0).deleted
    assert stored(bucket_lake, ACCOUNT_TRANSFERS, "a").num_rows == sum(rows.num_rows for rows in parts)
    account = parts[0]["account"][0].as_py()
    count = sum(rows.filter(pc.equal(rows["account"], account)).num_rows for rows in parts)
    for lake in (bucket_lake, Lake(bucket_lake.uri)):
        assert lake.of_accounts(ACCOUNT_TRANSFERS, "a", [account]).collect().height == count


@pytest.mark.parametrize(
    ("how", "error"),
    [("slow", StoreUnavailable), ("closed", StoreUnavailable), ("denied", AccessDenied)],
)
def test_a_refused_append_is_a_typed_error_and_is_repeated_later(
    s3: S3, bucket_lake: Lake, make_rows: Maker, how: str, error: type[StoreError]
) -> None:
    first, second = make_rows(BLOCKS, "a", [1], per_block=1), make_rows(BLOCKS, "a", [2], per_block=1)
    assert bucket_lake.append(BLOCKS, first, stream="s", batch=1)
    with s3.failing(how):
        for lake in (bucket_lake, Lake(bucket_lake.uri)):
            with pytest.raises(error) as caught:
                lake.append(BLOCKS, second, stream="s", batch=2)
            with pytest.raises(error):
                lake.count(BLOCKS)
            text = "".join(traceback.format_exception(caught.value)) + caught.value.remedy
            assert not any(secret in text for secret in ("not-to-be-shown", "AKIAEXAMPLE"))
    assert bucket_lake.append(BLOCKS, second, stream="s", batch=2)
    assert heights(bucket_lake) == [1, 2]


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_a_read_that_begins_before_the_service_fails_is_a_typed_error(
    s3: S3, bucket_lake: Lake, make_rows: Maker
) -> None:
    bucket_lake.append(BLOCKS, make_rows(BLOCKS, "a", [1]), stream="s", batch=1)
    frame = bucket_lake.scan(BLOCKS)
    with s3.failing("slow"), pytest.raises(StoreUnavailable, match=r"fewer requests|does not answer"):
        frame.collect()
    assert frame.collect().height == 2


def test_a_commit_whose_answer_was_lost_is_made_once(s3: S3, bucket_lake: Lake, make_rows: Maker) -> None:
    rows = [make_rows(BLOCKS, "a", [height], per_block=1) for height in range(3)]
    assert bucket_lake.append(BLOCKS, rows[0], stream="s", batch=0)
    with s3.failing("once"):
        assert bucket_lake.append(BLOCKS, rows[1], stream="s", batch=1), "the files of the commit are its own"
    with s3.failing("unanswered"), pytest.raises(StoreUnavailable):
        bucket_lake.append(BLOCKS, rows[2], stream="s", batch=2)
    assert not bucket_lake.append(BLOCKS, rows[2], stream="s", batch=2)
    assert heights(bucket_lake) == [0, 1, 2]


def test_a_missing_bucket_is_named_as_the_reason(s3: S3, bucket_lake: Lake, make_rows: Maker) -> None:
    with pytest.raises(StoreError, match="the bucket does not exist"):
        Lake("s3://no-such-bucket/data").count(BLOCKS)


def test_local_copies_are_made_once_and_damaged_objects_leave_none(
    bucket_lake: Lake, make_rows: Maker, tmp_path: Path
) -> None:
    bucket_lake.append(BLOCKS, make_rows(BLOCKS, "a", range(9)), stream="s", batch=1)
    (file,) = bucket_lake.entries(BLOCKS)
    downloads = Downloads(tmp_path)
    sizes: list[int] = []
    for _ in range(2):
        downloads.fetch(bucket_lake, BLOCKS, [file], sizes.append)
    assert sizes == [file.size]
    copy = downloads.path(BLOCKS, file)
    content = bytearray(copy.read_bytes())
    content[100] ^= 1
    bucket = bucket_lake.storage.folder(BLOCKS.name)
    with bucket.create("chain=a", lambda: file.path.rpartition("/")[2]) as damaged:
        damaged.write(bytes(content))
    copy.unlink()
    with pytest.raises(CorruptFile, match="do not match"):
        downloads.fetch(bucket_lake, BLOCKS, [file], sizes.append)
    assert not copy.exists()
    with pytest.raises(CorruptFile):
        bucket_lake.scan(BLOCKS).collect()


def test_what_the_settings_leave_empty_comes_from_the_environment() -> None:
    env = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_REGION": "eu-west-1"}
    assert ObjectStore.of(env=env) == ObjectStore("http://127.0.0.1:9000", "eu-west-1")
    assert ObjectStore.of("https://s3.example.org/", "x", env) == ObjectStore("https://s3.example.org", "x")
    assert ObjectStore.of(env={}) == ObjectStore("", "us-east-1")
    assert not any("KEY" in name for name in ObjectStore.of(env=env).delta_options())


def test_a_lake_in_a_folder_does_not_load_the_object_store() -> None:
    code = "import sys, chainfolio.storage.lake; print('chainfolio.storage.object_store' in sys.modules)"
    child_run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child_run.stdout.strip() == "False"
