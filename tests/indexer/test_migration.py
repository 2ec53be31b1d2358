"""Tables that an older release wrote are refused by name, and made again from what is stored, whenever it is killed."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from chainfolio.blocks import Span
from chainfolio.errors import StaleTable, StoreError
from chainfolio.table import Column, Table
from chainfolio.tables import TABLES
from indexer import materialise, migration
from storage.lake import Lake
from tests.chains.evm import KEY, EvmSubject, evm
from tests.chains.index import EVERYTHING, FETCHED, Index, filled_whole, index
from tests.indexer.dying import Died, Fuse, mortal
from tests.indexer.test_kills import environment

pytestmark = pytest.mark.node
MADE = (*materialise.decoded(), *materialise.DERIVED)
LATER = {
    "account_transactions": "sender",
    "account_events": "place",
}  # columns that older releases did not have; of others, the token
ALL = Span(0, 2**40)


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(40) as subject:
        yield subject


@pytest.fixture(scope="module")
def filled(subject: EvmSubject, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index that has all tables."""
    return filled_whole(subject, tmp_path_factory.mktemp("filled"))


def older(table: Table, without: str = "") -> Table:
    """A table as an older release had it."""
    columns = (*(column for column in table.columns if column.name != without), Column("gone", "long", "no more"))
    order = tuple(name for name in table.order if name != without)
    return replace(table, revision=table.revision + 7, order=order, columns=columns)


def age(lake: Lake, table: Table, without: str = "") -> None:
    """Let a table be one that an older release wrote."""
    rows = pa.concat_tables([lake.window(table, chain, ALL) for chain in (KEY, "other")])
    rows = rows.drop([without] if without else []).append_column("gone", pa.array(range(len(rows)), pa.int64()))
    was = older(table, without)
    lake.recreate(was, pa.table([rows[name] for name in was.names], schema=was.schema()))


def called(command: Sequence[str], env: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)


def contents(indexed: Index) -> dict[str, pa.Table]:
    return {name: indexed.stored(name) for name in (*FETCHED, *MADE)}


@pytest.mark.parametrize(
    "names",
    [
        ("transfers",),
        ("logs",),
        ("account_transfers",),
        ("account_approvals",),
        ("account_transactions",),
        ("account_events",),
        ("balances", "allowances"),
        MADE,
    ],
)
async def test_what_an_older_release_wrote_is_refused_and_made_again(
    subject: EvmSubject, filled: Path, tmp_path: Path, names: tuple[str, ...]
) -> None:
    folder = tmp_path / "index"
    shutil.copytree(filled, folder)
    async with index(subject, folder) as indexed:
        before = contents(indexed)
        marks = {name: indexed.lake.last(TABLES[name], f"{KEY}/collect") for name in MADE}
        for name in names:
            age(indexed.lake, TABLES[name], without=LATER.get(name, "token" if name in materialise.DERIVED else ""))
    async with index(subject, folder) as indexed:
        for name in names:
            with pytest.raises(StaleTable, match=f"materialise CHAIN --tables {name}"):
                indexed.lake.scan(TABLES[name])
        assert set(migration.stale(indexed.lake)) == set(names)
        assert migration.chains(indexed.lake) == [KEY]
        subject.asked.forget()
        written = migration.migrate([indexed.chain], indexed.lake, indexed.tail)
        assert subject.asked.requests == 0
        assert contents(indexed) == before
        assert written == {name: before[name].num_rows for name in written}
        assert set(names) <= set(written)
        assert migration.stale(indexed.lake) == []
        assert {name: indexed.lake.last(TABLES[name], f"{KEY}/collect") for name in MADE} == marks
        assert (await indexed.materialise())["account_transfers"] == 0, "what is covered is not derived twice"


async def test_the_command_that_the_error_names_mends_the_tables_of_all_chains(
    subject: EvmSubject, filled: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "index"
    shutil.copytree(filled, folder)
    async with index(subject, folder) as indexed:
        await indexed.materialise()
        others = indexed.lake.window(TABLES["transfers"], KEY, ALL)
        others = others.set_column(0, others.schema.field(0), pa.array(["other"] * len(others)))
        indexed.lake.append(TABLES["transfers"], others, stream="other/aside", batch=1)
        age(indexed.lake, TABLES["transfers"])
    env = environment(subject, folder, EVERYTHING)
    command = [sys.executable, "-m", "cli.main", "materialise", KEY, "--tables", "transfers", "--json"]
    refused = await asyncio.to_thread(called, command, env, folder)
    assert refused.returncode == 2
    assert "other is not configured" in refused.stdout
    env |= {name.replace("LOCAL", "OTHER"): value for name, value in env.items() if "CHAINS__LOCAL" in name}
    facts = folder / "other.toml"
    facts.write_text(subject.facts().read_text().replace(f'key = "{KEY}"', 'key = "other"'))
    env["CHAINFOLIO_CHAINS__OTHER__FACTS"] = str(facts)
    done = await asyncio.to_thread(called, command, env, folder)
    assert done.returncode == 0, done.stderr
    lake = Lake(str(folder / "lake"))
    assert lake.window(TABLES["transfers"], "other", ALL) == others
    assert json.loads(done.stdout)["rows"]["transfers"] == lake.count(TABLES["transfers"]) == 2 * len(others)


async def test_a_mend_may_die_at_any_moment(subject: EvmSubject, filled: Path, tmp_path: Path) -> None:
    async with index(subject, filled) as indexed:
        before = contents(indexed)
    for moment in range(100):
        folder = tmp_path / str(moment)
        shutil.copytree(filled, folder)
        async with index(subject, folder) as indexed:
            age(indexed.lake, TABLES["transfers"])
            mortal(indexed.lake, Fuse(moment))
            with suppress(Died):
                migration.migrate([indexed.chain], indexed.lake, indexed.tail)
                assert moment == 7, "the two ends of logs, five tables in between"
                return
        async with index(subject, folder) as indexed:
            assert migration.stale(indexed.lake), "what was killed is still due"
            migration.migrate([indexed.chain], indexed.lake, indexed.tail)
            assert contents(indexed) == before, f"after a death at moment {moment}"


async def test_a_history_that_was_killed_while_it_was_derived_is_whole_after_a_mend(
    subject: EvmSubject, tmp_path: Path
) -> None:
    async with index(subject, tmp_path) as indexed:
        await indexed.fill(0, 12)
        await indexed.materialise()
        await indexed.fill(13, 24)
        mortal(indexed.tail, Fuse(1))  # the intent is written, the rows are, the indexed range is not
        with pytest.raises(Died):
            materialise.materialise(indexed.lake, indexed.tail, KEY, ("account_transfers",))
    async with index(subject, tmp_path) as indexed:
        assert indexed.tail.open_batches(KEY)
        age(indexed.lake, TABLES["account_transfers"])
        migration.migrate([indexed.chain], indexed.lake, indexed.tail)
        await indexed.materialise()
        after = indexed.stored("account_transfers")
        materialise.history_again(indexed.lake, indexed.tail, KEY, "account_transfers")
        assert indexed.stored("account_transfers") == after


async def test_rows_without_what_their_logs_said_are_not_guessed_at(
    subject: EvmSubject, filled: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "index"
    shutil.copytree(filled, folder)
    async with index(subject, folder) as indexed:
        age(indexed.lake, TABLES["approvals"], without="spender")
        with pytest.raises(StoreError, match=r"does not say all that this one keeps: .*spender"):
            await asyncio.to_thread(migration.migrate, [indexed.chain], indexed.lake, indexed.tail)
        assert migration.stale(indexed.lake) == ["approvals"]
