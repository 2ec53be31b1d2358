"""Rows of accounts that are read often come from memory if their files did not change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from chainfolio.blocks import Block, Span
from chainfolio.engine.rows import EVERYWHERE, ChainIndex, in_tail, rows_of
from chainfolio.indexer import arrow_ipc
from chainfolio.indexer.materialise import HISTORIES
from chainfolio.storage import history as history_files
from chainfolio.storage import parquet
from chainfolio.storage.decoded_rows import DecodedRows
from chainfolio.storage.kept_rows import MAX_TOGETHER, KeptRows
from chainfolio.storage.tail import TailBlock
from chainfolio.table import Table
from chainfolio.tables import ACCOUNT_APPROVALS, ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS, TRANSFERS
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import index
from tests.engine.test_rows import ACCOUNTS, CHAIN, HEIGHTS, HISTORY_TABLES, SOURCES, spans, stored_blocks
from tests.engine.test_together import everywhere

moves = st.lists(st.sampled_from(["append", "drop", "move", "materialise", "merge", "rewind"]), max_size=8)
NOTHING: list[Any] = []


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often each file of the lake is opened for its rows."""
    counts: Counter[str] = Counter()
    open_file = parquet.open_file

    def counting_open(folder: Any, path: str, *args: Any) -> Any:
        counts[f"{Path(str(folder.root)).name}/{path}"] += 1
        return open_file(folder, path, *args)

    for module in (parquet, history_files):
        monkeypatch.setattr(module, "open_file", counting_open)
    return counts


@pytest.mark.slow("the same reads of another history", fast=["account_transfers"])
@pytest.mark.parametrize("table", HISTORY_TABLES, ids=lambda table: table.name)
def test_repeated_reads_give_all_rows_wherever_they_move_between(table: Table) -> None:
    columns = [name for name in table.names if name not in ("chain", "bucket")]

    @settings(max_examples=10, deadline=None)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        rows = data.draw(st.lists(SOURCES[HISTORIES[table.name].source.name], min_size=5, max_size=25), "rows")
        with stored_blocks(table, rows) as blocks:
            stores = ChainIndex(blocks.lake, blocks.tail, CHAIN)
            for move in [*data.draw(moves, "moves"), "stay", "stay"]:
                if move == "merge":
                    for each in (table, blocks.source):
                        if blocks.lake.exists(each):
                            blocks.lake.merge_crowded(each, CHAIN, 1)
                elif move == "rewind":
                    rewind(blocks)
                else:
                    blocks.step(move)
                for accounts in (ACCOUNTS[:1], ACCOUNTS[1:3], ACCOUNTS[:1]):
                    span = data.draw(spans, "span")
                    row_frame = rows_of(stores, table, accounts, columns, span=span)
                    expected = blocks.all_of(accounts, span, pl.lit(True)).select(columns)
                    assert_frame_equal(row_frame.sort(columns), expected.sort(columns))

    holds()


def rewind(blocks: Any) -> None:
    """Delete the blocks above the middle from all places."""
    blocks.lake.delete_span(CHAIN, Span(HEIGHTS // 2 + 1, HEIGHTS), (blocks.history, blocks.source))
    blocks.tail.rewind(CHAIN, HEIGHTS // 2, None)
    blocks.rows = blocks.rows.filter(pl.col("height") <= HEIGHTS // 2)


def test_an_account_that_is_read_often_costs_only_new_files(openings: Counter[str]) -> None:
    rows = [{"height": height, "owner": ACCOUNTS[0], "raw": 1} for height in range(HEIGHTS)]
    with stored_blocks(
        ACCOUNT_APPROVALS, rows, ("append", "append", "drop", "materialise", "append", "drop")
    ) as blocks:
        stores = ChainIndex(blocks.lake, blocks.tail, CHAIN)

        def read(max_transactions: int | None = None) -> int:
            openings.clear()
            rows = rows_of(stores, ACCOUNT_APPROVALS, ACCOUNTS[:1], ("height",), max_transactions=max_transactions)
            assert rows.height == HEIGHTS
            return openings.total()

        assert (read(), read(), read(), read()) == (2, 2, 0, 0)
        assert read(max_transactions=100) == 0  # as pages of transactions and gains read them
        blocks.step("append")
        blocks.step("drop")
        assert (read(), read()) == (1, 0)
        blocks.step("materialise")
        assert (read(), read()) == (1, 0)


def table_of(count: int) -> pa.Table:
    return pa.table({"height": np.arange(count)})


def test_kept_rows_stay_within_their_bounds_and_drop_the_least_used() -> None:
    cache = KeptRows(max_rows=1000, max_bytes=10**6, max_recent=50)
    for number in range(100):
        cache.put(number, table_of(50))
        assert cache.get(0) is not None  # used each time
        assert cache.row_count <= 1000
    assert cache.row_count == 1000
    assert cache.get(1) is None
    assert cache.get(99) is not None
    cache.put("large", table_of(101))
    assert cache.get("large") is None
    for number in range(200):
        cache.put(("empty", number), table_of(0))
    assert cache.row_count == 1000
    assert cache.byte_count <= 10**6
    byte_bounded = KeptRows(max_bytes=8 * 100)
    for number in range(100):
        byte_bounded.put(number, table_of(10))
        assert byte_bounded.byte_count <= 800
    assert byte_bounded.row_count == 100
    for number in range(500):
        cache.often_read("table", [number])
    assert cache.recent_count == 50


def test_kept_rows_do_not_hold_the_buffers_from_which_they_were_cut() -> None:
    cache = KeptRows()
    cache.put(1, table_of(10_000).slice(5, 10))
    assert cache.byte_count == 80


def test_an_account_is_read_often_from_its_second_read_on_and_not_by_jobs_over_all() -> None:
    cache = KeptRows()
    assert cache.often_read("table", ["a"]) == set()
    assert cache.often_read("other", ["a"]) == set()
    assert cache.often_read("table", ["a", "b"]) == {"a"}
    accounts = [str(number) for number in range(MAX_TOGETHER + 1)]
    assert cache.often_read("table", accounts) == cache.often_read("table", accounts) == set()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=3))))))
def test_decoded_rows_are_those_of_the_streams(reads: list[tuple[int, list[tuple[int, bytes]]]]) -> None:
    decoded, stream_by_height = DecodedRows(), dict[int, bytes]()

    def decode(streams: Any) -> tuple[pl.DataFrame, list[int]]:
        frame = pl.DataFrame({"byte": list(b"".join(streams))}, schema={"byte": pl.Int64})
        return frame, [len(stream) for stream in streams]

    for first, changes in reads:
        stream_by_height = {height: stream for height, stream in (stream_by_height | dict(changes)).items() if stream}
        streams = sorted((height, stream) for height, stream in stream_by_height.items() if height >= first)
        rows = decoded.of("table", streams, decode)
        expected = [byte for _, stream in streams for byte in stream]
        assert (NOTHING if rows is None else rows["byte"].to_list()) == expected


def test_decoded_rows_stay_within_their_bound() -> None:
    decoded = DecodedRows(max_bytes=100)

    def decode(streams: Any) -> tuple[pl.DataFrame, list[int]]:
        return pl.DataFrame({"byte": list(b"".join(streams))}), [len(stream) for stream in streams]

    for size in range(1, 60):
        for table in ("one", "other"):
            rows = decoded.of(table, [(1, b"a" * size), (2, b"b" * size)], decode)
            assert rows is not None
            assert rows.height == 2 * size
        assert decoded.byte_count <= 100


def test_only_new_blocks_of_the_tail_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []
    load = arrow_ipc.load_counted

    def counting_load(streams: Any, table: Table) -> tuple[pa.Table, list[int]]:
        loads.append(len(streams))
        return load(streams, table)

    monkeypatch.setattr(arrow_ipc, "load_counted", counting_load)
    row = {"sender": ACCOUNTS[0], "recipient": ACCOUNTS[1], "raw": 1, "standard": "erc20"}
    rows = [{"height": height, **row} for height in range(HEIGHTS)]
    with stored_blocks(ACCOUNT_TRANSFERS, rows) as blocks:

        def read(span: Span = EVERYWHERE) -> int:
            loads.clear()
            in_tail(blocks.tail, CHAIN, TRANSFERS, span)
            return sum(loads)

        assert (read(), read(), read(Span(2, 4))) == (HEIGHTS, 0, 0)
        blocks.tail.rollback(CHAIN, HEIGHTS - 2)
        replaced_rows = [row | {"height": HEIGHTS - 1, "recipient": ACCOUNTS[2]} for row in rows[:1]]
        with stored_blocks(ACCOUNT_TRANSFERS, replaced_rows) as elsewhere:
            (stream,) = [each for _, each in elsewhere.tail.rows(CHAIN, TRANSFERS.name, 0, HEIGHTS)]
        block = Block(HEIGHTS - 1, "0xother", f"0x{HEIGHTS - 2}", HEIGHTS)
        blocks.tail.put(CHAIN, [TailBlock(block, {TRANSFERS.name: stream})])
        assert (read(), read()) == (1, 0)
        assert in_tail(blocks.tail, CHAIN, TRANSFERS)["recipient"].to_list()[-1] == ACCOUNTS[2]
        blocks.tail.drop(CHAIN, 1)
        assert read() == 0
        assert in_tail(blocks.tail, CHAIN, TRANSFERS)["height"].to_list() == list(range(2, HEIGHTS))


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(12) as chain:
        chain.mine(20)
        yield chain


@pytest.mark.node
async def test_a_snapshot_opens_each_file_of_its_accounts_once_and_then_never(
    subject: EvmSubject, tmp_path: Path, openings: Counter[str]
) -> None:
    accounts = sorted({account.lower() for account in subject.accounts})
    names = (ACCOUNT_TRANSFERS.name, ACCOUNT_TRANSACTIONS.name)
    async with index(subject, tmp_path) as indexed:
        await everywhere(indexed)
        block = await indexed.chain.block(subject.height)

        async def opened(owners: list[str]) -> list[int]:
            openings.clear()
            await indexed.snapshot(owners, block)
            return [count for path, count in openings.items() if path.startswith(names)]

        for group in (accounts, accounts[:3]):
            counts = await opened(group)
            assert counts
            assert max(counts) == 1
        assert await opened(accounts[:3]) == []
