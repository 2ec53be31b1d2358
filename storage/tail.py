"""The tail: blocks that may still be reorganised, their rows, and related bookkeeping.

One SQL text for every database. Every write takes the tail's lock at its start and survives a power failure once it
returns. One process writes a chain; any number of processes read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from chainfolio.blocks import Block, Span, Spans
from chainfolio.errors import StoreError, needs_extra
from chainfolio.scopes import account_of
from chainfolio.storage.account_tables import AccountTables
from chainfolio.storage.decoded_rows import DecodedRows
from chainfolio.storage.endpoint_tables import EndpointTables
from chainfolio.storage.price_tables import PriceTables
from chainfolio.storage.tail_database import Rows, TailDatabase, Transaction
from chainfolio.storage.tail_locks import TailLocks
from chainfolio.storage.tail_sqlite import IN_MEMORY, SqliteTail

__all__ = ("EVERYTHING", "IN_MEMORY", "POSTGRES", "Batch", "Tail", "TailBlock")

EVERYTHING = ("",)
POSTGRES = ("postgresql://", "postgres://")  # the schemes of URLs of PostgreSQL
_BLOCK = "SELECT height, hash, parent, time_us FROM"
_TOP = f"{_BLOCK} blocks WHERE chain = ? ORDER BY height DESC LIMIT 1"


@dataclass(frozen=True, slots=True)
class TailBlock:
    """One unfinalised block and its rows: table name to Arrow IPC stream."""

    block: Block
    rows: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Batch:
    """A span to index, for some datasets and filters, stored before the lake is written.

    Attributes:
        number: Increases per chain.
        filters: `("",)` for all rows, else filters of accounts or contracts.
        worker_process: The worker process that indexes it. Each marks its commits in its own stream.
    """

    chain: str
    number: int
    span: Span
    datasets: tuple[str, ...]
    filters: tuple[str, ...] = EVERYTHING
    worker_process: int = 0


class Tail(TailLocks, AccountTables, EndpointTables, PriceTables):
    """The tail of all chains, in one database. Safe to use from several threads.

    Attributes:
        place: The path or the URL with which it was opened.
        decoded: Rows of unfinalised blocks that readers of this process decoded.
    """

    def __init__(self, place: Path | str, *, reader: bool = False) -> None:
        self.place = place
        self._database = _open_database(place, reader=reader)
        self.decoded = DecodedRows()

    @property
    def address(self) -> str:
        """The path or the URL without its password, for messages."""
        return self._database.address

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    # --- unfinalised blocks ------------------------------------------------------------------------------------------

    def put(
        self,
        chain: str,
        entries: Sequence[TailBlock],
        *,
        datasets: Sequence[str] = (),
        ranges: Iterable[tuple[str, str]] = (),
        span: Span | None = None,
    ) -> None:
        """Add blocks on top and their span to the indexed ranges, in one transaction.

        If there are blocks, the recent responses of all endpoints are deleted, because they may be older.

        Args:
            datasets: Datasets that are indexed without a filter.
            ranges: Further pairs of dataset and filter.
            span: The indexed heights, also those without a block; None for the heights of `entries`.

        Raises:
            StoreError: A block is not the child of the block below it. Nothing is stored.
        """
        if span is None:
            if not entries:
                return
            span = Span(entries[0].block.height, entries[-1].block.height)
        with self._write(chain) as tx:
            below = _parent_of(tx, chain, entries[0].block) if entries else None
            if entries:  # they may be older than these blocks
                tx.run("DELETE FROM answers")
            for entry in entries:
                if below is not None:
                    _check_link(chain, below, entry.block)
                below = entry.block
            _insert(tx, chain, entries)
            for dataset, filter_ in (*((name, "") for name in datasets), *ranges):
                _merge_range(tx, chain, (dataset,), (filter_,), span)

    def blocks(self, chain: str) -> list[Block]:
        """Return the chain's unfinalised blocks, the lowest first."""
        rows = self._read(f"{_BLOCK} blocks WHERE chain = ? ORDER BY height", chain)
        return [Block(*row) for row in rows]

    def top(self, chain: str) -> Block | None:
        """Return the highest unfinalised block; None if there is none."""
        return _block(self._read(_TOP, chain))

    def lowest(self, chain: str) -> Block | None:
        """Return the lowest unfinalised block; None if there is none."""
        return _block(self._read(f"{_BLOCK} blocks WHERE chain = ? ORDER BY height LIMIT 1", chain))

    def rows(self, chain: str, table: str, first: int, last: int) -> list[tuple[int, bytes]]:
        """Return height and Arrow IPC stream of each unfinalised block in `first..last` with rows of `table`."""
        sql = "SELECT height, ipc FROM rows WHERE chain = ? AND name = ? AND height BETWEEN ? AND ? ORDER BY height"
        return self._read(sql, chain, table, first, last)

    def rollback(self, chain: str, height: int) -> None:
        """Delete all blocks above `height` with their rows, prices, details and indexed ranges.

        Raises:
            StoreError: `height` is below the last final block; `rewind` can do that.
        """
        with self._write(chain) as tx:
            final = _anchor(tx, chain)
            if final is not None and height < final.height:
                raise StoreError("tail", f"{chain}: block {final.height} is final, cannot roll back to {height}")
            _delete_above(tx, chain, height)

    def drop(self, chain: str, up_to: int) -> None:
        """Delete blocks up to `up_to`, which are in the lake now. Indexed ranges stay."""
        with self._write(chain) as tx:
            for table in ("blocks", "rows"):
                tx.run(f"DELETE FROM {table} WHERE chain = ? AND height <= ?", chain, up_to)

    def rewind(self, chain: str, height: int, anchor: Block | None) -> None:
        """Delete everything above `height`, final or not: blocks, indexed ranges, open batches.

        For repairs, together with the lake.

        Args:
            anchor: The last final block that remains; None if there is none.
        """
        assert anchor is None or anchor.height <= height, "the anchor is a block that stays"
        with self._write(chain) as tx:
            _delete_above(tx, chain, height)
            # Marked as done, not deleted: numbers are not reused.
            tx.run("UPDATE batches SET done = 1 WHERE chain = ? AND last > ?", chain, height)
            _set_anchor(tx, chain, anchor)

    def forget_batch(self, batch: Batch) -> None:
        """Delete the indexed ranges of a batch's heights and mark it as done, in one transaction.

        Ranges of all datasets and filters are deleted, not only the batch's, and what is stored about balances there.
        For repairs, after the lake's rows of these heights were deleted.
        """
        chain, first, last = batch.chain, batch.span.first, batch.span.last
        with self._write(chain) as tx:
            tx.run(
                "INSERT INTO cover SELECT chain, dataset, filter, ?, last FROM cover "
                "WHERE chain = ? AND first < ? AND last > ?",
                *(last + 1, chain, first, last),
            )
            tx.run(
                "UPDATE cover SET last = ? WHERE chain = ? AND first < ? AND last >= ?", first - 1, chain, first, first
            )
            tx.run(
                "UPDATE cover SET first = ? WHERE chain = ? AND first BETWEEN ? AND ? AND last > ?",
                *(last + 1, chain, first, last, last),
            )
            tx.run("DELETE FROM cover WHERE chain = ? AND first >= ? AND last <= ?", chain, first, last)
            tx.run("DELETE FROM unexplained WHERE chain = ? AND height BETWEEN ? AND ?", chain, first, last)
            tx.run("DELETE FROM reconciliations WHERE chain = ? AND first <= ? AND last >= ?", chain, last, first)
            tx.run("UPDATE batches SET done = 1 WHERE chain = ? AND number = ?", chain, batch.number)

    def all_ranges(self, chain: str) -> list[tuple[str, str, Spans]]:
        """Return the indexed ranges of a chain, for each dataset and filter."""
        keys = self._read("SELECT DISTINCT dataset, filter FROM cover WHERE chain = ? ORDER BY 1, 2", chain)
        return [(dataset, filter_, self.indexed_ranges(chain, dataset, filter_)) for dataset, filter_ in keys]

    def anchor(self, chain: str) -> Block | None:
        """Return the last finalised block, which is the parent of the lowest unfinalised one; None before."""
        return _block(self._read(f"{_BLOCK} anchors WHERE chain = ?", chain))

    def set_anchor(self, chain: str, block: Block | None) -> None:
        """Store the last finalised block; None deletes it."""
        with self._write(chain) as tx:
            _set_anchor(tx, chain, block)

    # --- indexed ranges ----------------------------------------------------------------------------------------------

    def indexed_ranges(self, chain: str, dataset: str, filter: str = "") -> Spans:
        """Return the indexed heights of a dataset, without a filter (`""`) or for one filter."""
        return Spans(
            Span(first, last)
            for first, last in self._read(
                "SELECT first, last FROM cover WHERE chain = ? AND dataset = ? AND filter = ?", chain, dataset, filter
            )
        )

    def ranges_by_filter(self, chain: str, dataset: str) -> dict[str, Spans]:
        """Return the indexed heights of a dataset by filter. Filters with equal ranges share one object."""
        heights_by_filter: dict[str, list[tuple[int, int]]] = {}
        for filter_, first, last in self._read(
            "SELECT filter, first, last FROM cover WHERE chain = ? AND dataset = ? ORDER BY filter, first",
            chain,
            dataset,
        ):
            heights_by_filter.setdefault(filter_, []).append((first, last))
        spans_by_heights = {
            ends: Spans(Span(*each) for each in ends) for ends in {tuple(each) for each in heights_by_filter.values()}
        }
        return {filter_: spans_by_heights[tuple(each)] for filter_, each in heights_by_filter.items()}

    def remove_range(self, chain: str, dataset: str, filter: str, span: Span) -> None:
        """Remove a span from the indexed ranges of one dataset and filter."""
        with self._write(chain) as tx:
            remaining = self.indexed_ranges(chain, dataset, filter) - [span]
            key = (chain, dataset, filter)
            tx.run("DELETE FROM cover WHERE chain = ? AND dataset = ? AND filter = ?", *key)
            tx.run_many(
                "INSERT INTO cover VALUES (?, ?, ?, ?, ?)", [(*key, each.first, each.last) for each in remaining]
            )

    def add_ranges(self, chain: str, pairs: Iterable[tuple[str, str]], span: Span) -> None:
        """Add a span to the indexed ranges of pairs of dataset and filter, in one transaction.

        Stored reconciliations that overlap it are deleted.
        """
        with self._write(chain) as tx:
            for dataset, filter_ in pairs:
                _merge_range(tx, chain, (dataset,), (filter_,), span)

    def open_batch(
        self,
        chain: str,
        span: Span,
        datasets: Sequence[str],
        filters: Sequence[str] = EVERYTHING,
        *,
        after: int = 0,
        worker_process: int = 0,
    ) -> Batch:
        """Store a new batch and return it.

        Args:
            after: The number of the lake's last batch. The new number is higher, also if this file is younger than the
                lake.
        """
        with self._write(chain) as tx:
            batch = Batch(
                chain, max(self.newest_batch(chain), after) + 1, span, tuple(datasets), tuple(filters), worker_process
            )
            encoded = (json.dumps(batch.datasets), json.dumps(batch.filters))
            tx.run(
                "INSERT INTO batches (chain, number, first, last, datasets, filters, lane) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                *(chain, batch.number, span.first, span.last, *encoded, worker_process),
            )
        return batch

    def newest_batch(self, chain: str) -> int:
        """Return the highest batch number of a chain, done or not; 0 if there is none."""
        return int(self._read("SELECT coalesce(max(number), 0) FROM batches WHERE chain = ?", chain)[0][0])

    def rewinds(self, chain: str) -> int:
        """Return how often blocks of a chain were deleted by a rewind."""
        datasets = json.dumps(("rewind",))
        return int(self._read("SELECT count(*) FROM batches WHERE chain = ? AND datasets = ?", chain, datasets)[0][0])

    def open_batches(self, chain: str) -> list[Batch]:
        """Return the batches that are not done, by number."""
        return [
            Batch(
                chain,
                number,
                Span(first, last),
                tuple(json.loads(datasets)),
                tuple(json.loads(filters)),
                worker_process,
            )
            for number, first, last, datasets, filters, worker_process in self._read(
                "SELECT number, first, last, datasets, filters, lane FROM batches "
                "WHERE chain = ? AND done = 0 ORDER BY number",
                chain,
            )
        ]

    def close_batch(self, batch: Batch, anchor: Block | None = None) -> None:
        """Mark a batch as done, add its indexed range and raise the anchor, in one transaction.

        Repeating the call changes nothing. The anchor never falls: a gap that is filled lies below final blocks.

        Raises:
            StoreError: The tail does not have the batch: it was replaced by an older one.
        """
        key = (batch.chain, batch.number)
        with self._write(batch.chain) as tx:
            if tx.run("UPDATE batches SET done = 1 WHERE chain = ? AND number = ? AND done = 0", *key):
                _merge_range(tx, batch.chain, batch.datasets, batch.filters, batch.span)
                below = _anchor(tx, batch.chain)
                if anchor is not None and (below is None or below.height < anchor.height):
                    _set_anchor(tx, batch.chain, anchor)
            elif not tx.rows("SELECT 1 FROM batches WHERE chain = ? AND number = ?", *key):
                remedy = "let it be the tail of the lake again: restore both from one backup"
                raise StoreError("tail", f"{batch.chain}: batch {batch.number} is not stored", remedy=remedy)

    def _read(self, sql: str, *arguments: object) -> Rows:
        return self._database.read(sql, *arguments)

    def _write(self, chain: str = "") -> AbstractContextManager[Transaction]:
        return self._database.write(chain)


def _open_database(place: Path | str, *, reader: bool) -> TailDatabase:
    """Open the database at a place: PostgreSQL for its URL, else a SQLite file."""
    if not isinstance(place, str) or not place.startswith(POSTGRES):
        return SqliteTail(Path(place), reader=reader)
    with needs_extra("postgres", "a tail on PostgreSQL"):
        from chainfolio.storage.tail_postgres import PostgresTail

    return PostgresTail(place, reader=reader)


def _block(rows: Rows) -> Block | None:
    return Block(*rows[0]) if rows else None


def _anchor(tx: Transaction, chain: str) -> Block | None:
    return _block(tx.rows(f"{_BLOCK} anchors WHERE chain = ?", chain))


def _set_anchor(tx: Transaction, chain: str, block: Block | None) -> None:
    """Replace the anchor of a chain; None deletes it."""
    tx.run("DELETE FROM anchors WHERE chain = ?", chain)
    if block is not None:
        tx.run(
            "INSERT INTO anchors (chain, height, hash, parent, time_us) VALUES (?, ?, ?, ?, ?)",
            chain,
            block.height,
            block.hash,
            block.parent,
            block.time_us,
        )


def _parent_of(tx: Transaction, chain: str, block: Block) -> Block | None:
    """Return the required parent of a new block; None if the tail starts above the anchor."""
    top = _block(tx.rows(_TOP, chain))
    if top is not None:
        return top
    anchor = _anchor(tx, chain)
    return anchor if anchor is not None and block.height <= anchor.height + 1 else None


def _check_link(chain: str, below: Block, block: Block) -> None:
    """Raise StoreError if a block does not stand on the one below."""
    if block.height <= below.height or block.parent != below.hash:
        raise StoreError(
            "tail",
            f"{chain}: block {block.height} with parent {block.parent} does not stand on {below.height} {below.hash}",
        )


def _insert(tx: Transaction, chain: str, entries: Sequence[TailBlock]) -> None:
    """Insert blocks and their rows."""
    tx.run_many(
        "INSERT INTO blocks (chain, height, hash, parent, time_us) VALUES (?, ?, ?, ?, ?)",
        [(chain, each.block.height, each.block.hash, each.block.parent, each.block.time_us) for each in entries],
    )
    tx.run_many(
        "INSERT INTO rows (chain, name, height, ipc) VALUES (?, ?, ?, ?)",
        [(chain, name, each.block.height, ipc) for each in entries for name, ipc in each.rows.items()],
    )


def _delete_above(tx: Transaction, chain: str, height: int) -> None:
    """Delete all that belongs to higher blocks; indexed ranges end at the height."""
    for table in ("blocks", "rows"):
        tx.run(f"DELETE FROM {table} WHERE chain = ? AND height > ?", chain, height)
    tx.run("DELETE FROM cover WHERE chain = ? AND first > ?", chain, height)
    tx.run("UPDATE cover SET last = ? WHERE chain = ? AND last > ?", height, chain, height)
    for table in ("unexplained", "lookups"):
        tx.run(f"DELETE FROM {table} WHERE chain = ? AND height > ?", chain, height)
    tx.run("DELETE FROM reconciliations WHERE chain = ? AND last > ?", chain, height)
    tx.run("DELETE FROM prices WHERE chain = ? AND height > ?", chain, height)


def _merge_range(tx: Transaction, chain: str, datasets: Iterable[str], filters: Sequence[str], span: Span) -> None:
    """Merge a span into the stored ranges, and delete the reconciliations that overlap it.

    Only ranges that touch the span are read and written. Filters of accounts delete their reconciliations alone.
    """
    for dataset in datasets:
        for filter in filters:
            key = (chain, dataset, filter)
            touching = tx.rows(
                "DELETE FROM cover WHERE chain = ? AND dataset = ? AND filter = ? AND first <= ? AND last >= ? "
                "RETURNING first, last",
                *(*key, span.last + 1, span.first - 1),
            )
            first = min([span.first, *(row[0] for row in touching)])
            last = max([span.last, *(row[1] for row in touching)])
            tx.run("INSERT INTO cover VALUES (?, ?, ?, ?, ?)", *key, first, last)
    for account in {account_of(filter) for filter in filters}:  # None: of every account
        tx.run(
            "DELETE FROM reconciliations "
            "WHERE chain = ? AND first <= ? AND last >= ? AND account = coalesce(?, account)",
            *(chain, span.last, span.first, account),
        )
