"""Commands over a lake in an object store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chainfolio.storage.lake import Lake
from chainfolio.tables import BLOCKS, TRANSFERS
from tests.cli.conftest import Run
from tests.storage.conftest import make
from tests.storage.s3_server import S3

QUERY = "SELECT count(*) AS n, sum(height) AS heights FROM blocks"


@pytest.fixture
def lake(here: Path, s3: S3, bucket_lake: Lake) -> Lake:
    """Rows of two tables in a bucket that the settings name."""
    (here / "chainfolio.toml").write_text(f'data = "data"\n[lake]\nuri = "{bucket_lake.uri}"\nendpoint = "{s3.url}"\n')
    for batch in (1, 2):
        for table in (BLOCKS, TRANSFERS):
            bucket_lake.append(table, make(table, "local", [batch], per_block=1), stream="local", batch=batch)
    return bucket_lake


def test_sql_counts_the_rows_of_a_bucket(run: Run, lake: Lake, here: Path) -> None:
    for _ in range(2):
        ran = run("sql", QUERY, "--json")
        assert (ran.code, json.loads(ran.out)) == (0, [{"n": 2, "heights": 3}]), ran.err
    assert not list(here.glob("data/downloads/transfers/**/*.parquet")), "only queried tables are copied"
    printed = run("sql")
    assert f"'{lake.files(BLOCKS)[0]}'" in printed.out


def test_check_compares_the_objects_of_a_bucket(run: Run, lake: Lake, s3: S3) -> None:
    assert (checked := run("check", "--json")).code == 0, checked.err
    with s3.failing("slow"):
        assert run("check").code == 5


@pytest.mark.slow("another fault of the same bucket", only=["slow*"])
@pytest.mark.parametrize(("how", "problem"), [("denied", "refuses these credentials"), ("slow", "fewer requests")])
def test_doctor_names_what_is_wrong_with_a_bucket_and_shows_no_key(
    run: Run, lake: Lake, s3: S3, how: str, problem: str
) -> None:
    assert run("doctor", "--json").code == 0
    with s3.failing(how):
        ran = run("doctor", "--json")
    (store,) = (each for each in json.loads(ran.out)["stores"] if each["store"] == "lake")
    assert (ran.code, store["ok"], problem in store["problem"]) == (5, False, True), store
    assert not any(secret in ran.out + ran.err for secret in ("not-to-be-shown", "AKIAEXAMPLE"))
