"""Rows of accounts and of heights in the tail, the lake and the histories of accounts.

A row is written to the tail. When its block is final, it moves to a table of the lake. Later it is copied into the
history of each account that it concerns (`indexer/materialise.py`). Rows may move during a read. Therefore the stores
are read in the same order: a row that moves may be read twice, but is never missed. Duplicates are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

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
TRANSACTION_KEY: Final = ("account", "height", "tx_index")
MAX_HEIGHTS: Final = 1024  # per read


class ChainIndex(NamedTuple):
    """The stores with the indexed rows of one chain."""

    lake: Lake
    tail: Tail
    chain: str


def rows_of(
    index: ChainIndex,
    history: Table,
    accounts: Sequence[str],
    columns: Sequence[str | pl.Expr],
    *,
    span: Span = EVERYWHERE,
    where: pl.Expr | None = None,
    max_transactions: int | None = None,
) -> pl.DataFrame:
    """Return the rows of a history at some heights, and those that tail and lake will add to it.

    Args:
        columns: Columns of the history, or expressions over them.
        where: A condition on columns that the history and its source share.
        max_transactions: The limit per account above which its history is not read; rows of the history, the tail and
            each other part count separately.

    Returns:
        Each row once if `columns` has the history's key, else each combination of values once; in no order.

    Raises:
        NotFound: An account has more than `max_transactions`.
    """
    import polars as pl

    lake, chain = index.lake, index.chain
    within = pl.col("height").is_between(span.first, span.last)
    condition = within if where is None else within & where
    expressions = [pl.col(each) if isinstance(each, str) else each for each in columns]
    used_columns = {"account", *(name for each in (*expressions, condition) for name in each.meta.root_names())}
    parts = []
    for part in _not_in_history(index, history, accounts, span, condition):
        if max_transactions is not None:
            counts = part.select(TRANSACTION_KEY).unique().group_by("account").len().collect()
            for account, count in counts.iter_rows():
                check_transaction_count(account, count, max_transactions)
        parts.append(part.select(expressions).collect())
    if max_transactions is not None:
        for account in accounts:
            if lake.max_rows(history, chain, account) > max_transactions:
                count = lake.count_transactions(history, chain, account, max_transactions)
                check_transaction_count(account, count, max_transactions)
    stored = lake.of_accounts(history, chain, accounts, [name for name in history.names if name in used_columns])
    parts.append(stored.filter(condition).select(expressions).collect())
    return deduplicated(pl.concat(parts), history)


def _not_in_history(
    index: ChainIndex, history: Table, accounts: Sequence[str], span: Span, condition: pl.Expr
) -> Iterator[pl.LazyFrame]:
    """Yield the rows for a history that are not stored in it: those of the tail, then of the lake.

    They have the columns of the history, only of `accounts`. Rows of the lake that are read often come from memory.
    """
    import polars as pl

    from chainfolio.portfolio.ledger import by_account, rows_of_accounts

    lake, tail, chain = index
    source = HISTORIES[history.name].source
    is_of_accounts = rows_of_accounts(history, accounts) & condition
    has_account = pl.col("account").is_in(accounts)
    yield by_account(history, in_tail(tail, chain, source, span).lazy().filter(is_of_accounts)).filter(has_account)
    pending = unmaterialised(tail, chain, history)
    if pending and len(lake.kept.often_read((chain, source.name, history.name), accounts)) == len(accounts):
        for kept_rows in _kept_pending(index, history, accounts, pending):
            yield kept_rows.lazy().filter(condition)
        return
    for part in pending & [span]:
        in_part = pl.col("height").is_between(part.first, part.last)
        rows = lake.scan(source, chain=chain, heights=[part]).filter(is_of_accounts & in_part)
        yield by_account(history, rows).filter(has_account)


def _kept_pending(index: ChainIndex, history: Table, accounts: Sequence[str], pending: Spans) -> Iterator[pl.DataFrame]:
    """Yield the accounts' rows of pending heights by file, from memory or from the file; with all columns.

    Rows that were read from a file are stored in memory. Accounts without rows in a file yield nothing.
    """
    import polars as pl

    from chainfolio.portfolio.ledger import by_account, rows_of_accounts

    lake, _, chain = index
    source = HISTORIES[history.name].source
    for file in lake.entries(source):
        for part in pending & [Span(file.first, file.last)] if file.chain == chain else ():
            keys = {account: (history.name, file.path, part.first, part.last, account) for account in accounts}
            kept = {account: lake.kept.get(key) for account, key in keys.items()}
            missing = [account for account, rows in kept.items() if rows is None]
            if missing:
                in_part = pl.col("height").is_between(part.first, part.last)
                in_file = lake.scan_file(source, file, part).filter(rows_of_accounts(history, missing) & in_part)
                found = by_account(history, in_file).filter(pl.col("account").is_in(missing)).collect()
                for account, key in keys.items():
                    if account in missing:
                        kept[account] = found.filter(pl.col("account") == account).to_arrow()
                        lake.kept.put(key, kept[account])
            yield from (pl.DataFrame(rows) for rows in kept.values() if rows is not None and rows.num_rows)


def rows_at(
    lake: Lake,
    tail: Tail,
    chain: str,
    table: Table,
    heights: Iterable[int],
    columns: Sequence[str | pl.Expr],
    where: pl.Expr | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield a table's rows at some heights, each once, `MAX_HEIGHTS` heights at a time.

    They come from the tail and the lake; only the row groups around these heights are read from the lake. A batch
    without rows yields an empty frame; no heights yield nothing.
    """
    import polars as pl

    sorted_heights = sorted(set(heights))
    for start in range(0, len(sorted_heights), MAX_HEIGHTS):
        batch = sorted_heights[start : start + MAX_HEIGHTS]
        at_heights = pl.col("height").is_between(batch[0], batch[-1]) & pl.col("height").is_in(batch)
        condition = at_heights if where is None else at_heights & where
        fresh = in_tail(tail, chain, table, Span(batch[0], batch[-1])).lazy()
        parts = [fresh.filter(condition).select(columns).collect()]
        stored = lake.scan(table, chain=chain, heights=Spans.of(batch))
        parts.append(stored.filter(condition).select(columns).collect())
        yield deduplicated(pl.concat(parts), table)


def in_tail(tail: Tail, chain: str, table: Table, span: Span = EVERYWHERE) -> pl.DataFrame:
    """Return the rows of a table that are in the tail, at heights of `span`.

    An empty frame with its columns if none are. Decoded rows are cached in memory.
    """
    import polars as pl

    def decode(streams: Sequence[bytes]) -> tuple[pl.DataFrame, list[int]]:
        loaded, counts = arrow_ipc.load_counted(streams, table)
        return pl.DataFrame(loaded).select(table.names), counts

    streams = tail.rows(chain, table.name, span.first, span.last)
    rows = tail.decoded.of((chain, table.name), streams, decode)
    return pl.DataFrame(table.schema().empty_table()) if rows is None else rows


def check_transaction_count(account: str, count: int, max_transactions: int) -> None:
    """Raise NotFound if an account has more transactions than are served."""
    if count > max_transactions:
        raise NotFound(
            f"{account} has more than {max_transactions:,} transactions, which is more than are served",
            remedy="the operator raises server.max_transactions",
        )


def deduplicated(rows: pl.DataFrame, table: Table) -> pl.DataFrame:
    """Return each row once: by the key of its table if all its columns are there, else by all columns."""
    key = key_of(table)
    return rows.unique([*key] if key <= {*rows.columns} else None)


def key_of(table: Table) -> frozenset[str]:
    """Return the columns that identify a row of a table on its chain."""
    return frozenset(table.key) - {"chain"}
