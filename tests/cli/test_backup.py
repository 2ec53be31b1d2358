"""`chainfolio backup` and `restore`: copies made during writes work elsewhere; damaged ones are refused."""

from __future__ import annotations

import json
import shutil
import threading
import tomllib
from collections.abc import Callable
from contextlib import chdir, closing
from errno import EACCES, ENOSPC
from pathlib import Path
from typing import Any

import pytest

from chainfolio.blocks import Span
from chainfolio.cli.backup import without_secrets
from chainfolio.cli.main import main
from chainfolio.storage import backup
from chainfolio.storage.backup import sha256_of
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.tables import BLOCKS, TRANSFERS
from tests.cli.conftest import Run, configure
from tests.storage.conftest import make

DEAD = "http://127.0.0.1:1"
CHAIN = "ethereum"


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation with an account and a small index."""
    folder = tmp_path_factory.mktemp("written")
    configure(folder, DEAD)
    with chdir(folder), closing(Tail("data/tail.db")) as tail:
        assert main(("account", "create", "--name", "ann", "--credits", "42")) == 0
        for number in range(3):
            write_batch(Lake("data/lake"), tail, number)
    return folder


@pytest.fixture
def installed(installation: Path, here: Path) -> Path:
    """Copy the installation into a new folder and return it."""
    return shutil.copytree(installation, here / "old")


def write_batch(lake: Lake, tail: Tail, number: int) -> None:
    """Index ten blocks as the indexer does: the intent, the rows, the range."""
    span = Span(number * 10, number * 10 + 9)
    batch = tail.open_batch(CHAIN, span, ["blocks", "transfers"])
    for table in (TRANSFERS, BLOCKS):
        rows = make(table, CHAIN, range(span.first, span.last + 1), per_block=1)
        lake.append(table, rows, stream=f"{CHAIN}/collect", batch=batch.number)
    tail.close_batch(batch)


def backed_up(run: Run, folder: Path, *more: str) -> Path:
    with chdir(folder):
        ran = run("backup", "../backup", *more, "--json")
    assert ran.code == 0, ran.out
    return folder.parent / "backup"


def restored_at(run: Run, backup: Path) -> Path:
    folder = backup.parent / "new"
    shutil.copytree(backup / "settings", folder)
    with chdir(folder):
        assert run("restore", str(backup), "--json").code == 0
    return folder


@pytest.mark.parametrize("link", [(), ("--link",)], ids=["copied", "linked"])
def test_a_restored_backup_has_the_same_accounts_and_rows(run: Run, installed: Path, link: tuple[str, ...]) -> None:
    backup = backed_up(run, installed, *link)
    new = restored_at(run, backup)
    assert not list(new.rglob("*.restoring"))
    for table in (BLOCKS, TRANSFERS):
        rows = [Lake(str(each / "data" / "lake")).scan(table).collect() for each in (installed, new)]
        assert rows[0].equals(rows[1])
        assert len(rows[0]) == 30
    with closing(Tail(new / "data" / "tail.db")) as tail:
        assert list(tail.indexed_ranges(CHAIN, "blocks")) == [Span(0, 29)]
        write_batch(Lake(str(new / "data" / "lake")), tail, 3)
    assert Lake(str(installed / "data" / "lake")).count(BLOCKS) == 30, "the copy goes on alone"
    with chdir(new):
        assert run("check", "--json").json["damaged"] == []
        assert "pepper" in run("account", "list").err
        shutil.copy(installed / "data" / "pepper", "data")
        assert "ann" in run("account", "list").out


def test_the_secret_of_keys_is_not_in_a_backup_and_may_be_put_back_first(run: Run, installed: Path) -> None:
    backup = backed_up(run, installed)
    secret = (installed / "data" / "pepper").read_bytes()
    assert not any(secret in path.read_bytes() for path in backup.rglob("*") if path.is_file())
    new = installed.parent / "new"
    (new / "data").mkdir(parents=True)
    (new / "data" / "pepper").write_bytes(secret)
    with chdir(new):
        assert run("restore", str(backup), "--json").json["needsSecret"] is False
        assert "ann" in run("account", "list").out


def test_a_backup_made_while_batches_are_written_shows_one_moment(run: Run, installed: Path) -> None:
    stop, problems = threading.Event(), list[BaseException]()

    def write() -> None:
        try:
            with closing(Tail(installed / "data" / "tail.db")) as tail:
                lake = Lake(str(installed / "data" / "lake"))
                for number in range(3, 200):
                    if stop.is_set():
                        return
                    write_batch(lake, tail, number)
        except BaseException as error:  # shown by the test
            problems.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(3):
            with chdir(installed):
                assert run("backup", f"../backup{number}", "--json").code == 0
    finally:
        stop.set()
        writer.join()
    assert problems == []
    for number in range(3):
        new = installed.parent / f"new{number}"
        new.mkdir()
        with chdir(new):
            assert run("restore", f"../backup{number}", "--json").code == 0
        lake = Lake(str(new / "data" / "lake"))
        with closing(Tail(new / "data" / "tail.db")) as tail:
            (indexed,) = tail.indexed_ranges(CHAIN, "blocks")
            pending = tail.open_batches(CHAIN)
        assert indexed.last + 1 <= lake.count(BLOCKS) <= indexed.last + 1 + 10 * len(pending)
        assert lake.count(BLOCKS) <= lake.count(TRANSFERS), "transfers are written first"


def without_times(answer: Any) -> Any:
    """The answer without the moments at which it was read."""
    for document in answer if isinstance(answer, list) else ():
        document.pop("lastUpdated", None)
    return answer


@pytest.mark.slow("another test compares all rows after a restore")
@pytest.mark.node
def test_a_portfolio_is_the_same_after_a_restore(run: Run, wallets: dict[str, str], here: Path) -> None:
    assert run("backup", "../backup-of-index", "--json").code == 0
    new = here.parent / "restored-index"
    shutil.copytree(here.parent / "backup-of-index" / "settings", new)
    address = next(iter(wallets.values()))
    commands = (
        ("portfolio", address, "--chain", "local", "--block", "40", "--json"),
        ("transactions", address, "--json"),
    )
    before = [without_times(run(*command).json) for command in commands]
    with chdir(new):
        assert run("restore", "../backup-of-index", "--json").code == 0
        assert [without_times(run(*command).json) for command in commands] == before
        assert run("check", "--json").code == 0
    assert before[0][0]["networth"] != "0"


# --- what is refused -------------------------------------------------------------------------------------------------


def change_manifest(backup: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((backup / "manifest.json").read_bytes())
    change(manifest)
    (backup / "manifest.json").write_text(json.dumps(manifest))


def alter(backup: Path) -> None:
    path = next(backup.glob("lake/blocks/**/*.parquet"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def leave(path: str) -> Callable[[Path], None]:
    def rename(manifest: dict[str, Any]) -> None:
        manifest["files"][0]["path"] = path

    return lambda backup: change_manifest(backup, rename)


def link_out(backup: Path) -> None:
    (backup / "tail.db").unlink()
    (backup / "tail.db").symlink_to(backup.parent / "old" / "data" / "tail.db")


REFUSED: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "altered": (alter, "StoreError", "was altered"),
    "missing": (lambda backup: (backup / "state.db").unlink(), "StoreError", "state.db is missing"),
    "altered settings": (
        lambda backup: (backup / "settings" / "chainfolio.toml").write_text(""),
        "StoreError",
        "chainfolio.toml was altered",
    ),
    "path above": (leave("lake/../../x"), "StoreError", "no file of a backup"),
    "absolute path": (leave("/etc/x"), "StoreError", "no file of a backup"),
    "unknown path": (leave("pepper"), "StoreError", "no file of a backup"),
    "path twice": (leave("tail.db"), "StoreError", "no file of a backup"),
    "link out of the folder": (link_out, "StoreError", "outside of"),
    "format": (
        lambda backup: change_manifest(backup, lambda manifest: manifest.update(format=2)),
        "StoreError",
        "format version 2",
    ),
    "tail": (
        lambda backup: change_manifest(backup, lambda manifest: manifest.update(tail=9)),
        "StoreError",
        "format version 9",
    ),
    "table": (
        lambda backup: change_manifest(backup, lambda manifest: manifest.update(tables={"blocks": 99})),
        "StoreError",
        "the manifest says 99",
    ),
    "torn manifest": (lambda backup: (backup / "manifest.json").write_text("{"), "StoreError", "is damaged"),
    "no manifest": (lambda backup: (backup / "manifest.json").unlink(), "BadRequest", "no whole backup"),
}


@pytest.mark.parametrize(("damage", "kind", "says"), REFUSED.values(), ids=REFUSED)
def test_a_bad_backup_is_refused_and_leaves_nothing(
    run: Run, installed: Path, damage: Callable[[Path], object], kind: str, says: str
) -> None:
    backup = backed_up(run, installed)
    damage(backup)
    new = installed.parent / "new"
    new.mkdir()
    with chdir(new):
        ran = run("restore", str(backup), "--json")
    assert (ran.error["kind"], says in ran.error["message"]) == (kind, True), ran.out
    assert [path for path in new.rglob("*") if path.is_file()] == []


def test_lake_and_tail_of_different_moments_are_refused(run: Run, installed: Path) -> None:
    backup = backed_up(run, installed)
    old = (backup / "tail.db").read_bytes()
    with closing(Tail(installed / "data" / "tail.db")) as tail:
        write_batch(Lake(str(installed / "data" / "lake")), tail, 3)
    with chdir(installed):
        assert run("backup", "../later").code == 0
    later = installed.parent / "later"
    (later / "tail.db").write_bytes(old)
    digest = sha256_of(backup / "tail.db")

    def change(manifest: dict[str, Any]) -> None:
        next(file for file in manifest["files"] if file["path"] == "tail.db")["sha256"] = digest

    change_manifest(later, change)
    (new := installed.parent / "new").mkdir()
    with chdir(new):
        ran = run("restore", str(later), "--json")
    assert "the lake has batch" in ran.error["message"]
    assert not (new / "data" / "tail.db").exists()


def test_what_a_killed_restore_left_is_replaced(run: Run, installed: Path) -> None:
    backup = backed_up(run, installed)
    leftover = installed.parent / "new" / "data" / "lake.restoring" / "blocks"
    leftover.mkdir(parents=True)
    (leftover / "part").write_text("half")
    new = installed.parent / "new"
    with chdir(new):
        assert run("restore", str(backup), "--json").code == 0
    assert sorted(path.name for path in (new / "data").iterdir()) == ["lake", "state.db", "tail.db"]


@pytest.mark.parametrize("name", ["tail.db", "state.db", "lake/blocks", "notes.txt"])
def test_a_folder_with_data_is_not_restored_into(run: Run, installed: Path, name: str) -> None:
    backup = backed_up(run, installed)
    used = installed.parent / "new" / "data" / name
    used.parent.mkdir(parents=True)
    used.write_text("mine")
    with chdir(installed.parent / "new"):
        ran = run("restore", str(backup), "--json")
    assert (ran.code, ran.error["kind"]) == (2, "BadRequest")
    assert "empty folder" in ran.error["message"]
    assert used.read_text() == "mine"


@pytest.mark.parametrize(("folder", "says"), [("data", "not an empty folder"), ("data/lake/backup", "inside the lake")])
def test_a_backup_goes_into_an_empty_folder_outside_of_the_lake(
    run: Run, installed: Path, folder: str, says: str
) -> None:
    with chdir(installed):
        ran = run("backup", folder, "--json")
    assert (ran.code, says in ran.error["message"]) == (2, True)


def test_nothing_is_no_backup(run: Run, here: Path) -> None:
    ran = run("backup", "backup", "--json")
    assert (ran.code, list(here.iterdir())) == (2, [])
    assert "nothing is stored" in ran.error["message"]


@pytest.mark.parametrize("command", ["backup", "restore"])
@pytest.mark.parametrize(
    "store_settings",
    [
        '[tail]\nurl = "postgresql://user:hidden@localhost/x"',
        '[state]\nurl = "postgresql://user:hidden@localhost/x"',
        '[lake]\nuri = "s3://bucket/x"',
    ],
    ids=["tail", "state", "lake"],
)
def test_postgresql_and_object_stores_are_refused_with_their_own_ways(
    run: Run, here: Path, command: str, store_settings: str
) -> None:
    configure(here, DEAD, more=store_settings)
    ran = run(command, "backup", "--json")
    assert ran.code == 2
    assert "pg_dump" in ran.error["remedy"]
    assert "versioning of the bucket" in ran.error["remedy"]
    assert "hidden" not in ran.out + ran.err


def test_a_file_that_disappears_is_named_and_the_folder_is_empty_again(run: Run, installed: Path) -> None:
    next(installed.glob("data/lake/blocks/**/*.parquet")).unlink()
    with chdir(installed):
        ran = run("backup", "../backup", "--json")
    assert (ran.code, "was deleted" in ran.error["message"]) == (5, True)
    assert list((installed.parent / "backup").iterdir()) == []


def test_a_failed_backup_deletes_no_file_of_others(run: Run, installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = installed.parent / "backup" / "note.txt"

    def full(name: str, connection: object, writer: object) -> None:
        note.write_text("mine")
        raise OSError(ENOSPC, "no space left on device")

    monkeypatch.setattr(backup, "_copy_database", full)
    with chdir(installed):
        assert run("backup", "../backup", "--json").error["kind"] == "StorageFull"
    assert list(note.parent.iterdir()) == [note]


def test_a_clean_up_that_fails_hides_no_error_of_a_backup(
    run: Run, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = installed.parent / "backup", installed.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "note.txt").write_text("mine")

    def full(name: str, connection: object, writer: object) -> None:
        shutil.rmtree(folder / "lake")
        (folder / "lake").symlink_to(elsewhere)
        (folder / "manifest.json").write_text("{}")
        raise OSError(ENOSPC, "no space left on device")

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.name == "manifest.json":
            raise PermissionError(EACCES, "permission denied")
        unlink(path, missing_ok)

    unlink = Path.unlink
    monkeypatch.setattr(backup, "_copy_database", full)
    monkeypatch.setattr(Path, "unlink", refuse)
    with chdir(installed):
        assert run("backup", "../backup", "--json").error["kind"] == "StorageFull"
    assert [path.name for path in folder.iterdir()] == ["manifest.json"], "the link is gone, and what failed stays"
    assert [path.name for path in elsewhere.iterdir()] == ["note.txt"]


def test_a_held_tail_ends_a_backup_with_an_error(run: Run, installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chainfolio.storage.sqlite.BUSY_MS", 1)
    with (
        closing(Tail(installed / "data" / "tail.db")) as tail,
        tail._database.write(CHAIN),
        chdir(installed),
    ):
        assert run("backup", "../backup", "--json").error["kind"] == "Locked"


def test_settings_refer_to_variables_instead_of_secrets() -> None:
    text = """
[chains.ethereum]
rpc = ["https://node.example/v2/s3cr3t", 'http://127.0.0.1:8545', "env:NODE", "https://me:s3cr3t@node.example"]
[vendor]
api_key = "s3cr3t"
key = "env:KEY"
[tail]
url = "sqlite:///data/tail.db"
# rpc = ["https://old.example/?key=s3cr3t"]
"""
    variables: list[str] = []
    safe = without_secrets(text, variables)
    assert "s3cr3t" not in safe
    settings = tomllib.loads(safe)
    rpc = settings["chains"]["ethereum"]["rpc"]
    assert rpc[1:3] == ["http://127.0.0.1:8545", "env:NODE"]
    assert settings["vendor"]["key"] == "env:KEY"
    assert settings["tail"]["url"] == "sqlite:///data/tail.db"
    assert sorted(variables) == [f"RESTORED_SECRET_{number}" for number in range(1, 5)]
    assert {rpc[0], rpc[3], settings["vendor"]["api_key"]} < {f"env:{name}" for name in variables}


def test_people_are_told_what_is_in_it_and_what_is_not(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with chdir(installed):
        assert main(("backup", "../backup")) == 0
        output = capsys.readouterr().out
        shutil.rmtree("data")
        assert main(("restore", "../backup")) == 0
    assert "SHA-256 of manifest.json" in output
    assert "Not in it: data/pepper" in output
    assert "Put data/pepper back" in capsys.readouterr().out
