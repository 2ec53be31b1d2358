"""A folder of a release that wanted gas, nonces and call data in every row is opened, read, continued with nulls where
a chain has none, and checked. Nothing of it is written anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from chainfolio.blocks import Span
from chainfolio.chains import Collected
from chainfolio.datasets import Dataset
from chainfolio.table import Table
from chainfolio.tables import ACCOUNT_TRANSACTIONS, BLOCKS, TABLES, TRANSACTIONS
from indexer import arrow_ipc, migration
from indexer.scrub import checked, listed
from storage.deltalog import schema_of
from storage.lake import Lake
from storage.views import views
from tests.chains.index import IndexOf, index
from tests.chains.invented.chainfolio_invented.chain import InventedChain
from tests.chains.invented_subject import InventedSubject
from tests.chains.subject import Row
from tests.storage.conftest import make

# What every row had to say, and now need not; `base_fee` could always be null.
WANTED: Mapping[str, Row] = {
    "blocks": {"miner": "", "gas_used": 0, "gas_limit": 0},
    "transactions": {"nonce": 0, "type": 0, "gas_used": 0, "gas_price": bytes(32), "input": b""},
    "account_transactions": {"selector": b""},
}


def older(table: Table) -> Table:
    """A table as that release had it."""
    columns = tuple(
        replace(column, nullable=column.nullable and column.name not in WANTED[table.name]) for column in table.columns
    )
    assert columns != table.columns
    return replace(table, columns=columns)


OLDER = {name: older(TABLES[name]) for name in WANTED}


def filled(rows: pa.Table, name: str) -> pa.Table:
    """Rows with invented zeros in the place of nulls."""
    return pa.Table.from_pylist([{**row, **WANTED[name]} for row in rows.to_pylist()], OLDER[name].schema())


class OlderChain(InventedChain):
    """The chain as its adapter was written for that release."""

    datasets: Mapping[str, Dataset] = {
        name: replace(each, table=OLDER.get(each.table.name, each.table))
        for name, each in InventedChain.datasets.items()
    }

    async def collect(self, span: Span, datasets: Sequence[str], *rest: Any, **more: Any) -> Collected:
        found = await super().collect(span, datasets, *rest, **more)
        tables = {name: filled(rows, name) if name in WANTED else rows for name, rows in found.tables.items()}
        return replace(found, tables=tables)


class OlderSubject(InventedSubject):
    """The ledger, read by that release."""

    adapter = OlderChain


@dataclass
class Folder:
    """What that release left, its ledger, and the last height that it indexed."""

    path: Path
    subject: InventedSubject
    newest: int


@pytest.fixture
async def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """An index with rows in the lake, in the histories, and in the tail, all written with the older columns."""
    older_subject = OlderSubject(90)
    with monkeypatch.context() as patched:
        for name, table in OLDER.items():
            patched.setitem(TABLES, name, table)
        async with index(older_subject, tmp_path) as indexed:
            await indexed.fill_final()
            await indexed.follower().step()
            await indexed.materialise()
    for name in WANTED:
        assert not optional(tmp_path, name) & WANTED[name].keys(), "the folder is of the older release"
    subject = InventedSubject(0)
    subject.ledger = older_subject.ledger
    return Folder(tmp_path, subject, subject.height)


def optional(folder: Path, table: str) -> set[str]:
    """The columns that may be null by what a table's log tells other engines."""
    return {field.name for field in DeltaTable(folder / "lake" / table).schema().fields if field.nullable}


def told(rows: Sequence[Row], table: str) -> list[Row]:
    """What some rows say in the columns that they need not have."""
    return [{name: row[name] for name in WANTED[table]} for row in rows]


async def continued(indexed: IndexOf[InventedChain], folder: Folder) -> None:
    """The chain goes on until all that was in the tail is final, and is indexed."""
    folder.subject.trade(100, seed=3)
    follower = indexed.follower()
    await follower.step()
    assert follower.finalise((await indexed.chain.heads()).finalized) > 0
    await indexed.materialise()


async def test_an_older_folder_is_read_as_it_is(folder: Folder) -> None:
    async with index(folder.subject, folder.path) as indexed:
        assert migration.stale(indexed.lake) == []
        plain = folder.subject.rows(Span(0, folder.newest))
        for name in ("blocks", "transactions"):
            rows = indexed.rows(name)
            assert {row["hash"] for row in rows} == {row["hash"] for row in plain[name]}
            assert told(rows, name) == [WANTED[name]] * len(rows)
        account = folder.subject.accounts[0]
        history = indexed.lake.of_accounts(ACCOUNT_TRANSACTIONS, indexed.key, [account]).collect()
        assert history.height
        assert set(history["selector"]) == {b""}


async def test_rows_without_gas_follow_those_of_an_older_folder(folder: Folder) -> None:
    async with index(folder.subject, folder.path) as indexed:
        files = {name: set(indexed.lake.files(TABLES[name])) for name in WANTED}
        await continued(indexed, folder)
        for name in ("blocks", "transactions"):
            rows = sorted(indexed.rows(name), key=lambda row: row["height"])
            old = [row for row in rows if row["height"] <= folder.newest]
            assert len(old) < len(rows)
            assert told(old, name) == [WANTED[name]] * len(old), "what an older release stored stays as it was"
            assert told(rows[len(old) :], name) == [dict.fromkeys(WANTED[name])] * (len(rows) - len(old))
        for name in WANTED:
            assert files[name] < set(indexed.lake.files(TABLES[name])), "no file is written anew"
            assert optional(folder.path, name) >= WANTED[name].keys()
        assert {each.state for each in checked(indexed.lake, listed(indexed.lake), lambda _: None)} == {"sound"}


async def test_sql_counts_the_nulls_beside_the_older_rows(folder: Folder) -> None:
    async with index(folder.subject, folder.path) as indexed:
        await continued(indexed, folder)
        with duckdb.connect() as connection:
            for view in views({name: indexed.lake.files(TABLES[name]) for name in WANTED}):
                connection.execute(view)
            for name, wanted in WANTED.items():
                for column in wanted:
                    count = f"SELECT count(*), count({column}) FROM {name} WHERE chain = '{indexed.key}'"
                    rows, known = connection.execute(count).fetchall()[0]
                    assert 0 < known < rows, f"{name}.{column}"


@pytest.mark.parametrize("name", WANTED)
def test_only_what_may_be_null_now_is_told_to_be(tmp_path: Path, name: str) -> None:
    table = TABLES[name]
    lake = Lake(str(tmp_path))
    lake.append(older(table), make(older(table), "a", range(3)), stream="s", batch=1)
    lake.append(table, make(table, "b", range(3)), stream="s", batch=2)
    assert DeltaTable(tmp_path / name).schema() == schema_of(table)
    version = DeltaTable(tmp_path / name).version()
    lake.append(table, make(table, "b", range(3, 6)), stream="s", batch=3)
    assert DeltaTable(tmp_path / name).version() == version + 1, "told once"


def test_two_writers_may_find_an_older_table_at_once(tmp_path: Path) -> None:
    old = older(BLOCKS)
    one, other = Lake(str(tmp_path)), Lake(str(tmp_path))
    for lake, chain in ((one, "a"), (other, "b")):
        lake.append(old, make(old, chain, range(3)), stream=chain, batch=1)
    for lake, chain in ((one, "a"), (other, "b"), (one, "a")):
        lake.append(BLOCKS, make(BLOCKS, chain, range(3, 9)), stream=chain, batch=lake.last(BLOCKS, chain) + 1)
    assert (one.count(BLOCKS, "a"), one.count(BLOCKS, "b")) == (30, 18)


@pytest.mark.parametrize("table", [BLOCKS, TRANSACTIONS], ids=lambda table: table.name)
def test_older_and_newer_rows_of_the_tail_are_one_table(table: Table) -> None:
    rows = [make(older(table), "a", range(2)), make(table, "a", range(2, 9))]
    both = arrow_ipc.load(map(arrow_ipc.dump, rows), table)
    assert both.schema == table.schema()
    assert both.to_pylist() == [row for each in rows for row in each.to_pylist()]
