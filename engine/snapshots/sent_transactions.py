"""Transactions that accounts sent and the fees that they paid, by the index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from chainfolio import amounts
from chainfolio.blocks import Block, Span
from chainfolio.engine.rows import ChainIndex, rows_of
from chainfolio.engine.snapshots.account_rows import AccountRows
from chainfolio.indexer.scopes import indexed_for_all
from chainfolio.tables import ACCOUNT_TRANSACTIONS

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

FEE_COLUMNS: Final = ("account", "height", "tx_index", "fee")


def sent_transactions(
    lake: Lake,
    tail: Tail,
    chain: str,
    accounts: Sequence[str],
    columns: Sequence[str],
    span: Span,
    row_filter: pl.Expr | None = None,
) -> pl.DataFrame:
    """Return the transactions that accounts sent in a span of heights, with `columns`.

    Both ends are included.
    """
    import polars as pl

    is_sender = (
        pl.col("sender").is_in(accounts) if row_filter is None else pl.col("sender").is_in(accounts) & row_filter
    )
    rows = rows_of(
        ChainIndex(lake, tail, chain), ACCOUNT_TRANSACTIONS, accounts, (*columns, "sender"), span=span, where=is_sender
    )
    return rows.filter(pl.col("sender") == pl.col("account")).select(columns)


def are_fees_indexed(tail: Tail, chain: str, accounts: Sequence[str], block: Block) -> bool:
    """Return True if the transactions of all accounts are indexed up to the block."""
    return indexed_for_all(tail, chain, "transactions", accounts).covers(Span(0, block.height))


def fees_of(account_rows: AccountRows, block: Block) -> dict[str, int]:
    """Return the raw fees of all transactions that accounts sent up to `block`, by account.

    `account_rows` must end at `block`: later rows would count, too. Empty if the index has another block at `block`'s
    height. Accounts that sent nothing have 0.
    """
    import polars as pl

    accounts, (_, tail, chain) = account_rows.accounts, account_rows.index
    is_sender = pl.col("sender") == pl.col("account")
    rows = account_rows.of(ACCOUNT_TRANSACTIONS, accounts, FEE_COLUMNS, is_sender)
    tail_hashes = {each.height: each.hash for each in tail.blocks(chain)}
    if tail_hashes.get(block.height, block.hash) != block.hash:
        return {}
    fees = dict.fromkeys(accounts, 0)
    for account, fee in rows.select("account", "fee").iter_rows():
        fees[account] += amounts.raw_from_bytes(fee)
    return fees
