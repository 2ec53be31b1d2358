"""A tail without its lake, and a lake without its tail: indexing continues with neither, and both can be repaired."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chainfolio.errors import StoreError
from chainfolio.indexer import consistency
from tests.chains.evm import KEY, EvmSubject, evm
from tests.chains.index import EVERYTHING, index
from tests.indexer.test_kills import environment

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(40) as subject:
        yield subject


def call(subject: EvmSubject, folder: Path, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "chainfolio.cli.main", *arguments, "--json"]
    env = environment(subject, folder, EVERYTHING)
    process = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    report: dict[str, Any] = json.loads(process.stdout)
    return report | {"exit": process.returncode}


def lose_tail(folder: Path) -> None:
    for file in folder.glob("tail.db*"):
        os.remove(file)


def lose_lake(folder: Path) -> None:
    shutil.rmtree(folder / "lake")


@pytest.mark.slow("runs commands as processes many times")
@pytest.mark.parametrize(("lose", "store"), [(lose_tail, "tail"), (lose_lake, "lake")])
async def test_what_belongs_together_is_not_gone_on_with_apart(
    subject: EvmSubject, tmp_path: Path, lose: Any, store: str
) -> None:
    assert (await asyncio.to_thread(call, subject, tmp_path, "index", KEY, "--to", "20"))["exit"] == 0
    async with index(subject, tmp_path) as indexed:
        consistency.check(indexed.lake, indexed.tail, KEY)
        before = indexed.read_all()
    lose(tmp_path)
    for arguments in (["index", KEY], ["index", KEY, "--rewind", "5"], ["materialise", KEY]):
        report = await asyncio.to_thread(call, subject, tmp_path, *arguments)
        assert report["exit"] == 5, arguments
        assert report["error"]["store"] == store
        assert f"chainfolio index {KEY} --rewind 0" in report["error"]["remedy"]
    repaired = await asyncio.to_thread(call, subject, tmp_path, "index", KEY, "--to", "20", "--rewind", "0")
    assert repaired["exit"] == 0
    async with index(subject, tmp_path) as indexed:
        assert indexed.read_all() == before, "no row is lost or doubled"
        consistency.check(indexed.lake, indexed.tail, KEY)


async def test_a_tail_of_an_older_backup_is_not_the_lakes(subject: EvmSubject, tmp_path: Path) -> None:
    async with index(subject, tmp_path) as indexed:
        await indexed.fill(0, 8)
    shutil.copytree(tmp_path, tmp_path / "backup")
    async with index(subject, tmp_path) as indexed:
        await indexed.fill(9, 20)
    lose_tail(tmp_path)
    shutil.copy(tmp_path / "backup" / "tail.db", tmp_path / "tail.db")
    async with index(subject, tmp_path) as indexed:
        with pytest.raises(StoreError, match=r"the lake has batch 2, .* knows of 1"):
            consistency.check(indexed.lake, indexed.tail, KEY)


async def test_an_index_that_found_nothing_has_lost_nothing(subject: EvmSubject, tmp_path: Path) -> None:
    async with index(subject, tmp_path, datasets=("approvals",)) as indexed:
        consistency.check(indexed.lake, indexed.tail, KEY)
        await indexed.fill(0, 0)
        consistency.check(indexed.lake, indexed.tail, KEY)
