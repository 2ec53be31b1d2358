"""`chainfolio move`: an installation goes on with its stores in PostgreSQL and a bucket, and back in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainfolio.blocks import Span
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.tables import BLOCKS
from tests.cli.conftest import Run, configure
from tests.storage.conftest import make, stored
from tests.storage.s3_server import S3
from tests.storage.stores import Stores

DEAD = "http://127.0.0.1:1"


@pytest.fixture
def installed(here: Path, run: Run) -> str:
    """Settings, an account and a tail; the key of the account."""
    configure(here, DEAD)
    account = run("account", "create", "--name", "ann", "--credits", "42", "--json").json
    tail = Tail(here / "data" / "tail.db")
    tail.add_ranges("ethereum", [("logs", "")], Span(0, 9))
    tail.close()
    return str(account["accountId"])


def other_settings(folder: Path, name: str, extra: str) -> str:
    (folder / name).write_text(f"{(folder / 'chainfolio.toml').read_text()}\n{extra}")
    return name


def test_accounts_and_tail_move_into_postgresql_and_back(run: Run, here: Path, installed: str, stores: Stores) -> None:
    url = stores.url("postgresql")
    into = other_settings(here, "postgres.toml", f'[tail]\nurl = "{url}"\n[state]\nurl = "{url}"\n')
    report = run("move", into, "--json")
    assert report.code == 0, report.out
    tables = {(each["store"], each["table"]): each for each in report.json["tables"]}
    assert (tables["tail", "cover"]["rows"], tables["state", "accounts"]["rows"]) == (1, 1)
    assert len(tables["tail", "cover"]["digest"]) == 64
    assert run("account", "show", installed, "--config", into, "--json").json["credits"] == 42
    assert "was there" in run("move", into).out, "again, it finds everything"
    back = other_settings(
        here, "files.toml", '[tail]\nurl = "sqlite:///data/t.db"\n[state]\nurl = "sqlite:///data/s.db"\n'
    )
    assert run("move", back, "--config", into).code == 0
    assert run("account", "show", installed, "--config", back, "--json").json["credits"] == 42
    tail = Tail(here / "data" / "t.db")
    assert list(tail.indexed_ranges("ethereum", "logs")) == [Span(0, 9)]
    tail.close()


def test_a_chain_that_is_being_indexed_is_not_moved(run: Run, here: Path, installed: str) -> None:
    into = other_settings(here, "files.toml", '[tail]\nurl = "sqlite:///data/t.db"\n')
    tail = Tail(here / "data" / "tail.db")
    with tail.lock("ethereum"):
        assert run("move", into, "--json").error["kind"] == "Locked"
    tail.close()
    assert run("move", into).code == 0


def test_a_lake_moves_into_a_bucket_and_back(
    run: Run, here: Path, installed: str, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    rows = make(BLOCKS, "ethereum", range(3))
    Lake(str(here / "data" / "lake")).append(BLOCKS, rows, stream="s", batch=1)
    into = other_settings(here, "bucket.toml", f'[lake]\nuri = "{s3.bucket()}"\n')
    back = other_settings(here, "back.toml", f'[lake]\nuri = "{here / "other"}"\n[tail]\nurl = "sqlite:///data/t.db"\n')
    reports = run("move", into, "--json"), run("move", back, "--config", into, "--json")
    tables = [[each for each in report.json["tables"] if each["store"] == "lake"] for report in reports]
    assert tables[0] == tables[1]
    assert [(each["table"], each["rows"], each["copied"]) for each in tables[0]] == [("blocks", rows.num_rows, True)]
    assert stored(Lake(str(here / "other")), BLOCKS, "ethereum").equals(rows)
    assert "was there" in run("move", into).out


@pytest.mark.parametrize(("extra", "says"), [("", "the same stores"), ('data = "elsewhere"\n', "another data folder")])
def test_settings_that_move_nothing_or_too_much_are_refused(
    run: Run, here: Path, installed: str, extra: str, says: str
) -> None:
    (here / "new.toml").write_text(extra + (here / "chainfolio.toml").read_text())
    ran = run("move", "new.toml", "--json")
    assert (ran.code, ran.error["kind"]) == (2, "BadRequest")
    assert says in ran.error["message"]


BUCKET = '[lake]\nuri = "s3://a-bucket/data"\n'


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("", '[lake]\nuri = "alias/lake"\n'),
        ("", '[lake]\nuri = "data/../data/lake"\n'),
        ("", '[lake]\nuri = "file://HERE/data/lake/"\n'),
        ("", '[tail]\nurl = "sqlite:///alias/tail.db"\n[state]\nurl = "sqlite:///data/../data/state.db"\n'),
        (BUCKET, f'{BUCKET}endpoint = "http://127.0.0.1:1/"\nregion = "us-east-1"\n'),
    ],
    ids=["link", "dots", "file", "databases", "bucket"],
)
def test_stores_of_another_spelling_are_the_same_and_refused(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    configure(here, DEAD)
    (here / "data" / "lake").mkdir(parents=True)
    (here / "alias").symlink_to("data")
    Tail(here / "data" / "tail.db").close()
    old = other_settings(here, "old.toml", first)
    new = other_settings(here, "new.toml", second.replace("HERE", str(here)))
    assert "the same stores" in run("move", new, "--config", old, "--json").error["message"]


def test_only_moved_stores_are_named_as_old(run: Run, here: Path, installed: str) -> None:
    into = other_settings(here, "new.toml", '[tail]\nurl = "sqlite:///data/t.db"\n[lake]\nuri = "data/../data/lake"\n')
    assert "The old stores (tail) are unchanged" in run("move", into).out
