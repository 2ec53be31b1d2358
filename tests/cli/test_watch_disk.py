"""`chainfolio watch` where its folder takes no more, or nothing at all."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from chainfolio.storage.parquet import Folder
from tests.chains.evm import EvmSubject, evm
from tests.cli.conftest import Run, configure
from tests.cli.test_watch import FINALITY, HISTORIES, SOURCES, account, stored

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(48) as subject:
        yield subject


def watched(folder: Path, subject: EvmSubject) -> dict[str, list[dict[str, Any]]]:
    return {name: stored(folder, name, {account(subject)}) for name in (*SOURCES, *HISTORIES)}


@pytest.fixture(scope="module")
def expected_rows(subject: EvmSubject, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Return the rows that a run without faults stores."""
    folder = tmp_path_factory.mktemp("untroubled")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        configure_watch(folder, subject)
        from chainfolio.cli.main import main

        assert main(["watch", account(subject)]) == 0
    return watched(folder, subject)


def configure_watch(folder: Path, subject: EvmSubject) -> None:
    configure(folder, subject.node.url, chain="local", more=f'facts = "{subject.facts(FINALITY)}"\nindex = "accounts"')


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mount a file system of a size; skip the test if the user may not mount."""
    folder.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True)
    if mount.returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=True)


@pytest.mark.slow("the same at other moments of a run", fast=["120k"])
@pytest.mark.parametrize("size", ["40k", "120k", "200k", "280k", "400k"])
def test_a_disk_that_gets_full_ends_it_and_with_more_room_it_goes_on_to_the_same_rows(
    run: Run, here: Path, subject: EvmSubject, expected_rows: dict[str, list[dict[str, Any]]], size: str
) -> None:
    configure_watch(here, subject)
    with small_disk(here / "data", size):
        ran = run("watch", account(subject), "--json")
        assert (ran.code, ran.error["kind"]) == (5, "StorageFull"), ran.out
        assert "free some space" in ran.error["remedy"]
        assert run("watch", account(subject), "--json").error["kind"] == "StorageFull"
        remount(here / "data", "size=64m")
        assert run("watch", account(subject)).code == 0
        assert watched(here, subject) == expected_rows


@pytest.mark.slow("the same at other moments of a run", fast=["4"])
@pytest.mark.parametrize("after", range(0, 12, 2))
def test_a_file_that_cannot_be_written_ends_it_and_the_next_run_goes_on_to_the_same_rows(
    run: Run,
    here: Path,
    subject: EvmSubject,
    expected_rows: dict[str, list[dict[str, Any]]],
    after: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure_watch(here, subject)
    write_count, create = count(), Folder.create

    def full(self: Folder, folder: str, name: Any) -> Any:
        if next(write_count) >= after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return create(self, folder, name)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "create", full)
        ran = run("watch", account(subject), "--json")
    if next(write_count) > after:
        assert (ran.code, ran.error["kind"]) == (5, "StorageFull"), ran.out
    assert run("watch", account(subject)).code == 0
    assert watched(here, subject) == expected_rows


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_a_folder_that_may_not_be_written_is_said_to_be_so(run: Run, here: Path, subject: EvmSubject) -> None:
    configure_watch(here, subject)
    with small_disk(here / "data", "64m"):
        remount(here / "data", "ro")
        ran = run("watch", account(subject), "--json")
        assert (ran.code, ran.error["kind"]) == (5, "StoreError"), ran.out
        assert "folder" in ran.error["remedy"]
        remount(here / "data", "rw")
        assert run("watch", account(subject)).code == 0
        remount(here / "data", "ro")
        ran = run("watch", account(subject), "--json")
        assert (ran.code, ran.error["kind"]) == (5, "StoreError"), ran.out
        assert run("transactions", account(subject), "--json").error["kind"] == "StoreError"
