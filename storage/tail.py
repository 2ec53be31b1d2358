"""The tail: blocks that may still be reorganised, their rows, and the book-keeping that must change together with them.

SQLite in WAL mode; every write takes the lock at once and is on the disk when it returns. One process writes a chain;
any number read.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainfolio.blocks import Block, Span, Spans
from chainfolio.errors import StoreError
from chainfolio.scopes import account_of
from storage import watches
from storage.disk import held
from storage.sqlite import connect, said, writing
from storage.tail_schema import prepare
from storage.watches import PlaceTerms, WatchPlace

if TYPE_CHECKING:
    import apsw

    from chainfolio.chains import Unexplained

EVERYTHING = ("",)
IN_MEMORY = ":memory:"  # the path of a tail that is gone with its process
MAX_WAITING_PRICES = 200_000  # of one chain, at blocks that are not final: the oldest go first


@dataclass(frozen=True, slots=True)
class TailBlock:
    """One unfinalised block and its rows: table name to an Arrow IPC stream."""

    block: Block
    rows: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Batch:
    """An intent, written down before the lake is: which span is being indexed, for which datasets and filters.

    `worker_process`: which of several processes side by side carries it out; each marks its commits in a stream of its
    own."""

    chain: str
    number: int
    span: Span
    datasets: tuple[str, ...]
    filters: tuple[str, ...] = EVERYTHING
    worker_process: int = 0


@dataclass(frozen=True, slots=True)
class Watch:
    """An account whose history is wanted from a height on, up to `last`; None: up to the newest block, and on."""

    account: str
    first: int
    last: int | None = None


class Tail:
    """The tail of every chain, in one SQLite file. Safe to use from several threads."""

    def __init__(self, path: Path | str, *, reader: bool = False) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        if path != IN_MEMORY and not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            prepare(_connected(self.path), self.path).close()
        self._connection = _connected(self.path, reader=reader)
        try:
            prepare(self._connection, self.path)
        except BaseException:  # whatever stopped it: the file is let go of
            self._connection.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()

    def lock(self, chain: str) -> AbstractContextManager[None]:
        """Hold a chain for writing, in this process alone; Busy, naming the process, where another one does."""
        assert chain.replace("-", "").replace("_", "").isalnum(), f"not the key of a chain: {chain!r}"
        return held(self.path.parent / "locks" / f"{chain}.lock", store="tail", what=f"chain {chain}")

    # --- blocks that may still go ------------------------------------------------------------------------------------

    def put(
        self,
        chain: str,
        entries: Sequence[TailBlock],
        *,
        datasets: Sequence[str] = (),
        ranges: Iterable[tuple[str, str]] = (),
        span: Span | None = None,
    ) -> None:
        """Add blocks on top, and a span (theirs, where none is given) to the indexed ranges of `datasets` for
        everything, and of `ranges`, each a dataset and a filter, in one transaction. A span may have heights without a
        block."""
        if span is None:
            if not entries:
                return
            span = Span(entries[0].block.height, entries[-1].block.height)
        with self._write() as connection:
            below = _below(connection, chain, entries[0].block) if entries else None
            for entry in entries:
                if below is not None:
                    _check_link(chain, below, entry.block)
                _insert(connection, chain, entry)
                below = entry.block
            for dataset, filter_ in (*((name, "") for name in datasets), *ranges):
                _indexed_ranges(connection, chain, (dataset,), (filter_,), span)

    def blocks(self, chain: str) -> list[Block]:
        """The chain's unfinalised blocks from the lowest to the top."""
        found = self._read("SELECT height, hash, parent, time_us FROM blocks WHERE chain = ? ORDER BY height", chain)
        return [Block(*row) for row in found]

    def top(self, chain: str) -> Block | None:
        """The highest unfinalised block."""
        with said("tail", self.path), self._lock:
            return _top(self._connection, chain)

    def rows(self, chain: str, table: str, first: int, last: int) -> list[tuple[int, bytes]]:
        """Height and Arrow IPC stream of each unfinalised block in `first..last` that has rows of `table`."""
        return self._read(
            "SELECT height, ipc FROM rows WHERE chain = ? AND name = ? AND height BETWEEN ? AND ? ORDER BY height",
            chain, table, first, last,
        )  # fmt: skip

    def rollback(self, chain: str, height: int) -> None:
        """Forget every block above `height`, its rows and its indexed ranges. Below the anchor that is `rewind`."""
        with self._write() as connection:
            anchor = _anchor(connection, chain)
            if anchor is not None and height < anchor.height:
                raise StoreError("tail", f"{chain}: block {anchor.height} is final, cannot roll back to {height}")
            _forget_above(connection, chain, height)

    def drop(self, chain: str, up_to: int) -> None:
        """Forget blocks up to `up_to`, which the lake has now; the indexed ranges stay."""
        with self._write() as connection:
            for table in ("blocks", "rows"):
                connection.execute(f"DELETE FROM {table} WHERE chain = ? AND height <= ?", (chain, up_to))

    def rewind(self, chain: str, height: int, anchor: Block | None) -> None:
        """Forget everything above `height`, final or not: blocks, indexed ranges, open batches. For repairs, with the
        lake's."""
        assert anchor is None or anchor.height <= height, "the anchor is a block that stays"
        with self._write() as connection:
            _forget_above(connection, chain, height)
            # Kept as done, for their numbers are never given out again.
            connection.execute("UPDATE batches SET done = 1 WHERE chain = ? AND last > ?", (chain, height))
            _set_anchor(connection, chain, anchor)

    def forget(self, batch: Batch) -> None:
        """Forget the indexed ranges of the heights of an intent, and mark it done, in one transaction. For repairs,
        after the lake's rows of these heights."""
        chain, first, last = batch.chain, batch.span.first, batch.span.last
        with self._write() as connection:
            connection.execute(
                "INSERT INTO cover SELECT chain, dataset, filter, ?, last FROM cover "
                "WHERE chain = ? AND first < ? AND last > ?",
                (last + 1, chain, first, last),
            )
            connection.execute(
                "UPDATE cover SET last = ? WHERE chain = ? AND first < ? AND last >= ?",
                (first - 1, chain, first, first),
            )
            connection.execute(
                "UPDATE cover SET first = ? WHERE chain = ? AND first BETWEEN ? AND ? AND last > ?",
                (last + 1, chain, first, last, last),
            )
            connection.execute("DELETE FROM cover WHERE chain = ? AND first >= ? AND last <= ?", (chain, first, last))
            connection.execute(
                "DELETE FROM unexplained WHERE chain = ? AND height BETWEEN ? AND ?", (chain, first, last)
            )
            connection.execute(
                "DELETE FROM reconciliations WHERE chain = ? AND first <= ? AND last >= ?", (chain, last, first)
            )
            connection.execute("UPDATE batches SET done = 1 WHERE chain = ? AND number = ?", (chain, batch.number))

    def covers(self, chain: str) -> list[tuple[str, str, Spans]]:
        """What is covered of a chain: each dataset and filter with its spans."""
        keys = self._read("SELECT DISTINCT dataset, filter FROM cover WHERE chain = ? ORDER BY 1, 2", chain)
        return [(dataset, filter_, self.indexed_ranges(chain, dataset, filter_)) for dataset, filter_ in keys]

    def anchor(self, chain: str) -> Block | None:
        """The last finalised block: what the lowest unfinalised one must name as its parent."""
        with said("tail", self.path), self._lock:
            return _anchor(self._connection, chain)

    def set_anchor(self, chain: str, block: Block | None) -> None:
        """Remember the last finalised block."""
        with self._write() as connection:
            _set_anchor(connection, chain, block)

    # --- what is indexed ---------------------------------------------------------------------------------------------

    def indexed_ranges(self, chain: str, dataset: str, filter: str = "") -> Spans:
        """Which heights are indexed, for everything (`""`) or for one contract: empty is not missing."""
        return Spans(
            Span(first, last)
            for first, last in self._read(
                "SELECT first, last FROM cover WHERE chain = ? AND dataset = ? AND filter = ?", chain, dataset, filter
            )
        )

    def ranges_by_filter(self, chain: str, dataset: str) -> dict[str, Spans]:
        """Which heights are indexed of a dataset, by filter: accounts that are watched together share theirs."""
        found: dict[str, list[tuple[int, int]]] = {}
        for filter_, first, last in self._read(
            "SELECT filter, first, last FROM cover WHERE chain = ? AND dataset = ? ORDER BY filter, first",
            chain, dataset,
        ):  # fmt: skip
            found.setdefault(filter_, []).append((first, last))
        made = {ends: Spans(Span(*each) for each in ends) for ends in {tuple(each) for each in found.values()}}
        return {filter_: made[tuple(each)] for filter_, each in found.items()}

    def remove_range(self, chain: str, dataset: str, filter: str, span: Span) -> None:
        """Count the heights of a span as not indexed, for one dataset and filter."""
        with self._write() as connection:
            left = self.indexed_ranges(chain, dataset, filter) - [span]
            key = (chain, dataset, filter)
            connection.execute("DELETE FROM cover WHERE chain = ? AND dataset = ? AND filter = ?", key)
            connection.executemany(
                "INSERT INTO cover VALUES (?, ?, ?, ?, ?)", [(*key, each.first, each.last) for each in left]
            )

    def add_ranges(self, chain: str, several: Iterable[tuple[str, str]], span: Span) -> None:
        """Say that a span is indexed of several datasets, each with its filter, in one transaction."""
        with self._write() as connection:
            for dataset, filter_ in several:
                _indexed_ranges(connection, chain, (dataset,), (filter_,), span)

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
        """Write an intent down. Its number is above every earlier one of the chain, and above `after`: pass the lake's
        last where this file may be younger than the lake."""
        with self._write() as connection:
            batch = Batch(
                chain, max(self.newest_batch(chain), after) + 1, span, tuple(datasets), tuple(filters), worker_process
            )
            what = (json.dumps(batch.datasets), json.dumps(batch.filters))
            connection.execute(
                "INSERT INTO batches (chain, number, first, last, datasets, filters, lane) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (chain, batch.number, span.first, span.last, *what, worker_process),
            )
        return batch

    def newest_batch(self, chain: str) -> int:
        """The highest number of a chain's batches, done or not; 0 where there was none."""
        return int(self._read("SELECT coalesce(max(number), 0) FROM batches WHERE chain = ?", chain)[0][0])

    def open_batches(self, chain: str) -> list[Batch]:
        """Intents that were not carried out to the end, in the order of their numbers."""
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
        """Mark a batch done, add its indexed range and raise the anchor, in one transaction. Again: nothing changes.

        The anchor only rises: a hole that is filled lies below what is final already.
        """
        with self._write() as connection:
            connection.execute(
                "UPDATE batches SET done = 1 WHERE chain = ? AND number = ? AND done = 0", (batch.chain, batch.number)
            )
            if connection.changes():
                _indexed_ranges(connection, batch.chain, batch.datasets, batch.filters, batch.span)
                below = _anchor(connection, batch.chain)
                if anchor is not None and (below is None or below.height < anchor.height):
                    _set_anchor(connection, batch.chain, anchor)

    # --- accounts whose history is wanted ----------------------------------------------------------------------------

    def watch(self, chain: str, wanted: Iterable[Watch]) -> None:
        """Want the histories of accounts. What was wanted of one before is wanted still: the lower first height counts,
        and the higher last one."""
        with self._write() as connection:
            connection.executemany(
                "INSERT INTO watches (chain, account, owner, first, last) VALUES (?, ?, '', ?, ?) "
                "ON CONFLICT DO UPDATE SET "
                "first = min(first, excluded.first), last = max(last, excluded.last)",  # NULL, where one of them is
                [(chain, each.account, each.first, each.last) for each in wanted],
            )

    def unwatch(self, chain: str, account: str) -> bool:
        """No longer want the history of an account, unless its place is sold. Return True if a place was removed; what
        is stored of the account stays."""
        with self._write() as connection:
            connection.execute("DELETE FROM watches WHERE chain = ? AND account = ? AND sold = 0", (chain, account))
            return connection.changes() > 0

    def watches(self, chain: str, now_us: int | None = None) -> list[Watch]:
        """Return the accounts whose histories are wanted at a moment, each once; without it also those whose places
        have ended."""
        rows = self._read(
            "SELECT account, min(first), CASE WHEN count(last) = count(*) THEN max(last) END FROM watches "
            "WHERE chain = ? AND (expires_us IS NULL OR expires_us > ifnull(?, 0)) GROUP BY account ORDER BY account",
            chain, now_us,
        )  # fmt: skip
        return [Watch(*row) for row in rows]

    def places(self, chain: str, now_us: int) -> list[WatchPlace]:
        """Return the places that requests have at a moment, by account and owner."""
        rows = self._read(
            "SELECT account, owner, sold, expires_us FROM watches WHERE chain = ? AND expires_us > ? ORDER BY 1, 2",
            chain, now_us,
        )  # fmt: skip
        return [WatchPlace(account, owner, bool(sold), until_us) for account, owner, sold, until_us in rows]

    def add_sold_places(self, chain: str, first: int, places: Iterable[WatchPlace]) -> None:
        """Add places that were paid for, or extend them; again: nothing changes."""
        with self._write() as connection:
            watches.add_sold(connection, chain, first, places)

    def add_synced_places(
        self, chain: str, first: int, owner: str, accounts: Iterable[str], terms: PlaceTerms
    ) -> list[str]:
        """Add places of one owner that are not sold, or extend them; return the accounts without room."""
        with self._write() as connection:
            return watches.add_synced(connection, chain, first, owner, accounts, terms)

    def note(self, chain: str, ways: Iterable[tuple[str, str, str]], unexplained: Iterable[Unexplained]) -> None:
        """Keep in which ways datasets of accounts were found (account, dataset, way), and what is not explained."""
        with self._write() as connection:
            connection.executemany(
                "INSERT INTO ways VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", [(chain, *each) for each in ways]
            )
            connection.executemany(
                "INSERT INTO unexplained VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET raw = excluded.raw, reason = excluded.reason",
                [
                    (chain, each.account, each.height, str(each.asset), str(each.amount), each.reason)
                    for each in unexplained
                ],
            )

    def explained(self, chain: str, accounts: Iterable[str], span: Span) -> None:
        """Forget what was not explained of accounts at some heights: they are read anew."""
        with self._write() as connection:
            connection.executemany(
                "DELETE FROM unexplained WHERE chain = ? AND account = ? AND height BETWEEN ? AND ?",
                [(chain, account, span.first, span.last) for account in accounts],
            )

    def ways(self, chain: str, account: str) -> list[tuple[str, str]]:
        """The datasets of an account's history, and in which ways they were found."""
        return self._read("SELECT dataset, way FROM ways WHERE chain = ? AND account = ? ORDER BY 1, 2", chain, account)

    def unexplained(self, chain: str, account: str) -> list[tuple[int, str, int, str]]:
        """What is known to be missing of an account's history: height, asset, raw amount, reason."""
        found = self._read(
            "SELECT height, asset, raw, reason FROM unexplained WHERE chain = ? AND account = ? ORDER BY 1, 2",
            chain, account,
        )  # fmt: skip
        return [(height, asset, int(raw), reason) for height, asset, raw, reason in found]

    def keep_reconciliation(self, chain: str, account: str, span: Span, block_hash: str, result: bytes) -> None:
        """Keep what a comparison of an account's balances with its movements found, in the place of the last one. It
        ends where a block of its range goes or is indexed for the account. StoreError where its last one is another."""
        with self._write() as connection:
            here: list[Any] = connection.execute(
                "SELECT hash FROM blocks WHERE chain = ? AND height = ?", (chain, span.last)
            ).fetchall()
            if here and here[0][0] != block_hash:
                raise StoreError("tail", f"{chain}: block {span.last} is {here[0][0]} now, and no longer {block_hash}")
            connection.execute(
                "INSERT OR REPLACE INTO reconciliations VALUES (?, ?, ?, ?, ?, ?)",
                (chain, account, span.first, span.last, block_hash, result),
            )

    def reconciliations(self, chain: str) -> list[tuple[str, bytes]]:
        """The accounts whose balances were compared with their movements, and what was found, where it still stands."""
        return self._read("SELECT account, result FROM reconciliations WHERE chain = ? ORDER BY account", chain)

    def add_lookups(self, chain: str, lookups: Iterable[tuple[str, int, bytes]]) -> None:
        """Store what was read of transactions of final blocks: hash, height, details as JSON."""
        with self._write() as connection:
            sql = "INSERT OR IGNORE INTO lookups (tx_hash, height, details, chain) VALUES (?, ?, ?, ?)"
            connection.executemany(sql, [(*lookup, chain) for lookup in lookups])

    def lookups(self, chain: str, hashes: Iterable[str]) -> dict[str, bytes]:
        """Return the stored details of those transactions that have some, by hash."""
        sql = "SELECT tx_hash, details FROM lookups WHERE chain = ? AND tx_hash IN (SELECT value FROM json_each(?))"
        return dict(self._read(sql, chain, json.dumps(list(hashes))))

    # --- prices on their way to the lake -----------------------------------------------------------------------------

    def keep_prices(self, chain: str, block: Block, prices: Mapping[str, bytes]) -> dict[str, bytes]:
        """Keep prices of a block, by asset; what is kept of them then. The first that is kept stays. Without a hash
        the block is final."""
        with self._write() as connection:
            connection.executemany(
                "INSERT INTO prices (chain, height, hash, time_us, asset, price) VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT DO NOTHING",
                [(chain, block.height, block.hash, block.time_us, asset, price) for asset, price in prices.items()],
            )
            connection.execute(
                "DELETE FROM prices WHERE hash <> '' AND chain = ? AND number <= "
                "(SELECT max(number) FROM prices WHERE chain = ?) - ?",
                (chain, chain, MAX_WAITING_PRICES),
            )
            found: list[Any] = connection.execute(
                "SELECT asset, price FROM prices WHERE chain = ? AND height = ? AND hash = ?",
                (chain, block.height, block.hash),
            ).fetchall()
        return {asset: price for asset, price in found if asset in prices}

    def prices(self, chain: str, height: int) -> list[tuple[str, str, bytes]]:
        """The hash, the asset and the price of each that is kept here of a height."""
        return self._read("SELECT hash, asset, price FROM prices WHERE chain = ? AND height = ?", chain, height)

    def has_prices(self, chain: str) -> bool:
        """Whether any are kept here."""
        return bool(self._read("SELECT 1 FROM prices WHERE chain = ? LIMIT 1", chain))

    def last_final_price(self, chain: str) -> int | None:
        """The highest height of which prices are kept here as those of a final block."""
        found: int | None = self._read("SELECT max(height) FROM prices WHERE chain = ? AND hash = ''", chain)[0][0]
        return found

    def waiting_prices(self, chain: str, last: int) -> list[tuple[int, int, str, int, str, bytes]]:
        """The number, height, hash, time, asset and price of what is kept here up to a height, in order."""
        return self._read(
            "SELECT number, height, hash, time_us, asset, price FROM prices WHERE chain = ? AND height <= ? "
            "ORDER BY number",
            chain, last,
        )  # fmt: skip

    def lock_prices(self, chain: str) -> AbstractContextManager[None]:
        """Hold the way of a chain's prices to the lake, in this process alone; Busy where another one does."""
        return held(self.path.parent / "locks" / f"{chain}.prices.lock", store="tail", what=f"the prices of {chain}")

    def drop_prices(self, chain: str, numbers: Iterable[int]) -> None:
        """Forget prices: the lake has them now, or their block has left the chain."""
        with self._write() as connection:
            connection.executemany("DELETE FROM prices WHERE number = ?", [(each,) for each in numbers])

    # --- what endpoints taught us ------------------------------------------------------------------------------------

    def capabilities(self, endpoint: str) -> dict[str, int]:
        """Everything remembered about an endpoint."""
        return dict(self._read("SELECT name, value FROM learnt WHERE endpoint = ?", endpoint))

    def learn(self, endpoint: str, name: str, value: int) -> None:
        """Remember one fact about an endpoint, such as the largest span it answers."""
        with self._write() as connection:
            connection.execute(
                "INSERT INTO learnt (endpoint, name, value) VALUES (?, ?, ?) "
                "ON CONFLICT (endpoint, name) DO UPDATE SET value = excluded.value",
                (endpoint, name, value),
            )

    def quarantined(self, endpoint: str) -> bytes | None:
        """The evidence (JSON) for which an endpoint is asked nothing any more; None where it is not quarantined."""
        found = self._read("SELECT evidence FROM cordons WHERE endpoint = ?", endpoint)
        return found[0][0] if found else None

    def quarantine(self, endpoint: str, evidence: bytes) -> None:
        """Keep the evidence against an endpoint; the first stays."""
        with self._write() as connection:
            connection.execute(
                "INSERT INTO cordons (endpoint, evidence) VALUES (?, ?) ON CONFLICT DO NOTHING", (endpoint, evidence)
            )

    def reinstate(self, endpoint: str) -> bool:
        """Forget the evidence against an endpoint; whether there was any."""
        with self._write() as connection:
            connection.execute("DELETE FROM cordons WHERE endpoint = ?", (endpoint,))
            return connection.changes() > 0

    def _read(self, sql: str, *arguments: object) -> list[Any]:
        with said("tail", self.path), self._lock:
            return self._connection.execute(sql, arguments).fetchall()

    @contextmanager
    def _write(self) -> Iterator[apsw.Connection]:
        with said("tail", self.path), self._lock, writing(self._connection) as connection:
            yield connection


def _connected(path: Path, *, reader: bool = False) -> apsw.Connection:
    with said("tail", path):
        return connect(path, reader=reader)


def _top(connection: apsw.Connection, chain: str) -> Block | None:
    rows: list[Any] = connection.execute(
        "SELECT height, hash, parent, time_us FROM blocks WHERE chain = ? ORDER BY height DESC LIMIT 1", (chain,)
    ).fetchall()
    return Block(*rows[0]) if rows else None


def _anchor(connection: apsw.Connection, chain: str) -> Block | None:
    rows: list[Any] = connection.execute(
        "SELECT height, hash, parent, time_us FROM anchors WHERE chain = ?", (chain,)
    ).fetchall()
    return Block(*rows[0]) if rows else None


def _set_anchor(connection: apsw.Connection, chain: str, block: Block | None) -> None:
    connection.execute("DELETE FROM anchors WHERE chain = ?", (chain,))
    if block is not None:
        connection.execute(
            "INSERT INTO anchors (chain, height, hash, parent, time_us) VALUES (?, ?, ?, ?, ?)",
            (chain, block.height, block.hash, block.parent, block.time_us),
        )


def _below(connection: apsw.Connection, chain: str, block: Block) -> Block | None:
    """What a new block must stand on: the top, else the anchor, unless the tail starts anew higher up."""
    top = _top(connection, chain)
    if top is not None:
        return top
    anchor = _anchor(connection, chain)
    return anchor if anchor is not None and block.height <= anchor.height + 1 else None


def _check_link(chain: str, below: Block, block: Block) -> None:
    if block.height <= below.height or block.parent != below.hash:
        raise StoreError(
            "tail",
            f"{chain}: block {block.height} with parent {block.parent} does not stand on {below.height} {below.hash}",
        )


def _insert(connection: apsw.Connection, chain: str, entry: TailBlock) -> None:
    block = entry.block
    connection.execute(
        "INSERT INTO blocks (chain, height, hash, parent, time_us) VALUES (?, ?, ?, ?, ?)",
        (chain, block.height, block.hash, block.parent, block.time_us),
    )
    connection.executemany(
        "INSERT INTO rows (chain, name, height, ipc) VALUES (?, ?, ?, ?)",
        [(chain, name, block.height, ipc) for name, ipc in entry.rows.items()],
    )


def _forget_above(connection: apsw.Connection, chain: str, height: int) -> None:
    for table in ("blocks", "rows"):
        connection.execute(f"DELETE FROM {table} WHERE chain = ? AND height > ?", (chain, height))
    connection.execute("DELETE FROM cover WHERE chain = ? AND first > ?", (chain, height))
    connection.execute("UPDATE cover SET last = ? WHERE chain = ? AND last > ?", (height, chain, height))
    for table in ("unexplained", "lookups"):
        connection.execute(f"DELETE FROM {table} WHERE chain = ? AND height > ?", (chain, height))
    connection.execute("DELETE FROM reconciliations WHERE chain = ? AND last > ?", (chain, height))
    connection.execute("DELETE FROM prices WHERE chain = ? AND height > ?", (chain, height))


def _indexed_ranges(
    connection: apsw.Connection, chain: str, datasets: Iterable[str], filters: Sequence[str], span: Span
) -> None:
    """Merge a span into the stored ones: only those that touch it are read and written."""
    for dataset in datasets:
        for filter in filters:
            key = (chain, dataset, filter)
            touching: list[Any] = connection.execute(
                "DELETE FROM cover WHERE chain = ? AND dataset = ? AND filter = ? AND first <= ? AND last >= ? "
                "RETURNING first, last",
                (*key, span.last + 1, span.first - 1),
            ).fetchall()
            first = min([span.first, *(row[0] for row in touching)])
            last = max([span.last, *(row[1] for row in touching)])
            connection.execute("INSERT INTO cover VALUES (?, ?, ?, ?, ?)", (*key, first, last))
    for account in {account_of(filter) for filter in filters}:  # None: of every account
        connection.execute(
            "DELETE FROM reconciliations WHERE chain = ? AND first <= ? AND last >= ? AND account = ifnull(?, account)",
            (chain, span.last, span.first, account),
        )
