"""Rows of accounts and of heights, wherever they lie: in the tail, in the lake, in the history of the account.

A row goes one way. It is written to the tail. When its block is final, it moves to a table of the lake. Later it is
copied into the history of each account that it concerns (`indexer/materialise.py`). Nothing stops it while it is looked
for, so the places are read in that same order: a row that moves on meanwhile is met twice, and none is missed. What is
met twice is given once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from chainfolio.blocks import Span, Spans
from chainfolio.errors import NotFound
from chainfolio.indexer import arrow_ipc
from chainfolio.indexer.materialise import HISTORIES, unmaterialised
from chainfolio.table import Table

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

EVERYWHERE: Final = Span(0, 2**62)
PLACE: Final = ("account", "height", "tx_index")
MAX_HEIGHTS: Final = 1024  # that are looked up together


def rows_of(
    lake: Lake,
    tail: Tail,
    chain: str,
    history: Table,
    accounts: Sequence[str],
    columns: Sequence[str | pl.Expr],
    *,
    span: Span = EVERYWHERE,
    where: pl.Expr | None = None,
    max_transactions: int | None = None,
) -> pl.DataFrame:
    """What a history has of accounts in a span of heights, and what will come into it from the tail and the lake: read
    in this order, tail, lake, history, for that is the way of a row.

    `columns` are those of the history, or expressions over them. Each row is given once where the history's key is
    among them; else each combination of values is. They are in no order. `where` chooses rows by columns that the
    history and its source share. NotFound where an account has more than `max_transactions`: then its history is not
    read.
    """
    import polars as pl

    within = pl.col("height").is_between(span.first, span.last)
    wanted = within if where is None else within & where
    chosen = [pl.col(each) if isinstance(each, str) else each for each in columns]
    read = {"account", *(name for each in (*chosen, wanted) for name in each.meta.root_names())}
    parts = []
    for part in _not_in_history(lake, tail, chain, history, accounts, span, wanted):
        if max_transactions is not None:
            counts = part.select(PLACE).unique().group_by("account").len().collect()
            for account, count in counts.iter_rows():
                check_ceiling(account, count, max_transactions)
        parts.append(part.select(chosen).collect())
    if max_transactions is not None:
        for account in accounts:
            count = lake.count_transactions(history, chain, account, max_transactions)
            check_ceiling(account, count, max_transactions)
    stored = lake.of_accounts(history, chain, accounts, [name for name in history.names if name in read])
    parts.append(stored.filter(wanted).select(chosen).collect())
    return _once(pl.concat(parts), history)


def _not_in_history(
    lake: Lake, tail: Tail, chain: str, history: Table, accounts: Sequence[str], span: Span, wanted: pl.Expr
) -> Iterator[pl.LazyFrame]:
    """What will come into a history, as its rows: from the tail, then from the lake."""
    import polars as pl

    from chainfolio.portfolio.ledger import by_account, rows_of_accounts

    source = HISTORIES[history.name].source
    mine = rows_of_accounts(history, accounts) & wanted
    own = pl.col("account").is_in(accounts)
    yield by_account(history, in_tail(tail, chain, source, span).lazy().filter(mine)).filter(own)
    for part in unmaterialised(tail, chain, history) & [span]:
        here = pl.col("height").is_between(part.first, part.last)
        rows = lake.scan(source, chain=chain, heights=[part]).filter(mine & here)
        yield by_account(history, rows).filter(own)


def rows_at(
    lake: Lake,
    tail: Tail,
    chain: str,
    table: Table,
    heights: Iterable[int],
    columns: Sequence[str | pl.Expr],
    where: pl.Expr | None = None,
) -> Iterator[pl.DataFrame]:
    """A table's rows at some heights, a thousand heights at a time, each row once: read from the tail, then from the
    lake, for that is the way of a row. Of the lake only the row groups around these heights are read."""
    import polars as pl

    wanted = sorted(set(heights))
    for start in range(0, len(wanted), MAX_HEIGHTS):
        some = wanted[start : start + MAX_HEIGHTS]
        here = pl.col("height").is_between(some[0], some[-1]) & pl.col("height").is_in(some)
        chosen = here if where is None else here & where
        fresh = in_tail(tail, chain, table, Span(some[0], some[-1])).lazy()
        parts = [fresh.filter(chosen).select(columns).collect()]
        stored = lake.scan(table, chain=chain, heights=Spans.of(some))
        parts.append(stored.filter(chosen).select(columns).collect())
        yield _once(pl.concat(parts), table)


def in_tail(tail: Tail, chain: str, table: Table, span: Span = EVERYWHERE) -> pl.DataFrame:
    """The rows of a table that are in the tail, at some heights."""
    import polars as pl

    streams = (stream for _, stream in tail.rows(chain, table.name, span.first, span.last))
    rows = pl.from_arrow(arrow_ipc.load(streams, table))
    assert isinstance(rows, pl.DataFrame)
    return rows.select(table.names)


def check_ceiling(account: str, count: int, most: int) -> None:
    """NotFound where an account has more transactions than are served."""
    if count > most:
        raise NotFound(
            f"{account} has more than {most:,} transactions, which is more than are served",
            remedy="the operator raises server.max_transactions",
        )


def _once(rows: pl.DataFrame, table: Table) -> pl.DataFrame:
    """Each row once: by the key of its table where its columns are there, by all columns where not."""
    key = [name for name in table.key if name != "chain"]
    return rows.unique(key if set(key) <= set(rows.columns) else None)
