"""Transactions that name accounts, from the tail and the lake: those that they sent, what they paid for them, and those
that called them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from chainfolio import amounts
from chainfolio.blocks import Block, Span, Spans
from chainfolio.errors import NotFound
from chainfolio.tables import ACCOUNT_TRANSACTIONS, TRANSACTIONS, Table
from indexer import arrow_ipc
from indexer.materialise import HISTORIES, pending

if TYPE_CHECKING:
    import polars as pl

    from storage.lake import Lake
    from storage.tail import Tail

NAMED: Final = (
    "account", "height", "tx_index", "time", "tx_hash", "sender", "recipient", "created", "raw", "fee", "status",
    "selector",
)  # fmt: skip
PAID: Final = ("account", "height", "tx_index", "fee")


def named(
    lake: Lake, tail: Tail, chain: str, accounts: Sequence[str], columns: Sequence[str], most: int | None = None
) -> Iterator[pl.DataFrame]:
    """Transactions that accounts sent, or that called or created them: the tail, what is not sorted by account yet,
    sorted histories.

    In this order, which is the way that rows go: one that moves on meanwhile is met twice, and not missed. NotFound
    where one account has more than `most`.
    """
    import polars as pl

    from portfolio.ledger import each_named

    mine = pl.col("sender").is_in(accounts) | pl.coalesce("recipient", "created").is_in(accounts)
    needed = sorted({*columns, "sender", "recipient", "created"} - {"account"})

    def own(rows: pl.DataFrame) -> pl.DataFrame:
        return each_named(rows).filter(pl.col("account").is_in(accounts)).select(columns)

    yield own(fresh(tail, chain, TRANSACTIONS).filter(mine).select(of_transaction()).select(needed))
    for span in unsorted(tail, chain, ACCOUNT_TRANSACTIONS):
        within = pl.col("height").is_between(span.first, span.last)
        rows = lake.scan(TRANSACTIONS, chain=chain, heights=[span]).filter(within, mine)
        rows = rows.select(of_transaction()).select(needed)
        # One row more than the ceiling of all of them: then one of them is above it.
        yield own((rows if most is None else rows.head(most * len(accounts) + 1)).collect())
    stored = [name for name in ACCOUNT_TRANSACTIONS.names if name in columns]
    if most is not None:
        for account in accounts:
            check_ceiling(account, lake.count_transactions(ACCOUNT_TRANSACTIONS, chain, account, most), most)
    yield lake.of_accounts(ACCOUNT_TRANSACTIONS, chain, accounts, stored).select(columns).collect()


def sent(lake: Lake, tail: Tail, chain: str, accounts: Sequence[str], columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Of the transactions that name accounts those that they sent."""
    import polars as pl

    for rows in named(lake, tail, chain, accounts, (*columns, "sender")):
        yield rows.filter(pl.col("sender") == pl.col("account")).select(columns)


def paid(lake: Lake, tail: Tail, chain: str, accounts: Sequence[str], block: Block) -> dict[str, int]:
    """Fees by account, in the native coin's smallest unit, with the block's own; no account is absent from it.

    Empty where not every block up to this one is indexed, or where the index has another block at its height.
    """
    import polars as pl

    if not tail.indexed_ranges(chain, "transactions").covers(Span(0, block.height)):
        return {}
    rows = pl.concat(sent(lake, tail, chain, accounts, PAID)).filter(pl.col("height") <= block.height)
    kept = {each.height: each.hash for each in tail.blocks(chain)}
    if kept.get(block.height, block.hash) != block.hash:
        return {}
    found = dict.fromkeys(accounts, 0)
    for account, fee in rows.unique(PAID[:3]).select("account", "fee").iter_rows():
        found[account] += amounts.raw_from_bytes(fee)
    return found


def check_ceiling(account: str, count: int, most: int) -> None:
    """NotFound where an account has more transactions than are served."""
    if count > most:
        raise NotFound(
            f"{account} has more than {most:,} transactions, which is more than are served",
            remedy="the operator raises server.max_transactions",
        )


def unsorted(tail: Tail, chain: str, history: Table) -> Spans:
    """Heights whose rows are in the lake but not sorted by account yet."""
    behind = Spans()
    for source in HISTORIES[history.name].datasets:
        for filter_ in tail.indexed_filters(chain, source):
            behind |= pending(tail, chain, source, filter_)
    return behind


def fresh(tail: Tail, chain: str, table: Table, first: int = 0, last: int = 2**62) -> pl.DataFrame:
    """The rows of a table that are in the tail, at some heights."""
    import polars as pl

    rows = pl.from_arrow(arrow_ipc.load((stream for _, stream in tail.rows(chain, table.name, first, last)), table))
    assert isinstance(rows, pl.DataFrame)
    return rows.select(table.names)


def of_transaction() -> list[pl.Expr]:
    """The columns of `transactions` that are shown, and the first four bytes of the call data."""
    import polars as pl

    known = [pl.col(name) for name in NAMED if name not in ("account", "tx_hash", "selector")]
    return [*known, pl.col("hash").alias("tx_hash"), pl.col("input").bin.slice(0, 4).alias("selector")]
