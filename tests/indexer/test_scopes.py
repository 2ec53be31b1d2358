"""Accounts as a scope of indexing: on a ledger in memory, whose rows a plain reading knows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainfolio.blocks import Span, Spans
from chainfolio.budgets import Budget
from chainfolio.chain_results import SpanTables, UnexplainedChange
from chainfolio.errors import OverBudget
from chainfolio.indexer.materialise import rebuilt_history
from chainfolio.indexer.rewind import rewind
from chainfolio.indexer.scopes import indexed_for, missing_by_account
from chainfolio.tables import ACCOUNT_TRANSFERS
from tests.chains.index import IndexOf, in_order, index
from tests.chains.invented.chainfolio_invented.chain import HEIGHTS, InventedChain
from tests.chains.invented.chainfolio_invented.ledger import ACCOUNTS, TOKENS
from tests.chains.invented_subject import KEY, InventedSubject
from tests.chains.subject import FINALITY, Row
from tests.indexer.dying import Died, Fuse, mortal

BLOCKS = 160
LAST = BLOCKS - FINALITY
A, B, C = ACCOUNTS[:3]
SUBJECT = InventedSubject(BLOCKS)
DATASETS = ("native", "transfers")
Invented = IndexOf[InventedChain]

spans = st.tuples(st.integers(0, LAST), st.integers(0, LAST)).map(lambda pair: Span(min(pair), max(pair)))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("whole"), spans, st.sets(st.sampled_from(DATASETS), min_size=1)),
        st.tuples(st.just("contracts"), spans, st.sets(st.sampled_from(list(TOKENS)), min_size=1)),
        st.tuples(st.just("accounts"), spans, st.sets(st.sampled_from(ACCOUNTS), min_size=1)),
        st.tuples(st.just("rewind"), spans, st.just(set[str]())),
        st.tuples(st.just("materialise"), spans, st.just(set[str]())),
    ),
    min_size=1,
    max_size=6,
)


def plain(subject: InventedSubject, indexed: Invented) -> list[Row]:
    """Return the expected rows, by the indexed ranges and a plain reading of the ledger, row by row."""
    ranges = {name: indexed.tail.ranges_by_filter(KEY, name) for name in DATASETS}

    def is_indexed(row: Row) -> bool:
        ranges_by_filter = ranges["transfers" if row["token"] else "native"]
        filters = ("", row["token"], *(f"account:{row[side]}" for side in ("sender", "recipient")))
        return any(row["height"] in ranges_by_filter.get(each, Spans()) for each in filters)

    return in_order([row for row in subject.rows(Span(0, subject.height))["transfers"] if is_indexed(row)])


def by_account(rows: Sequence[Row]) -> list[tuple[object, ...]]:
    """Transfers once for each side, as keys of `account_transfers`."""
    position = ("height", "tx_index", "item")
    sides = [
        (row[side], direction, *(row[name] for name in position))
        for row in rows
        for side, direction in (("sender", "out"), ("recipient", "in"))
    ]
    return sorted(sides)


def history(indexed: Invented) -> list[tuple[object, ...]]:
    rows = indexed.stored("account_transfers").to_pylist()
    return sorted(tuple(row[name] for name in ("account", "direction", "height", "tx_index", "item")) for row in rows)


async def take(indexed: Invented, step: tuple[str, Span, set[str]]) -> None:
    kind, span, names = step
    if kind == "whole":
        await indexed.fill(span.first, span.last, sorted(names))
    elif kind == "contracts":
        await indexed.fill(span.first, span.last, ("transfers",), sorted(names))
    elif kind == "accounts":
        await indexed.fill_accounts(sorted(names), span.first, span.last)
    elif kind == "rewind":
        rewind(indexed.lake, indexed.tail, KEY, span.last)
    else:
        await indexed.materialise()


@pytest.mark.slow("takes seconds, and faster tests take its branches")
@settings(max_examples=10)
@given(steps)
def test_in_whatever_order_a_chain_contracts_and_accounts_are_indexed_every_row_is_stored_once(
    steps: list[tuple[str, Span, set[str]]],
) -> None:
    async def run(folder: Path) -> None:
        async with index(SUBJECT, folder, datasets=DATASETS) as indexed:
            for step in steps:
                await take(indexed, step)
                assert indexed.rows("transfers") == plain(SUBJECT, indexed), step
            await indexed.materialise()
            assert history(indexed) == by_account(plain(SUBJECT, indexed))

    with TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


async def whole_histories(indexed: Invented, subject: InventedSubject) -> None:
    """Check that the expected rows are stored once, in the lake, the tail and the histories."""
    assert indexed.rows("transfers") == plain(subject, indexed)
    await indexed.materialise()
    stored = in_order(indexed.stored("transfers").to_pylist())
    assert history(indexed) == by_account(stored)
    batches = rebuilt_history(indexed.lake, indexed.tail, KEY, "account_transfers")
    rebuilt = pa.Table.from_batches(batches, ACCOUNT_TRANSFERS.schema()).to_pylist()
    assert in_order(rebuilt) == in_order(indexed.stored("account_transfers").to_pylist()), "a migration makes the same"
    assert indexed.tail.open_batches(KEY) == []


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow("dies at more moments of the same run"))])
async def test_accounts_that_are_killed_at_any_write_lose_and_double_nothing(tmp_path: Path, every: int) -> None:
    """Over a contract and a part of everything, so that rows are looked up on the way."""
    write_number, ended = 0, False
    while not ended:
        folder = tmp_path / str(write_number)
        async with index(SUBJECT, folder, datasets=DATASETS) as indexed:
            await indexed.fill(30, 50, ("transfers",), [next(iter(TOKENS))])
            await indexed.fill_accounts([C], 0, 60)
            fuse = Fuse(write_number)
            for store in (indexed.lake, indexed.tail):
                mortal(store, fuse)
            with suppress(Died):
                await indexed.fill_accounts([A, B], 0, LAST)
                ended = True
            fuse.writes_left = -1
        async with index(SUBJECT, folder, datasets=DATASETS) as indexed:
            await indexed.fill_accounts([A, B], 0, LAST)
            await whole_histories(indexed, SUBJECT)
            for name in DATASETS:
                assert indexed_for(indexed.tail, KEY, name, A) == Spans([Span(0, LAST)])
        write_number += every
    assert write_number > 8, "there was something to die at"


async def test_an_account_that_is_added_is_read_alone_and_what_is_indexed_is_not_read_again(tmp_path: Path) -> None:
    subject = InventedSubject(BLOCKS)
    async with index(subject, tmp_path, datasets=DATASETS) as indexed:
        await indexed.fill_accounts([A], 0, LAST)
        assert list(missing_by_account(indexed.tail, KEY, ("native",), {A: Span(0, LAST), B: Span(0, LAST)})) == [
            (Spans([Span(0, LAST)]), (B,))
        ]
        account_lists: list[list[str]] = []
        usual = indexed.chain.collect_accounts

        async def spied(span: Span, accounts: Sequence[str], *more: Any, **named: Any) -> SpanTables:
            account_lists.append(sorted(accounts))
            return await usual(span, accounts, *more, **named)

        indexed.chain.collect_accounts = spied  # type: ignore[method-assign]
        await indexed.fill_accounts([A, B], 0, LAST)
        assert account_lists == [[B]] * (2 * -(-(LAST + 1) // HEIGHTS)), "each group once, in pieces"
        account_lists.clear()
        await indexed.fill_accounts([A, B], 0, LAST)
        assert account_lists == []
        await indexed.fill_accounts([A, B, C], 0, LAST)
        assert {tuple(each) for each in account_lists} == {(C,)}
        await whole_histories(indexed, subject)


async def test_a_budget_ends_the_work_and_the_next_run_goes_on_where_it_ended(tmp_path: Path) -> None:
    async with index(SUBJECT, tmp_path, datasets=DATASETS) as indexed:
        spent = 0
        with pytest.raises(OverBudget, match="the budget of 2 requests"):
            await indexed.fill_accounts([A], 0, LAST, Budget(max_requests=2))
        indexed_spans = indexed_for(indexed.tail, KEY, "transfers", A)
        assert indexed_spans == Spans([Span(0, 2 * HEIGHTS - 1)]), "what was paid for is kept"
        while True:
            budget = Budget(max_requests=2)
            try:
                await indexed.fill_accounts([A], 0, LAST, budget)
                break
            except OverBudget:
                spent += budget.requests
        assert spent + budget.requests == 2 * -(-(LAST + 1) // HEIGHTS) - 2, "nothing was asked for twice"
        await whole_histories(indexed, SUBJECT)


@pytest.mark.slow("takes seconds, and faster tests take its branches")
@pytest.mark.parametrize(
    "whole_datasets", [(), ("transfers",), DATASETS], ids=["accounts alone", "with some", "with all"]
)
async def test_the_head_is_followed_for_accounts_through_reorganisations(
    tmp_path: Path, whole_datasets: Sequence[str]
) -> None:
    subject = InventedSubject(BLOCKS)
    async with index(subject, tmp_path, datasets=DATASETS) as indexed:
        indexed.datasets = ("blocks", *whole_datasets)
        if whole_datasets:
            await indexed.fill(0, LAST, whole_datasets)
        await indexed.fill_accounts([A, B], 0, LAST)
        for turn in range(4):
            follower = indexed.follower([A, B])
            await follower.step()
            subject.reorg(1 + 3 * turn)
            await follower.step()
            subject.trade(20, turn)
            await follower.step()
            follower.finalise((await indexed.chain.heads()).finalized)
            for name in DATASETS:
                assert indexed_for(indexed.tail, KEY, name, A) == Spans([Span(0, subject.height)])
            await whole_histories(indexed, subject)
        assert {row["height"] for row in indexed.rows("transfers")} & set(range(LAST + 1, subject.height))


async def test_an_account_that_is_watched_later_gets_the_blocks_that_are_not_final_too(tmp_path: Path) -> None:
    subject = InventedSubject(BLOCKS)
    async with index(subject, tmp_path, datasets=DATASETS) as indexed:
        indexed.datasets = ("blocks",)
        await indexed.fill_accounts([A], 0, LAST)
        await indexed.follower([A]).step()
        await indexed.fill_accounts([B], 0, LAST)
        await indexed.follower([A, B]).step()
        for account in (A, B):
            assert indexed_for(indexed.tail, KEY, "transfers", account) == Spans([Span(0, subject.height)])
        await whole_histories(indexed, subject)


async def test_what_no_node_gives_is_not_indexed_nor_asked_for_again_unless_somebody_wants_it(tmp_path: Path) -> None:
    subject = InventedSubject(BLOCKS)
    async with index(subject, tmp_path, datasets=DATASETS) as indexed:
        usual, dataset_lists = indexed.chain.collect_accounts, list[tuple[str, ...]]()

        async def poor(
            span: Span, accounts: Sequence[str], datasets: Sequence[str], *more: Any, **named: Any
        ) -> SpanTables:
            dataset_lists.append(tuple(datasets))
            result = await usual(span, accounts, datasets, *more, **named)
            result.read_methods = {name: method for name, method in result.read_methods.items() if name == "transfers"}
            if "native" in datasets:
                coin = indexed.chain.info.native.asset
                result.unexplained = (UnexplainedChange(A, span.first, coin, 0, "nobody can say"),)
            result.tables = {name: rows for name, rows in result.tables.items() if "transfers" in result.read_methods}
            return result

        indexed.chain.collect_accounts = poor  # type: ignore[method-assign]
        indexed.datasets = ("blocks",)
        await indexed.fill_accounts([A], 0, LAST)
        for _ in range(2):
            await indexed.follower([A]).step()
        assert indexed_for(indexed.tail, KEY, "transfers", A) == Spans([Span(0, subject.height)])
        assert not indexed_for(indexed.tail, KEY, "native", A)
        dataset_lists.clear()
        await indexed.fill_accounts([A], 0, LAST)
        await indexed.follower([A]).step()
        assert dataset_lists == []
        assert [each[0] for each in indexed.tail.unexplained_changes(KEY, A)][:2] == [0, HEIGHTS]
        work = list(
            missing_by_account(indexed.tail, KEY, ("transactions", "native"), {A: Span(0, LAST)}, include_unread=True)
        )
        assert work == [(Spans([Span(0, LAST)]), (A,))]
        indexed.chain.collect_accounts = usual  # type: ignore[method-assign]
        await indexed.fill_accounts([A], 0, LAST, again=True)
        await indexed.materialise()
        assert indexed_for(indexed.tail, KEY, "native", A) == Spans([Span(0, LAST)])
        assert all(each[0] > LAST for each in indexed.tail.unexplained_changes(KEY, A)), (
            "what was read anew is explained"
        )
