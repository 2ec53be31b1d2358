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
def wanted(subject: EvmSubject, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What a run without any trouble stores."""
    folder = tmp_path_factory.mktemp("untroubled")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        settled(folder, subject)
        from chainfolio.cli.main import main

        assert main(["watch", account(subject)]) == 0
    return watched(folder, subject)


def settled(folder: Path, subject: EvmSubject) -> None:
    configure(folder, subject.node.url, chain="local", more=f'facts = "{subject.facts(FINALITY)}"\nindex = "accounts"')


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    """A file system of its own, of a size; skipped where this user may not make one."""
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True)
    if made.returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def enlarged(place: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(place)], check=True)


@pytest.mark.slow("the same at other moments of a run", fast=["120k"])
@pytest.mark.parametrize("size", ["40k", "120k", "200k", "280k", "400k"])
def test_a_disk_that_gets_full_ends_it_and_with_more_room_it_goes_on_to_the_same_rows(
    run: Run, here: Path, subject: EvmSubject, wanted: dict[str, list[dict[str, Any]]], size: str
) -> None:
    settled(here, subject)
    with small_disk(here / "data", size):
        ran = run("watch", account(subject), "--json")
        assert (ran.code, ran.error["kind"]) == (5, "StorageFull"), ran.out
        assert "free some space" in ran.error["remedy"]
        assert run("watch", account(subject), "--json").error["kind"] == "StorageFull"
        enlarged(here / "data", "size=64m")
        assert run("watch", account(subject)).code == 0
        assert watched(here, subject) == wanted


@pytest.mark.slow("the same at other moments of a run", fast=["4"])
@pytest.mark.parametrize("after", range(0, 12, 2))
def test_a_file_that_cannot_be_written_ends_it_and_the_next_run_goes_on_to_the_same_rows(
    run: Run,
    here: Path,
    subject: EvmSubject,
    wanted: dict[str, list[dict[str, Any]]],
    after: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settled(here, subject)
    written, create = count(), Folder.create

    def full(self: Folder, place: str, named: Any) -> Any:
        if next(written) >= after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return create(self, place, named)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "create", full)
        ran = run("watch", account(subject), "--json")
    if next(written) > after:
        assert (ran.code, ran.error["kind"]) == (5, "StorageFull"), ran.out
    assert run("watch", account(subject)).code == 0
    assert watched(here, subject) == wanted


def test_a_folder_that_may_not_be_written_is_said_to_be_so(run: Run, here: Path, subject: EvmSubject) -> None:
    settled(here, subject)
    with small_disk(here / "data", "64m"):
        enlarged(here / "data", "ro")
        ran = run("watch", account(subject), "--json")
        assert (ran.code, ran.error["kind"]) == (5, "StoreError"), ran.out
        assert "folder" in ran.error["remedy"]
        enlarged(here / "data", "rw")
        assert run("watch", account(subject)).code == 0
        enlarged(here / "data", "ro")
        ran = run("watch", account(subject), "--json")
        assert (ran.code, ran.error["kind"]) == (5, "StoreError"), ran.out
        assert run("transactions", account(subject), "--json").error["kind"] == "StoreError"
