"""`chainfolio sql` refuses files that do not match their checksums, and checks each version once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from chainfolio.storage.lake import Lake
from chainfolio.storage.parquet import LakeFile
from chainfolio.table import Table
from chainfolio.tables import ACCOUNT_TRANSFERS, BLOCKS, TRANSFERS
from tests.cli.conftest import Run
from tests.storage.conftest import make

TOTAL = "SELECT count(*) AS n, sum(hash(raw)) AS amounts, sum(hash(sender, recipient)) AS parties FROM transfers"


@pytest.fixture
def lake(here: Path) -> Lake:
    """Rows of three tables in the default data folder."""
    lake = Lake(str(here / "data" / "lake"))
    for table in (TRANSFERS, BLOCKS, ACCOUNT_TRANSFERS):
        lake.append(table, make(table, "local", range(1, 400)), stream="local", batch=1)
    return lake


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables of the files that were compared."""
    tables: list[str] = []
    examine = Lake.examine

    def examine_recorded(lake: Lake, table: Table, file: LakeFile) -> Iterator[int]:
        tables.append(table.name)
        yield from examine(lake, table, file)

    monkeypatch.setattr(Lake, "examine", examine_recorded)
    return tables


def flip(file: Path, at: int, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1 << bit
    file.write_bytes(content)


@pytest.mark.parametrize("is_compared_before", [False, True], ids=["first query", "second query"])
def test_a_flipped_bit_is_refused_and_the_file_named(run: Run, lake: Lake, is_compared_before: bool) -> None:
    if is_compared_before:
        assert run("sql", TOTAL).code == 0
    (file,) = map(Path, lake.files(TRANSFERS))
    size, random = file.stat().st_size, Random(7)
    for _ in range(6):
        at, bit = random.randrange(size), random.randrange(8)
        flip(file, at, bit)
        ran = run("sql", TOTAL, "--json")
        assert (ran.code, ran.error["kind"]) == (5, "CorruptFile"), f"bit {bit} of byte {at}"
        assert file.name in ran.error["message"]
        assert ran.error["remedy"] == "chainfolio check --repair"
        flip(file, at, bit)
    assert run("sql", TOTAL).code == 0


def test_a_changed_file_whose_time_was_set_back_is_refused(run: Run, lake: Lake) -> None:
    (file,) = map(Path, lake.files(TRANSFERS))
    assert run("sql", TOTAL).code == 0
    before = file.stat()
    flip(file, before.st_size // 2, 3)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert run("sql", TOTAL, "--json").error["kind"] == "CorruptFile"


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_a_version_of_a_file_is_compared_once_and_only_of_tables_in_the_query(
    run: Run, lake: Lake, examined: list[str]
) -> None:
    assert run("sql", "SELECT count(*) FROM Transfers").code == 0
    assert examined == ["transfers"]
    assert run("sql", "SELECT chain FROM transfers JOIN blocks USING (chain, height)").code == 0
    assert examined == ["transfers", "blocks"]
    assert run("sql", "SELECT count(*) FROM account_transfers_of('0xab')").code == 0
    assert {*examined[2:]} == {"account_transfers"}
    before = len(examined)
    for query in (TOTAL, "SELECT count(*) FROM blocks", "SELECT 1", "SELECT count(*) FROM account_transfers"):
        assert run("sql", query).code == 0
    assert len(examined) == before
    lake.append(TRANSFERS, make(TRANSFERS, "local", range(400, 500)), stream="local", batch=2)
    assert run("sql", TOTAL).code == 0
    assert examined[before:] == ["transfers"], "the new file alone"


def test_a_damaged_table_refuses_only_queries_that_name_it(run: Run, lake: Lake) -> None:
    flip(Path(*lake.files(BLOCKS)), 100, 0)
    assert run("sql", TOTAL).code == 0
    assert run("sql", "SELECT count(*) FROM blocks", "--json").error["kind"] == "CorruptFile"


DYNAMIC = {
    "a name put together": "SELECT count(*) FROM query_table('blo' || 'cks')",
    "a query put together": "SELECT count(*) FROM query('FROM blo' || 'cks')",
    "a file by a pattern": "SELECT count(*) FROM read_parquet('{lake}/block?/chain=local/*.parquet')",
}


@pytest.mark.slow("other ways to hide the same name", fast=["a query put together"])
@pytest.mark.parametrize("query", DYNAMIC.values(), ids=DYNAMIC.keys())
def test_a_table_that_the_query_does_not_name_is_not_read(run: Run, lake: Lake, query: str) -> None:
    ran = run("sql", query.format(lake=lake.uri), "--json")
    assert (ran.code, ran.error["kind"]) == (2, "BadRequest")
    if "query" in query:
        assert "names no blocks" in ran.error["message"]
        assert run("sql", f"{query} -- blocks", "--json").json[0] == {"count_star()": lake.count(BLOCKS)}


def test_unchecked_compares_nothing_and_says_so(run: Run, lake: Lake, examined: list[str]) -> None:
    ran = run("sql", TOTAL, "--json", "--unchecked")
    assert (ran.code, ran.err, examined) == (0, "unchecked: no file was compared with its checksums\n", [])
    assert ran.json == run("sql", TOTAL, "--json").json
    assert examined == ["transfers"], "what was read unchecked is not remembered as compared"


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[]", b'{"transfers/x": [1]}'])
def test_a_damaged_memory_of_comparisons_compares_again(
    run: Run, lake: Lake, here: Path, examined: list[str], content: bytes
) -> None:
    (here / "data" / "compared.json").write_bytes(content)
    assert [run("sql", TOTAL).code, run("sql", TOTAL).code] == [0, 0]
    assert examined == ["transfers"]


def test_a_memory_that_cannot_be_written_refuses_no_query(
    run: Run, lake: Lake, here: Path, examined: list[str]
) -> None:
    (here / "data" / "compared.json").mkdir()
    assert [run("sql", TOTAL).code, run("sql", TOTAL).code] == [0, 0]
    assert examined == ["transfers", "transfers"]
    assert not [*(here / "data").glob("*.tmp")]


def test_printed_views_say_that_nothing_compares_checksums(run: Run, lake: Lake) -> None:
    assert run("sql").out.startswith("-- Readers of these views compare no checksums: run `chainfolio check`")
