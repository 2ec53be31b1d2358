"""Rows of accounts up to one block, read from the index once for a whole snapshot."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from chainfolio.blocks import Span
from chainfolio.engine.rows import ChainIndex, key_of, rows_of
from chainfolio.tables import ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.table import Table

# The columns that parts of a snapshot use, with the whole key, so that each row is there once.
COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    ACCOUNT_TRANSFERS.name: (
        *("account", "height", "time", "tx_index", "log_index", "item", "direction"),
        *("counterparty", "standard", "token", "token_id", "raw"),
    ),
    ACCOUNT_TRANSACTIONS.name: ("account", "height", "time", "tx_index", "sender", "fee"),
}


class AccountRows:
    """Rows of some accounts up to a height. Each history is read once, when it is first needed.

    Safe to use from several threads. Who checks what is indexed does it before the first row is read.
    """

    def __init__(self, index: ChainIndex, accounts: Sequence[str], height: int) -> None:
        self.index, self.accounts, self.height = index, accounts, height
        self._frames: dict[str, pl.DataFrame] = {}
        self._lock = threading.Lock()

    def of(
        self, history: Table, accounts: Sequence[str], columns: Sequence[str | pl.Expr], where: pl.Expr | None = None
    ) -> pl.DataFrame:
        """Return rows of some of the accounts, as `rows_of` does.

        Args:
            history: One of those in `COLUMNS`, and `columns` and `where` use only its columns.
        """
        import polars as pl

        rows = self._rows(history).lazy()
        if not {*self.accounts} <= {*accounts}:
            rows = rows.filter(pl.col("account").is_in(accounts))
        chosen = (rows if where is None else rows.filter(where)).select(columns).collect()
        return chosen if key_of(history) <= {*chosen.columns} else chosen.unique()

    def _rows(self, history: Table) -> pl.DataFrame:
        """Return all rows of a history; only the first call reads them."""
        with self._lock:
            if history.name not in self._frames:
                self._frames[history.name] = rows_of(
                    self.index, history, self.accounts, COLUMNS[history.name], span=Span(0, self.height)
                )
            return self._frames[history.name]
