"""A damaged file of the lake is found, named, and repaired by reading its blocks again: the rows are as before."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from chainfolio.errors import CorruptFile
from chainfolio.indexer import materialise
from chainfolio.indexer.collect import Collector
from chainfolio.indexer.progress import Progress
from chainfolio.indexer.repair import repair
from chainfolio.indexer.scrub import FileCheck, Scrub, check_files, list_files
from chainfolio.tables import TABLES
from tests.chains.evm import KEY, EvmSubject, evm
from tests.chains.index import FETCHED, Index, filled_whole, in_order, index
from tests.chains.subject import Row
from tests.indexer.clock import ManualClock

pytestmark = [pytest.mark.node, pytest.mark.xdist_group("scrub")]


class Killed(Exception):
    """The process is no more."""


FILLED = (*FETCHED, *materialise.DERIVED)


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(40) as subject:
        yield subject


@pytest.fixture(scope="module")
def undamaged(subject: EvmSubject, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index that has all tables."""
    return filled_whole(subject, tmp_path_factory.mktemp("whole"))


@pytest.fixture
def filled(undamaged: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(undamaged, tmp_path / "index"))


def rows(indexed: Index) -> dict[str, list[Row]]:
    """The rows of every table, in an order of their own: repaired ones may lie elsewhere."""
    return {name: in_order(indexed.stored(name).to_pylist()) for name in FILLED}


def damage(indexed: Index, table: str) -> Path:
    """One bit of the largest file of a table."""
    file = max(map(Path, indexed.lake.files(TABLES[table])), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 8
    file.write_bytes(content)
    return file


def damaged_files(indexed: Index) -> list[FileCheck]:
    return [
        each for each in check_files(indexed.lake, list_files(indexed.lake), lambda _: None) if each.state != "sound"
    ]


@pytest.mark.slow("files of other tables are repaired in the same way", fast=["blocks", "logs+account_transfers"])
@pytest.mark.parametrize(
    "names",
    [("blocks",), ("transfers",), ("logs", "account_transfers"), ("account_events",), ("balances",)],
    ids="+".join,
)
async def test_a_damaged_file_is_found_and_made_good(subject: EvmSubject, filled: Path, names: tuple[str, ...]) -> None:
    async with index(subject, filled) as indexed:
        before = rows(indexed)
        assert damaged_files(indexed) == []
        for name in names:
            damage(indexed, name)
        damaged = damaged_files(indexed)
        assert {each.table for each in damaged} == set(names)
        with pytest.raises(CorruptFile):
            indexed.lake.scan(TABLES[names[0]]).collect()
        await repair(indexed.chain, indexed.lake, indexed.tail, indexed.environment, damaged)
        assert damaged_files(indexed) == []
        assert rows(indexed) == before
        await indexed.fill(0, 24)
        assert rows(indexed) == before, "nothing is missing from the indexed ranges, and nothing comes twice"


@pytest.mark.slow("another moment of the same repair", fast=["*_write", "*forget_batch"])
@pytest.mark.parametrize(
    "step",
    [
        "chainfolio.storage.lake.Lake.delete_span",
        "chainfolio.storage.tail.Tail.forget_batch",
        "chainfolio.indexer.collect.Collector._write",
    ],
)
async def test_a_repair_that_was_killed_is_finished_by_the_next_run(
    subject: EvmSubject, filled: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async with index(subject, filled) as indexed:
        before = rows(indexed)
        damage(indexed, "transfers")

        def die(*_: object) -> None:
            raise Killed

        damaged = damaged_files(indexed)
        with monkeypatch.context() as killed:
            killed.setattr(step, die)
            with pytest.raises(Killed):
                await repair(indexed.chain, indexed.lake, indexed.tail, indexed.environment, damaged)
    async with index(subject, filled) as indexed:
        progress = Progress(indexed.environment.clock, 1)
        await Collector(indexed.chain, indexed.lake, indexed.tail, indexed.environment, progress).recover()
        await indexed.materialise()
        assert damaged_files(indexed) == []
        assert rows(indexed) == before


async def test_the_scrub_names_a_damaged_file_and_is_healthy_after_its_repair(
    subject: EvmSubject, filled: Path
) -> None:
    async with index(subject, filled) as indexed:
        file = damage(indexed, "blocks")
        scrub = Scrub(indexed.lake, indexed.tail, ManualClock(), KEY)
        with pytest.raises(CorruptFile, match=file.name):
            await scrub.run()
        with indexed.tail.hold(f"{KEY}.check", "it"):
            await scrub.run()  # another process does it
        await repair(indexed.chain, indexed.lake, indexed.tail, indexed.environment, damaged_files(indexed))
        await scrub.run()
