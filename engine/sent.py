"""Transactions that accounts sent, and what they paid for them, by the index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from chainfolio import amounts
from chainfolio.blocks import Block, Span
from chainfolio.tables import ACCOUNT_TRANSACTIONS
from engine.rows import rows_of
from indexer.scopes import indexed_for_all

if TYPE_CHECKING:
    import polars as pl

    from storage.lake import Lake
    from storage.tail import Tail

PAID: Final = ("account", "height", "tx_index", "fee")


def sent(
    lake: Lake, tail: Tail, chain: str, accounts: Sequence[str], columns: Sequence[str], span: Span,
    where: pl.Expr | None = None,
) -> pl.DataFrame:  # fmt: skip
    """The transactions that accounts sent in a span of heights."""
    import polars as pl

    own = pl.col("sender").is_in(accounts) if where is None else pl.col("sender").is_in(accounts) & where
    rows = rows_of(lake, tail, chain, ACCOUNT_TRANSACTIONS, accounts, (*columns, "sender"), span=span, where=own)
    return rows.filter(pl.col("sender") == pl.col("account")).select(columns)


def paid(lake: Lake, tail: Tail, chain: str, accounts: Sequence[str], block: Block) -> dict[str, int]:
    """Fees by account, in the native coin's smallest unit, with the block's own; no account is absent from it.

    Empty where not every block up to this one is indexed, or where the index has another block at its height.
    """
    whole = Span(0, block.height)
    if not indexed_for_all(tail, chain, "transactions", accounts).covers(whole):
        return {}
    rows = sent(lake, tail, chain, accounts, PAID, whole)
    kept = {each.height: each.hash for each in tail.blocks(chain)}
    if kept.get(block.height, block.hash) != block.hash:
        return {}
    fees = dict.fromkeys(accounts, 0)
    for account, fee in rows.select("account", "fee").iter_rows():
        fees[account] += amounts.raw_from_bytes(fee)
    return fees
