"""Rows of accounts equal those of one frame with all rows, also while rows move between stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import chainfolio.adapters.evm.datasets.internal  # noqa: F401  # raises the recursion limit, which Hypothesis checks
from chainfolio.blocks import Block, Span, Spans
from chainfolio.engine.rows import ChainIndex, rows_at, rows_of
from chainfolio.engine.transactions.activities import missing
from chainfolio.errors import NotFound
from chainfolio.indexer import arrow_ipc
from chainfolio.indexer.materialise import HISTORIES, in_schema, materialise, of_events
from chainfolio.portfolio.ledger import by_account
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail, TailBlock
from chainfolio.table import Table
from chainfolio.tables import ACCOUNT_APPROVALS, ACCOUNT_EVENTS, ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS, TRANSFERS
from tests.portfolio.test_ledger import frame

CHAIN = "a"
HEIGHTS = 6
ACCOUNTS = [f"0x{n:040x}" for n in (2**96, 2**97, 2**98, 2**99)]
TOPICS = [f"0x{account[2:]:0>64}" for account in ACCOUNTS]
CONTRACTS, TOPIC0 = [f"0x{n:040x}" for n in (7, 8)], "0x" + "ab" * 32
EVENTS = [f"{contract}/{TOPIC0}" for contract in CONTRACTS]
someone, somewhere = st.sampled_from(ACCOUNTS), {"height": st.integers(0, HEIGHTS - 1), "tx_index": st.integers(0, 2)}
SOURCES: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "transfers": st.fixed_dictionaries(
        {
            **somewhere,
            "sender": someone,
            "recipient": someone,
            "raw": st.integers(0, 3),
            "standard": st.sampled_from(["erc20", "native", "internal", "erc1155"]),
        }
    ),
    "approvals": st.fixed_dictionaries({**somewhere, "owner": someone, "spender": someone, "raw": st.integers(0, 3)}),
    "transactions": st.fixed_dictionaries(
        {
            **somewhere,
            "sender": someone,
            "recipient": st.one_of(st.none(), someone),
            "created": st.one_of(st.none(), someone),
            "raw": st.just(0),
            "gas_price": st.just(0),
            "fee": st.integers(0, 3),
            "input": st.binary(max_size=6),
        }
    ),
    "logs": st.fixed_dictionaries(
        {
            **somewhere,
            "address": st.sampled_from(CONTRACTS),
            "topic0": st.just(TOPIC0),
            **{f"topic{n}": st.one_of(st.none(), st.sampled_from(TOPICS)) for n in (1, 2, 3)},
        }
    ),
}


HISTORY_TABLES = (ACCOUNT_TRANSFERS, ACCOUNT_APPROVALS, ACCOUNT_TRANSACTIONS, ACCOUNT_EVENTS)


KEY = [name for name in ACCOUNT_APPROVALS.key if name != "chain"]


class StoredBlocks:
    """Blocks on their way from the tail over the lake into the histories of accounts."""

    def __init__(self, folder: Path, history: Table, rows: Sequence[dict[str, Any]]) -> None:
        self.lake, self.tail = Lake(str(folder / "lake")), Tail(folder / "tail.db")
        self.history, self.source = history, HISTORIES[history.name].source
        numbered = [{"chain": CHAIN, **row} for row in rows]
        if "log_index" not in self.source.key:
            numbered = [{**row, "tx_index": number} for number, row in enumerate(numbered)]
        self.rows = frame(self.source, numbered)
        self.appended = self.dropped = 0
        blocks = [Block(height, f"0x{height}", f"0x{height - 1}", height) for height in range(HEIGHTS)]
        self.tail.put(CHAIN, [TailBlock(block, self._streams(block.height)) for block in blocks])
        for dataset in HISTORIES[history.name].datasets:
            for filter_ in EVENTS if history is ACCOUNT_EVENTS else [""]:
                self.tail.add_ranges(CHAIN, [(dataset, filter_)], Span(0, HEIGHTS - 1))

    def _rows(self, first: int, last: int) -> pa.Table:
        return in_schema(self.rows.filter(pl.col("height").is_between(first, last)), self.source)

    def _streams(self, height: int) -> dict[str, bytes]:
        rows = self._rows(height, height)
        return {self.source.name: arrow_ipc.dump(rows)} if rows.num_rows else {}

    def step(self, action: str) -> None:
        """Move rows on by one action.

        "append" copies the next block into the lake, "drop" deletes it from the tail, "move" does both for all blocks,
        and "materialise" copies rows of the lake into the histories.
        """
        if action == "append":
            self._append(min(self.appended, HEIGHTS - 1))
        elif action == "drop":
            self._drop(min(self.dropped, self.appended - 1))
        elif action == "move":
            self._append(HEIGHTS - 1)
            self._drop(HEIGHTS - 1)
        elif action == "materialise":
            materialise(self.lake, self.tail, CHAIN, (self.history.name,))

    def _append(self, last: int) -> None:
        self.lake.append(self.source, self._rows(self.appended, last), stream="test", batch=last)
        self.appended = last + 1

    def _drop(self, last: int) -> None:
        self.tail.drop(CHAIN, last)
        self.dropped = last + 1

    def moving(self, steps: Sequence[str]) -> tuple[Any, Any]:
        """The lake and the tail, with a step before each time that one of them is read."""
        pending = iter(steps)

        def step() -> None:
            self.step(next(pending, "stay"))

        return ShiftingStore(self.lake, step), ShiftingStore(self.tail, step)

    def all_of(self, accounts: Sequence[str], span: Span, condition: pl.Expr) -> pl.DataFrame:
        """Return the expected rows of some accounts, from the frame of all rows."""
        matching = by_account(self.history, self.rows.lazy().filter(condition)).filter(
            pl.col("account").is_in(accounts)
        )
        return matching.filter(pl.col("height").is_between(span.first, span.last)).collect()


class ShiftingStore:
    """A store under which rows move on before each read."""

    def __init__(self, store: Lake | Tail, step: Callable[[], None]) -> None:
        self._store, self._step = store, step

    def __getattr__(self, name: str) -> Any:
        self._step()
        return getattr(self._store, name)


@contextmanager
def stored_blocks(history: Table, rows: Sequence[dict[str, Any]], steps: Sequence[str] = ()) -> Iterator[StoredBlocks]:
    """Blocks that have come so far as some steps take them."""
    with TemporaryDirectory() as folder:
        blocks = StoredBlocks(Path(folder), history, rows)
        try:
            for step in steps:
                blocks.step(step)
            yield blocks
        finally:
            blocks.tail.close()


steps = st.lists(st.sampled_from(["append", "drop", "move", "materialise", "stay"]), max_size=20)
several_accounts = st.lists(someone, min_size=1, max_size=3, unique=True)
spans = st.tuples(st.integers(0, HEIGHTS - 1), st.integers(0, HEIGHTS - 1)).map(lambda pair: Span(min(pair), max(pair)))
WHERE: dict[str, pl.Expr] = {
    "account_transfers": pl.col("standard") != "native",
    "account_approvals": pl.col("raw") != bytes(32),
    "account_transactions": pl.col("sender").is_in(ACCOUNTS[:2]),
    "account_events": of_events(EVENTS[:1]),
}


@pytest.mark.slow("the same reads of another history", fast=["account_transfers"])
@pytest.mark.parametrize("history", HISTORY_TABLES, ids=lambda table: table.name)
def test_rows_of_accounts_are_all_rows_of_them_while_rows_move_on(history: Table) -> None:
    @settings(max_examples=15, deadline=None)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        rows = data.draw(st.lists(SOURCES[HISTORIES[history.name].source.name], min_size=5, max_size=25), "rows")
        before, meanwhile = data.draw(steps, "before"), data.draw(steps, "meanwhile")
        accounts, span = data.draw(several_accounts, "accounts"), data.draw(spans, "span")
        condition = WHERE[history.name] if data.draw(st.booleans(), "chosen") else pl.lit(True)
        columns = [name for name in history.names if name not in ("chain", "bucket")]
        with stored_blocks(history, rows, before) as blocks:
            index = ChainIndex(*blocks.moving(meanwhile), CHAIN)
            read_rows = rows_of(index, history, accounts, columns, span=span, where=condition)
            expected = blocks.all_of(accounts, span, condition).select(columns)
            assert_frame_equal(read_rows.sort(columns), expected.sort(columns))
            distinct = rows_of(index, history, accounts, ("account", pl.col("height") % 2), span=span, where=condition)
            pairs = expected.select("account", pl.col("height") % 2).unique()
            assert_frame_equal(distinct.sort(pl.all()), pairs.sort(pl.all()))

    holds()


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_no_row_is_missed_whenever_it_moves_on() -> None:
    rows = [{"height": height, "owner": ACCOUNTS[0], "raw": 1} for height in range(HEIGHTS)]
    for before in range(12):
        for between in (0, 2):
            steps = [*["stay"] * before, "move", *["stay"] * between, "materialise"]
            for start in ((), ("move",)):
                with stored_blocks(ACCOUNT_APPROVALS, rows, start) as blocks:
                    index = ChainIndex(*blocks.moving(steps), CHAIN)
                    read_rows = rows_of(index, ACCOUNT_APPROVALS, ACCOUNTS[:1], KEY)
                    assert sorted(read_rows["height"]) == list(range(HEIGHTS)), (start, steps)


@settings(max_examples=15, deadline=None)
@given(st.lists(SOURCES["transfers"], max_size=25), steps, steps, st.sets(st.integers(0, HEIGHTS - 1)))
def test_rows_at_heights_are_all_rows_there_while_rows_move_on(
    rows: list[dict[str, Any]], before: list[str], meanwhile: list[str], heights: set[int]
) -> None:
    with stored_blocks(ACCOUNT_TRANSFERS, rows, before) as blocks:
        parts = list(rows_at(*blocks.moving(meanwhile), CHAIN, TRANSFERS, heights, TRANSFERS.names))
        read_rows = pl.concat([blocks.rows.clear(), *parts])
        expected = blocks.rows.filter(pl.col("height").is_in(heights))
        assert_frame_equal(read_rows.sort(TRANSFERS.key), expected.sort(TRANSFERS.key))


@pytest.mark.parametrize("steps", [(), ("append", "drop"), ("append", "drop", "materialise")])
def test_who_has_more_transactions_than_are_served_is_refused_wherever_they_lie(steps: Sequence[str]) -> None:
    rows = [
        {"height": 0, "tx_index": number // 2, "sender": ACCOUNTS[0], "recipient": ACCOUNTS[1], "raw": 1}
        for number in range(6)
    ]
    with stored_blocks(ACCOUNT_TRANSFERS, rows, steps) as blocks:
        index = ChainIndex(blocks.lake, blocks.tail, CHAIN)
        served = rows_of(index, ACCOUNT_TRANSFERS, ACCOUNTS[:1], ("log_index",), max_transactions=3)
        assert served.height == len(rows), "three transactions of two transfers each"
        with pytest.raises(NotFound, match="more than 2 transactions"):
            rows_of(index, ACCOUNT_TRANSFERS, ACCOUNTS[:1], ("log_index",), max_transactions=2)


def test_a_young_chain_that_nobody_indexed_is_behind_though_its_head_is_near(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "tail.db")
    assert missing(tail, "local", ["0xa"], ["transfers"], 10, 64) == (Spans(), Spans([Span(0, 10)]))
    tail.close()
