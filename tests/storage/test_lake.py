"""The lake: each row is stored once and in order, for each reader and after each interruption."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import random
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chainfolio.amounts import MAX_DEC38
from chainfolio.blocks import Span
from chainfolio.errors import StaleTable, StorageFull, StoreError
from chainfolio.storage.deltalog import crowded
from chainfolio.storage.history import Footers, memory_bytes
from chainfolio.storage.lake import Lake
from chainfolio.storage.parquet import Folder, LakeFile
from chainfolio.table import Table, bucket
from chainfolio.tables import ACCOUNT_TRANSFERS, BLOCKS, LOGS, TABLES, TRANSFERS
from tests.storage.conftest import on_both_stores, stored

Maker = Callable[..., pa.Table]


def multiset(*tables: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for rows in tables for row in rows.to_pylist())


def parquet_files(lake: Lake, table: Table) -> int:
    return sum(1 for _ in Path(lake.uri, table.name).rglob("*.parquet"))


@on_both_stores
def test_a_table_nobody_wrote_is_empty_and_has_its_columns(lake: Lake) -> None:
    assert not lake.exists(TRANSFERS)
    names = [*TRANSFERS.names, "token_id_dec", "raw_dec"]
    assert lake.scan(TRANSFERS, chain="a").collect().to_dict(as_series=False) == {name: [] for name in names}
    assert (lake.files(TRANSFERS), lake.count(TRANSFERS), lake.chains(TRANSFERS)) == ([], 0, [])
    assert lake.window(TRANSFERS, "a", Span(0, 9)).num_rows == 0
    assert lake.last(TRANSFERS, "a/transfers") == -1
    assert lake.compact(TRANSFERS, "a").rows == 0
    lake.delete_span("a", Span(0, 2**62))
    assert not lake.exists(TRANSFERS)


@on_both_stores
def test_a_batch_is_written_once_however_often_it_is_appended(lake: Lake, make_rows: Maker) -> None:
    rows = make_rows(TRANSFERS, "a", range(5))
    assert lake.append(TRANSFERS, rows, stream="a/transfers", batch=7)
    assert not lake.append(TRANSFERS, rows, stream="a/transfers", batch=7)
    assert not Lake(lake.uri).append(TRANSFERS, rows, stream="a/transfers", batch=3)
    assert lake.append(TRANSFERS, make_rows(TRANSFERS, "b", range(5)), stream="b/transfers", batch=1)
    assert (lake.last(TRANSFERS, "a/transfers"), lake.last(TRANSFERS, "b/transfers")) == (7, 1)
    assert stored(lake, TRANSFERS, "a").equals(rows)
    assert (lake.count(TRANSFERS, "a"), lake.count(TRANSFERS)) == (10, 20)
    assert lake.chains(TRANSFERS) == ["a", "b"]


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_the_mark_of_a_batch_outlives_checkpoints(lake: Lake, make_rows: Maker) -> None:
    lake.append(BLOCKS, make_rows(BLOCKS, "b", [1]), stream="b/blocks", batch=4)
    for batch in range(101):
        lake.append(BLOCKS, make_rows(BLOCKS, "a", [batch]), stream="a/blocks", batch=batch)
    assert list(Path(lake.uri, "blocks", "_delta_log").glob("*.checkpoint.parquet"))
    fresh = Lake(lake.uri)
    assert (fresh.last(BLOCKS, "a/blocks"), fresh.last(BLOCKS, "b/blocks")) == (100, 4)
    assert fresh.count(BLOCKS, "a") == 202


@on_both_stores
def test_an_empty_batch_commits_nothing(lake: Lake, make_rows: Maker) -> None:
    no_rows = TRANSFERS.schema().empty_table()
    assert lake.append(TRANSFERS, no_rows, stream="s", batch=1)
    assert not lake.exists(TRANSFERS)
    lake.append(TRANSFERS, make_rows(TRANSFERS, "a", [1]), stream="s", batch=2)
    assert not lake.append(TRANSFERS, no_rows, stream="s", batch=2)
    assert lake.append(TRANSFERS, no_rows, stream="s", batch=3)
    assert lake.last(TRANSFERS, "s") == 2


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_engine_reads_every_table_to_the_last_bit(lake: Lake, make_rows: Maker, table: Table) -> None:
    import duckdb

    rows = make_rows(table, "a", range(40), per_block=5)
    lake.append(table, rows, stream="s", batch=1)
    lake.append(table, make_rows(table, "b", range(3)), stream="s", batch=2)
    polars = lake.scan(table, chain="a").collect()
    assert polars.columns[: len(table.names)] == table.names
    assert multiset(polars.select(table.names).to_arrow().cast(table.schema())) == multiset(rows)
    for name in (column.name for column in table.columns if column.type == "raw"):
        raws = [None if raw is None else int.from_bytes(raw, "big") for raw in polars[name]]
        fitting = [None if raw is None or raw > MAX_DEC38 else raw for raw in raws]
        assert polars[f"{name}_dec"].to_list() == fitting, "beside each raw stands its decimal, where it fits"
    assert multiset(stored(lake, table, "a")) == multiset(rows)
    with duckdb.connect() as connection:
        kinds = ", ".join(f"'{name}': {'VARCHAR' if name == 'chain' else 'INTEGER'}" for name in table.partitions)
        connection.execute("SET TimeZone = 'UTC'")
        duckdb_rows = connection.sql(
            f"SELECT {', '.join(table.names)} FROM read_parquet({lake.files(table, 'a')!r}, hive_types={{{kinds}}})"
        ).to_arrow_table()
        assert multiset(duckdb_rows.cast(table.schema())) == multiset(rows)


def test_files_are_laid_out_for_what_is_in_them(lake: Lake, make_rows: Maker) -> None:
    lake.append(TRANSFERS, make_rows(TRANSFERS, "a", range(50)), stream="s", batch=1)
    group = pq.ParquetFile(lake.files(TRANSFERS)[0]).metadata.row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    assert "chain" not in columns
    assert "DELTA_BYTE_ARRAY" in columns["raw"].encodings
    assert columns["raw"].statistics is columns["tx_hash"].statistics is None
    assert "DELTA_BINARY_PACKED" in columns["height"].encodings
    assert "RLE_DICTIONARY" in columns["sender"].encodings
    assert (columns["height"].statistics.min, columns["height"].statistics.max) == (0, 49)
    assert {column.compression for column in columns.values()} == {"ZSTD"}


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda rows: rows.drop(["item"]), "do not have the columns of transfers: column 5 is"),
        (lambda rows: rows.append_column("more", rows["item"]), "16 columns instead of 15"),
        (lambda rows: with_column(rows, "raw", [b"\0" * 31]), "raw: a raw has exactly 32 bytes"),
        (lambda rows: with_column(rows, "token_id", [b""]), "token_id: a raw has exactly 32 bytes"),
        (lambda rows: with_column(rows, "sender", [None]), "sender must be known in every row"),
    ],
)
def test_rows_that_are_not_the_tables_are_a_bug(lake: Lake, make_rows: Maker, spoil: Any, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        lake.append(TRANSFERS, spoil(make_rows(TRANSFERS, "a", [1], per_block=1)), stream="s", batch=1)
    assert not lake.exists(TRANSFERS)


def with_column(rows: pa.Table, name: str, values: list[Any]) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), pa.array(values, rows.schema.field(at).type))


@on_both_stores
def test_rows_lie_in_the_tables_order(lake: Lake, make_rows: Maker) -> None:
    rows = make_rows(LOGS, "a", range(20), per_block=3)
    backwards = rows.take(pa.array(range(rows.num_rows - 1, -1, -1)))
    lake.append(LOGS, make_rows(LOGS, "a", range(20, 30)), stream="s", batch=1)
    lake.append(LOGS, backwards, stream="s", batch=2)
    assert stored(lake, LOGS, "a").slice(0, 60).equals(rows)
    heights = stored(lake, LOGS, "a")["height"].to_pylist()
    assert heights == sorted([*rows["height"].to_pylist(), *range(20, 30), *range(20, 30)])


def test_the_history_of_an_account_is_read_from_its_bucket_alone(lake: Lake, make_rows: Maker) -> None:
    rows = make_rows(ACCOUNT_TRANSFERS, "a", range(100), per_block=3)
    lake.append(ACCOUNT_TRANSFERS, rows, stream="s", batch=1)
    lake.append(ACCOUNT_TRANSFERS, make_rows(ACCOUNT_TRANSFERS, "b", range(100)), stream="t", batch=1)
    account = rows["account"][0].as_py()
    for path in lake.files(ACCOUNT_TRANSFERS):
        if f"chain=a/bucket={bucket(account)}/" not in path:
            os.remove(path)
    frame = lake.of_accounts(ACCOUNT_TRANSFERS, "a", [account]).collect()
    history = frame.select(ACCOUNT_TRANSFERS.names).to_arrow().cast(ACCOUNT_TRANSFERS.schema())
    assert multiset(history) == multiset(rows.filter(pa.compute.equal(rows["account"], account)))
    assert frame.schema == lake.scan(ACCOUNT_TRANSFERS).collect_schema()
    assert lake.of_accounts(ACCOUNT_TRANSFERS, "z", [account]).collect().schema == frame.schema
    projected = lake.of_accounts(ACCOUNT_TRANSFERS, "a", [account], ("raw", "height", "chain")).collect()
    assert projected.equals(frame.select("raw", "height", "chain", "raw_dec"))
    assert lake.of_accounts(ACCOUNT_TRANSFERS, "z", [account]).collect().is_empty()


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_an_account_may_fill_many_row_groups_or_share_one(
    lake: Lake, make_rows: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    import polars as pl

    monkeypatch.setattr("chainfolio.storage.parquet.ACCOUNT_ROW_GROUP", 3)
    parts = [make_rows(ACCOUNT_TRANSFERS, "a", range(at, at + 40), per_block=3) for at in (0, 40)]
    for batch, rows in enumerate(parts):
        lake.append(ACCOUNT_TRANSFERS, rows, stream="s", batch=batch)
    all_rows = lake.scan(ACCOUNT_TRANSFERS, chain="a")
    accounts = set(parts[0]["account"].to_pylist())
    assert len(accounts) > 20
    for account in (*accounts, "", "0x", "0x' OR 1=1", "~"):
        plain = all_rows.filter(pl.col("account") == account).collect()
        assert lake.of_accounts(ACCOUNT_TRANSFERS, "a", [account]).collect().equals(plain), (
            "the same rows in the same order"
        )


def test_no_more_footers_are_kept_than_was_said(lake: Lake, make_rows: Maker) -> None:
    rows = make_rows(ACCOUNT_TRANSFERS, "a", range(100), per_block=3)
    lake.append(ACCOUNT_TRANSFERS, rows, stream="s", batch=1)
    folder = Folder(Path(lake.uri, "account_transfers"))
    paths = [str(Path(path).relative_to(folder.root)) for path in lake.files(ACCOUNT_TRANSFERS)]
    footer_bytes = memory_bytes(pq.read_metadata(folder.root / paths[0]))
    footers = Footers(limit=3 * footer_bytes)
    for path in paths * 2:
        assert footers.of(path, folder).num_rows == pq.read_metadata(folder.root / path).num_rows
        assert footers.size <= 3 * footer_bytes
    assert footers.of(paths[-1], folder) is footers.of(paths[-1], folder)


def test_who_looks_up_two_accounts_finds_the_footers_of_all_files_read(lake: Lake, make_rows: Maker) -> None:
    rows = make_rows(ACCOUNT_TRANSFERS, "a", range(100), per_block=3)
    lake.append(ACCOUNT_TRANSFERS, rows, stream="s", batch=1)
    accounts = sorted(set(rows["account"].to_pylist()), key=bucket)
    lake.of_accounts(ACCOUNT_TRANSFERS, "a", [accounts[0]])
    assert not [thread for thread in threading.enumerate() if thread.name == "footers"], "one is looked up by itself"
    lake.of_accounts(ACCOUNT_TRANSFERS, "a", [accounts[0]])
    for thread in threading.enumerate():
        if thread.name == "footers":
            thread.join()
    folder = Folder(Path(lake.uri, "account_transfers"))
    footers = [pq.read_metadata(path) for path in lake.files(ACCOUNT_TRANSFERS)]
    assert len(footers) > 1
    assert lake._footers.size == sum(map(memory_bytes, footers))
    path = Path(lake.files(ACCOUNT_TRANSFERS)[-1])
    path.unlink()  # what is kept is not read again
    assert lake._footers.of(str(path.relative_to(folder.root)), folder) == footers[-1]


def test_footers_of_replaced_files_are_dropped(lake: Lake, make_rows: Maker) -> None:
    rows = make_rows(ACCOUNT_TRANSFERS, "a", range(100), per_block=3)
    account = rows["account"][0].as_py()
    for batch in range(4):
        lake.append(ACCOUNT_TRANSFERS, rows, stream="s", batch=batch)
        lake.of_accounts(ACCOUNT_TRANSFERS, "a", [account])
    assert len(lake._footers._footers) >= 4
    lake.merge_crowded(ACCOUNT_TRANSFERS, "a", 3)
    assert len(lake.of_accounts(ACCOUNT_TRANSFERS, "a", [account]).collect()) > 0
    assert set(lake._footers._footers) <= {file.path for file in lake.entries(ACCOUNT_TRANSFERS)}


def test_a_footer_that_was_used_is_freed_when_it_is_dropped(lake: Lake, make_rows: Maker) -> None:
    rows = make_rows(ACCOUNT_TRANSFERS, "a", range(100), per_block=3)
    lake.append(ACCOUNT_TRANSFERS, rows, stream="s", batch=1)
    gc.disable()
    try:
        lake.of_accounts(ACCOUNT_TRANSFERS, "a", [rows["account"][0].as_py()])
        lake.scan(ACCOUNT_TRANSFERS, heights=[Span(0, 9)]).collect()
        footers = [weakref.ref(footer) for footer in lake._footers._footers.values()]
        lake._footers.drop(list(lake._footers._footers))
        assert [footer() for footer in footers] == [None] * len(footers) != []
    finally:
        gc.enable()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library does not count its heap")
def test_a_footer_takes_no_more_memory_than_is_counted(lake: Lake, make_rows: Maker) -> None:
    lake.append(BLOCKS, make_rows(BLOCKS, "a", range(3)), stream="s", batch=1)
    rows = make_rows(ACCOUNT_TRANSFERS, "a", range(2000), per_block=3)
    lake.append(ACCOUNT_TRANSFERS, rows, stream="s", batch=1)
    for table in (BLOCKS, ACCOUNT_TRANSFERS):
        path = lake.files(table)[0]
        program = (
            "import sys, ctypes, pyarrow.parquet as pq\n"
            "names = 'arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost'.split()\n"
            "class Info(ctypes.Structure): _fields_ = [(name, ctypes.c_size_t) for name in names]\n"
            "c = ctypes.CDLL(None); c.mallinfo2.restype = Info\n"
            "path = sys.argv[1]; first = pq.read_metadata(path); before = c.mallinfo2().uordblks\n"
            "kept = [pq.read_metadata(path) for _ in range(500)]\n"
            "print((c.mallinfo2().uordblks - before) / 500)"
        )
        pool = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
        command = [sys.executable, "-c", program, path]
        child_run = subprocess.run(command, env=pool, capture_output=True, text=True, check=True)
        assert 0.4 < float(child_run.stdout) / memory_bytes(pq.read_metadata(path)) < 1.2


@on_both_stores
def test_replacing_one_chain_leaves_the_others(lake: Lake, make_rows: Maker) -> None:
    unchanged, old, new = (
        make_rows(BLOCKS, "b", range(9)),
        make_rows(BLOCKS, "a", range(9)),
        make_rows(BLOCKS, "a", range(4, 7), seed=1),
    )
    for batch, rows in enumerate((unchanged, old)):
        lake.append(BLOCKS, rows, stream="s", batch=batch)
    frame = lake.scan(BLOCKS, chain="a")
    assert lake.replace(BLOCKS, "a", iter(new.to_batches()), stream="derive", batch=1)
    assert not lake.replace(BLOCKS, "a", old, stream="derive", batch=1)
    assert stored(lake, BLOCKS, "a").equals(new)
    assert stored(lake, BLOCKS, "b").equals(unchanged)
    assert frame.collect().height == old.num_rows, "who began to read before goes on reading what was there"
    lake.replace(BLOCKS, "a", [])
    assert (lake.count(BLOCKS, "a"), lake.count(BLOCKS, "b")) == (0, 18)


@on_both_stores
def test_replacing_one_bucket_leaves_the_others(lake: Lake, make_rows: Maker) -> None:
    rows = make_rows(ACCOUNT_TRANSFERS, "a", range(50))
    assert lake.replace(ACCOUNT_TRANSFERS, "a", rows)
    bucket_number = rows["bucket"][0].as_py()
    in_bucket = pa.compute.equal(rows["bucket"], bucket_number)
    lake.replace(ACCOUNT_TRANSFERS, "a", rows.filter(in_bucket).slice(0, 1), bucket=bucket_number)
    expected = [rows.filter(pa.compute.invert(in_bucket)), rows.filter(in_bucket).slice(0, 1)]
    assert multiset(stored(lake, ACCOUNT_TRANSFERS, "a")) == multiset(*expected)
    with pytest.raises(AssertionError, match="another chain or bucket"):
        lake.replace(ACCOUNT_TRANSFERS, "a", rows, bucket=bucket_number)
    with pytest.raises(AssertionError, match="another chain or bucket"):
        lake.replace(BLOCKS, "b", make_rows(BLOCKS, "a", [1]))


def test_an_error_of_who_makes_the_rows_leaves_everything_as_it_was(lake: Lake, make_rows: Maker) -> None:
    rows = make_rows(BLOCKS, "a", range(9))
    lake.append(BLOCKS, rows, stream="s", batch=1)

    def broken() -> Iterator[pa.RecordBatch]:
        yield from make_rows(BLOCKS, "a", [1]).to_batches()
        raise KeyError("a decoder's bug")

    with pytest.raises(KeyError, match="decoder"):
        lake.replace(BLOCKS, "a", broken())
    assert stored(lake, BLOCKS, "a").equals(rows)
    assert parquet_files(lake, BLOCKS) == 1


@on_both_stores
def test_a_table_of_another_revision_is_neither_read_nor_added_to(lake: Lake, make_rows: Maker) -> None:
    newer = replace(BLOCKS, revision=2)
    lake.append(BLOCKS, make_rows(BLOCKS, "a", [1]), stream="s", batch=5)
    for use in (
        lambda: lake.append(newer, make_rows(newer, "a", [2]), stream="s", batch=6),
        lambda: lake.scan(newer),
        lambda: lake.window(newer, "a", Span(0, 9)),
        lambda: lake.replace(newer, "a", []),
        lambda: Lake(lake.uri).count(newer),
    ):
        with pytest.raises(StaleTable, match="decoder revision 1, this release has 2"):
            use()


def test_compaction_keeps_every_row_and_the_order(lake: Lake, make_rows: Maker) -> None:
    parts = [make_rows(TRANSFERS, "a", range(at, at + 10)) for at in range(0, 200, 10)]
    for batch, rows in enumerate(parts):
        lake.append(TRANSFERS, rows, stream="a", batch=batch)
        lake.append(TRANSFERS, make_rows(TRANSFERS, "b", [batch]), stream="b", batch=batch)
    report = lake.compact(TRANSFERS, "a")
    assert (report.files_before, report.files_after, report.rows, report.deleted) == (20, 1, 400, 0)
    assert report.bytes_after < report.bytes_before
    assert stored(lake, TRANSFERS, "a").equals(pa.concat_tables(parts))
    assert len(lake.files(TRANSFERS, "b")) == 20
    assert lake.compact(TRANSFERS, "a").files_before == 1
    assert not lake.append(TRANSFERS, parts[0], stream="a", batch=19)


@on_both_stores
def test_compaction_of_filters_that_overlap_sorts_them(lake: Lake, make_rows: Maker) -> None:
    rows = make_rows(TRANSFERS, "a", range(50), per_block=4)
    at = rows["log_index"]
    for batch in range(4):
        lake.append(TRANSFERS, rows.filter(pa.compute.equal(at, batch)), stream="a", batch=batch)
    lake.compact(TRANSFERS, "a")
    assert stored(lake, TRANSFERS, "a").equals(rows)


@on_both_stores
def test_compaction_of_buckets_sorts_each_by_account(lake: Lake, make_rows: Maker) -> None:
    parts = [make_rows(ACCOUNT_TRANSFERS, "a", range(at, at + 20)) for at in range(0, 100, 20)]
    for batch, rows in enumerate(parts):
        lake.append(ACCOUNT_TRANSFERS, rows, stream="a", batch=batch)
    lake.compact(ACCOUNT_TRANSFERS, "a")
    after = stored(lake, ACCOUNT_TRANSFERS, "a")
    assert multiset(after) == multiset(*parts)
    assert len(lake.files(ACCOUNT_TRANSFERS)) == len(set(after["bucket"].to_pylist()))
    order = [(row["bucket"], row["account"], row["height"]) for row in after.to_pylist()]
    assert order == sorted(order)


def test_compaction_leaves_large_files_and_deletes_only_what_is_old_enough(lake: Lake, make_rows: Maker) -> None:
    lake.append(BLOCKS, make_rows(BLOCKS, "a", range(2000)), stream="a", batch=0)
    for batch in (1, 2, 3):
        lake.append(BLOCKS, make_rows(BLOCKS, "a", [2000 + batch]), stream="a", batch=batch)
    large = lake.files(BLOCKS)[0]
    frame = lake.scan(BLOCKS)
    assert lake.compact(BLOCKS, "a", small=os.path.getsize(large)).files_after == 2
    assert large in lake.files(BLOCKS)
    assert parquet_files(lake, BLOCKS) == 5
    assert frame.collect().height == 4006
    assert lake.compact(BLOCKS, "a", retention_hours=0).deleted >= 3
    assert parquet_files(lake, BLOCKS) == len(lake.files(BLOCKS)) == 1
    assert lake.count(BLOCKS) == 4006


def test_compaction_does_not_reach_over_a_large_file(lake: Lake, make_rows: Maker) -> None:
    for batch, span in enumerate((range(2), range(2, 4), range(4, 2000), range(2000, 2002), range(2002, 2004))):
        lake.append(BLOCKS, make_rows(BLOCKS, "a", span), stream="a", batch=batch)
    large = lake.files(BLOCKS)[2]
    assert lake.compact(BLOCKS, "a", small=os.path.getsize(large)).files_after == 3
    assert lake.files(BLOCKS)[1] == large
    heights = stored(lake, BLOCKS, "a")["height"].to_pylist()
    assert heights == sorted(heights)
    assert len(list(Path(lake.uri, "blocks", "_delta_log").glob("*.json"))) == 1 + 5 + 1, "two merges are one commit"


@on_both_stores
def test_rewinding_deletes_from_a_height_on_in_every_table_of_one_chain(lake: Lake, make_rows: Maker) -> None:
    tables = (BLOCKS, TRANSFERS, ACCOUNT_TRANSFERS)
    for table in tables:
        for batch, first in enumerate((0, 10, 20)):
            lake.append(table, make_rows(table, "a", range(first, first + 10)), stream="a", batch=batch)
        lake.append(table, make_rows(table, "b", range(30)), stream="b", batch=0)
    for _ in range(2):
        lake.delete_span("a", Span(15, 2**62))
        for table in tables:
            assert sorted(set(stored(lake, table, "a")["height"].to_pylist())) == list(range(15))
            assert lake.count(table) == 30 + 60
    assert stored(lake, TRANSFERS, "a").slice(0, 20).equals(make_rows(TRANSFERS, "a", range(10)))


def test_chains_are_written_side_by_side(lake: Lake, make_rows: Maker) -> None:
    lake.append(BLOCKS, make_rows(BLOCKS, "z", [0]), stream="z", batch=0)
    failures: list[BaseException] = []

    def index(chain: str) -> None:
        chain_lake = Lake(lake.uri)
        try:
            for batch in range(12):
                chain_lake.append(BLOCKS, make_rows(BLOCKS, chain, [batch]), stream=chain, batch=batch)
                if batch % 5 == 4:
                    chain_lake.replace(BLOCKS, chain, stored(chain_lake, BLOCKS, chain))
                    chain_lake.compact(BLOCKS, chain)
        except BaseException as error:  # carried over to the test, which a thread cannot fail
            failures.append(error)

    threads = [threading.Thread(target=index, args=(chain,)) for chain in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for chain in "abc":
        assert stored(lake, BLOCKS, chain)["height"].to_pylist() == [at for at in range(12) for _ in range(2)]


def test_a_full_disk_shows_nothing_half_written_and_work_goes_on(
    lake: Lake, make_rows: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.append(BLOCKS, make_rows(BLOCKS, "a", [1]), stream="s", batch=1)

    def full(self: Folder, path: str, source: object) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "create", full)
        with pytest.raises(StorageFull):
            lake.append(BLOCKS, make_rows(BLOCKS, "a", [2]), stream="s", batch=2)
    assert (lake.count(BLOCKS), parquet_files(lake, BLOCKS)) == (2, 1)
    assert lake.append(BLOCKS, make_rows(BLOCKS, "a", [2]), stream="s", batch=2)


@pytest.mark.parametrize("size", [0, 60, -1])
def test_a_log_entry_that_a_power_cut_tore_is_set_aside(lake: Lake, make_rows: Maker, size: int) -> None:
    for batch in range(3):
        lake.append(BLOCKS, make_rows(BLOCKS, "a", [batch]), stream="s", batch=batch)
    last = max(Path(lake.uri, "blocks", "_delta_log").glob("*.json"))
    last.write_bytes(b"\0" * 200 if size < 0 else last.read_bytes()[:size])
    fresh = Lake(lake.uri)
    assert fresh.append(BLOCKS, make_rows(BLOCKS, "a", [2]), stream="s", batch=2)
    assert stored(fresh, BLOCKS, "a")["height"].to_pylist() == [0, 0, 1, 1, 2, 2]


def test_a_damaged_table_is_named_in_one_sentence(lake: Lake, make_rows: Maker) -> None:
    lake.append(BLOCKS, make_rows(BLOCKS, "a", [1]), stream="s", batch=1)
    os.remove(lake.files(BLOCKS)[0])
    with pytest.raises(StoreError, match="lake: table blocks: ") as caught:
        lake.window(BLOCKS, "a", Span(0, 9))
    assert "\n" not in caught.value.message


@on_both_stores
def test_a_reader_sees_what_another_process_committed(lake: Lake, make_rows: Maker) -> None:
    reader = Lake(lake.uri)
    account = make_rows(ACCOUNT_TRANSFERS, "a", [0])["account"][0].as_py()
    for batch in range(3):
        lake.append(ACCOUNT_TRANSFERS, make_rows(ACCOUNT_TRANSFERS, "a", [0]), stream="s", batch=batch)
        assert reader.count(ACCOUNT_TRANSFERS) == 2 * (batch + 1)
        assert reader.of_accounts(ACCOUNT_TRANSFERS, "a", [account]).collect().height >= batch + 1


def test_opening_the_lake_and_the_tail_loads_no_engine() -> None:
    heavy = "{'polars', 'duckdb', 'sqlalchemy', 'alembic', 'pandas'}"
    code = f"import sys, storage.lake, storage.tail; print(sorted({heavy} & set(sys.modules)))"
    child_run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child_run.stdout.strip() == "[]"


def test_replaced_files_go_after_their_time_and_those_of_killed_writers_after_a_day(
    lake: Lake, make_rows: Maker
) -> None:
    for batch in range(10):
        lake.append(BLOCKS, make_rows(BLOCKS, "a", range(3 * batch, 3 * batch + 3)), stream="a", batch=batch)
    folder = Path(lake.uri) / BLOCKS.name
    orphan = next(folder.rglob("*.parquet")).with_name("left-by-a-killed-writer.parquet")
    orphan.write_bytes(b"PAR1")
    assert lake.merge_crowded(BLOCKS, "a", 8) == 10
    assert lake.merge_crowded(BLOCKS, "a", 8) == 0
    assert lake.delete_replaced(BLOCKS, 1) == 0
    assert lake.delete_replaced(BLOCKS, 0) == 10
    assert orphan.exists()
    day_ago = time.time() - 25 * 3600
    os.utime(orphan, (day_ago, day_ago))
    assert lake.delete_replaced(BLOCKS, 1) == 1
    assert not orphan.exists()
    assert lake.count(BLOCKS, "a") == 60


@pytest.mark.parametrize(
    ("sizes", "merged"),
    [
        ([1, 1, 1], []),
        ([1, 1, 1, 1], [[1, 1, 1, 1]]),
        ([50, 1, 1, 1], [[1, 1, 1]]),
        ([8, 1, 1, 1], [[8, 1, 1, 1]]),
        ([50, 9, 1, 1, 1], [[9, 1, 1, 1]]),
        ([60, 12, 3, 1, 1, 1], [[60, 12], [3, 1, 1, 1]]),
        ([60, 59, 58, 1, 1], [[60, 59]]),
        ([60, 3, 1], []),
        ([60, 3, 1, 1], [[60, 3, 1]]),
        ([100, 1, 1, 1, 1], [[1, 1, 1, 1]]),
    ],
)
def test_small_neighbours_are_merged_without_much_larger_ones(sizes: list[int], merged: list[list[int]]) -> None:
    files = [LakeFile(f"{at}", size, 1, "a", 0, at, at) for at, size in enumerate(sizes)]
    assert [[file.size for file in run] for run in crowded(files, 64, 3)] == merged


def test_files_that_fill_large_ones_are_merged_without_a_change_of_rows(
    lake: Lake, make_rows: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chainfolio.storage.lake.SMALL_BYTES", 30_000)
    parts, merged = list[pa.Table](), 0
    for batch in range(40):
        parts.append(make_rows(BLOCKS, "a", range(50 * batch, 50 * batch + 50)))
        lake.append(BLOCKS, parts[-1], stream="s", batch=batch)
        merged += lake.merge_crowded(BLOCKS, "a", 3)
    sizes = [file.size for file in lake.entries(BLOCKS)]
    assert merged > 20
    assert [size for size in sizes[:-3] if size < 30_000] == [] != sizes[:-3], "only the newest three are small"
    assert multiset(stored(lake, BLOCKS, "a")) == multiset(*parts)


@pytest.mark.parametrize("seed", range(5))
def test_the_files_of_an_account_are_its_bytes_by_the_size_of_a_large_file_and_three(seed: int) -> None:
    chance, files, total = random.Random(seed), list[LakeFile](), 0
    for at in range(3000):
        files.append(LakeFile(f"{at}", chance.randint(1, 2**seed), 1, "a", 0, at, at))
        total += files[-1].size
        while runs := list(crowded(files, 64, 3)):
            for run in runs:
                size, start = sum(file.size for file in run), files.index(run[0])
                merged = LakeFile(run[0].path, size, len(run), "a", 0, run[0].first, run[-1].last)
                files[start : start + len(run)] = [merged]
        assert len(files) <= total // 64 + 3


@on_both_stores
def test_a_batch_that_two_processes_write_at_the_same_moment_is_stored_once(
    lake: Lake, make_rows: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first writer lost its lock after it had checked for the batch."""
    second_lake, commit = Lake(lake.uri), lake._commit
    lake.append(TRANSFERS, make_rows(TRANSFERS, "a", range(3)), stream="a/x", batch=1)
    second_rows = make_rows(TRANSFERS, "a", range(3, 6))

    def late(*arguments: Any, **options: Any) -> bool:
        assert second_lake.append(TRANSFERS, second_rows, stream="a/x", batch=2)
        second_lake.append(TRANSFERS, make_rows(TRANSFERS, "b", range(2)), stream="b/x", batch=7)
        return commit(*arguments, **options)

    monkeypatch.setattr(lake, "_commit", late)
    assert not lake.append(TRANSFERS, second_rows, stream="a/x", batch=2)
    assert sorted(set(stored(lake, TRANSFERS, "a")["height"].to_pylist())) == list(range(6))
    assert len(stored(lake, TRANSFERS, "a")) == 12
