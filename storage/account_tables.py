"""Tables of the tail about accounts: watches, methods of reading, comparisons, looked up details."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from chainfolio.blocks import Span
from chainfolio.errors import StoreError
from chainfolio.storage import watches
from chainfolio.storage.tail_database import VALUES_OF_LIST
from chainfolio.storage.watches import OwnedWatch, WatchedAccount, WatchLimits

if TYPE_CHECKING:
    from chainfolio.chain_results import UnexplainedChange
    from chainfolio.storage.tail_database import Rows, Transaction


class AccountTables(ABC):
    """The tables about accounts whose histories are indexed."""

    @abstractmethod
    def _read(self, sql: str, *arguments: object) -> Rows: ...

    @abstractmethod
    def _write(self, chain: str = "") -> AbstractContextManager[Transaction]: ...

    def watch(self, chain: str, accounts: Iterable[WatchedAccount]) -> None:
        """Add accounts to index for the operator.

        An account that is watched already keeps the lower first height and the higher last one. A last height of None
        means no end, and wins.
        """
        with self._write(chain) as tx:
            tx.run_many(
                "INSERT INTO watches (chain, account, owner, first, last) VALUES (?, ?, '', ?, ?) "
                "ON CONFLICT (chain, account, owner) DO UPDATE SET "
                "first = CASE WHEN excluded.first < watches.first THEN excluded.first ELSE watches.first END, "
                "last = CASE WHEN excluded.last > watches.last THEN excluded.last "
                "WHEN watches.last >= excluded.last THEN watches.last END",  # NULL if one of them is NULL
                [(chain, each.account, each.first, each.last) for each in accounts],
            )

    def unwatch(self, chain: str, account: str) -> bool:
        """Delete all unpaid watches of an account. Return False if there were none.

        Watches that were paid for stay.
        """
        with self._write(chain) as tx:
            return tx.run("DELETE FROM watches WHERE chain = ? AND account = ? AND sold = 0", chain, account) > 0

    def watches(self, chain: str, now_us: int | None = None) -> list[WatchedAccount]:
        """Return the watched accounts, each once with the bounds of all its watches, by account.

        Args:
            now_us: Leave out watches that ended before this time; None returns them too.
        """
        rows = self._read(
            "SELECT account, min(first), CASE WHEN count(last) = count(*) THEN max(last) END FROM watches "
            "WHERE chain = ? AND (expires_us IS NULL OR expires_us > coalesce(?, 0)) GROUP BY account ORDER BY account",
            chain,
            now_us,
        )
        return [WatchedAccount(*row) for row in rows]

    def owned_watches(self, chain: str, now_us: int) -> list[OwnedWatch]:
        """Return the watches of API accounts that have not ended, by account and owner."""
        rows = self._read(
            "SELECT account, owner, sold, expires_us FROM watches WHERE chain = ? AND expires_us > ? ORDER BY 1, 2",
            chain,
            now_us,
        )
        return [OwnedWatch(account, owner, bool(sold), until_us) for account, owner, sold, until_us in rows]

    def add_sold_watches(self, chain: str, first: int, sold: Iterable[OwnedWatch]) -> None:
        """Add watches that were paid for, or extend them. Repeating the call changes nothing."""
        with self._write(chain) as tx:
            watches.add_sold(tx, chain, first, sold)

    def add_synced_watches(
        self, chain: str, first: int, owner: str, accounts: Iterable[str], terms: WatchLimits
    ) -> list[str]:
        """Add or extend unpaid watches of one owner; return the accounts that exceed the limits."""
        with self._write(chain) as tx:
            return watches.add_synced(tx, chain, first, owner, accounts, terms)

    def add_history_notes(
        self, chain: str, methods: Iterable[tuple[str, str, str]], unexplained: Iterable[UnexplainedChange]
    ) -> None:
        """Store how datasets of accounts were read, and balance changes that no transaction explains.

        Args:
            methods: Triples of account, dataset and method.
            unexplained: Replace earlier entries of the same account, height and asset.
        """
        with self._write(chain) as tx:
            tx.run_many(
                "INSERT INTO ways VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", [(chain, *each) for each in methods]
            )
            tx.run_many(
                "INSERT INTO unexplained VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (chain, account, height, asset) "
                "DO UPDATE SET raw = excluded.raw, reason = excluded.reason",
                [
                    (chain, each.account, each.height, str(each.asset), str(each.amount), each.reason)
                    for each in unexplained
                ],
            )

    def drop_unexplained(self, chain: str, accounts: Iterable[str], span: Span) -> None:
        """Delete the unexplained changes of accounts at some heights, which are read again."""
        with self._write(chain) as tx:
            tx.run_many(
                "DELETE FROM unexplained WHERE chain = ? AND account = ? AND height BETWEEN ? AND ?",
                [(chain, account, span.first, span.last) for account in accounts],
            )

    def history_methods(self, chain: str, account: str) -> list[tuple[str, str]]:
        """Return pairs of dataset and method: how an account's history was read."""
        return self._read("SELECT dataset, way FROM ways WHERE chain = ? AND account = ? ORDER BY 1, 2", chain, account)

    def unexplained_changes(self, chain: str, account: str) -> list[tuple[int, str, int, str]]:
        """Return the known gaps of an account's history: height, asset, raw amount, reason."""
        rows = self._read(
            "SELECT height, asset, raw, reason FROM unexplained WHERE chain = ? AND account = ? ORDER BY 1, 2",
            chain,
            account,
        )
        return [(height, asset, int(raw), reason) for height, asset, raw, reason in rows]

    def store_reconciliation(self, chain: str, account: str, span: Span, block_hash: str, result: bytes) -> None:
        """Store the comparison of an account's balances with its transfers, replacing the last one.

        It is deleted when a block of its span is removed or indexed again for the account.

        Raises:
            StoreError: The tail has the last block of the span with another hash.
        """
        with self._write(chain) as tx:
            rows = tx.rows("SELECT hash FROM blocks WHERE chain = ? AND height = ?", chain, span.last)
            if rows and rows[0][0] != block_hash:
                raise StoreError("tail", f"{chain}: block {span.last} is {rows[0][0]} now, and no longer {block_hash}")
            tx.run("DELETE FROM reconciliations WHERE chain = ? AND account = ?", chain, account)
            tx.run(
                "INSERT INTO reconciliations VALUES (?, ?, ?, ?, ?, ?)",
                *(chain, account, span.first, span.last, block_hash, result),
            )

    def reconciliations(self, chain: str) -> list[tuple[str, bytes]]:
        """Return the valid comparisons of balances with transfers: account, result as JSON."""
        return self._read("SELECT account, result FROM reconciliations WHERE chain = ? ORDER BY account", chain)

    def add_lookups(self, chain: str, lookups: Iterable[tuple[str, int, str | None, bytes]]) -> None:
        """Store details of transactions: hash, height, block hash, details as JSON. Stored ones stay.

        A block hash of None means that the block is final. A transaction of another block is stored only if its block
        is in the tail, and is deleted together with it.
        """
        sql = (
            "INSERT INTO lookups (chain, tx_hash, height, details) SELECT ?1, ?2, ?3, ?5 "
            "WHERE CAST(?4 AS TEXT) IS NULL "
            "OR EXISTS (SELECT 1 FROM blocks WHERE chain = ?1 AND height = ?3 AND hash = ?4) "
            "ON CONFLICT DO NOTHING"
        )
        with self._write(chain) as tx:
            tx.run_many(sql, [(chain, *lookup) for lookup in lookups])

    def lookups(self, chain: str, hashes: Iterable[str]) -> dict[str, bytes]:
        """Return the stored details of those transactions that have some, by hash."""
        sql = f"SELECT tx_hash, details FROM lookups WHERE chain = ? AND tx_hash IN ({VALUES_OF_LIST})"
        return dict(self._read(sql, chain, json.dumps(list(hashes))))
