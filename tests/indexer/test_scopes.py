"""Accounts as a scope of indexing: on a ledger in memory, whose rows a plain reading knows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from chainfolio.blocks import Span, Spans
from indexer.rewind import rewind
from tests.chains.index import IndexOf, in_order, index
from tests.chains.invented.chainfolio_invented.chain import InventedChain
from tests.chains.invented.chainfolio_invented.ledger import ACCOUNTS, TOKENS
from tests.chains.invented_subject import KEY, InventedSubject
from tests.chains.subject import FINALITY, Row

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
    min_size=1, max_size=6,
)  # fmt: skip


def plain(subject: InventedSubject, indexed: Invented) -> list[Row]:
    """What ought to be stored, by the indexed ranges and a plain reading of the ledger, row by row."""
    ranges = {name: indexed.tail.ranges_by_filter(KEY, name) for name in DATASETS}

    def is_indexed(row: Row) -> bool:
        found = ranges["transfers" if row["token"] else "native"]
        filters = ("", row["token"], *(f"account:{row[side]}" for side in ("sender", "recipient")))
        return any(row["height"] in found.get(each, Spans()) for each in filters)

    return in_order([row for row in subject.rows(Span(0, subject.height))["transfers"] if is_indexed(row)])


def by_account(rows: Sequence[Row]) -> list[tuple[object, ...]]:
    """Transfers once for each side, as keys of `account_transfers`."""
    place = ("height", "tx_index", "item")
    sides = [(row[side], way, *(row[name] for name in place)) for row in rows
             for side, way in (("sender", "out"), ("recipient", "in"))]  # fmt: skip
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
