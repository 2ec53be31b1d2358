"""Tables made from other tables: no node is asked.

The histories (`account_transfers`, `account_actions`) follow their sources batch by batch; `balances` and `allowances`
are made whole each time. The caller holds the chain's lock. Decoding stored logs again is next door, in `rederive`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainfolio.blocks import Span, Spans
from chainfolio.errors import BadRequest
from chainfolio.tables import (
    ACCOUNT_ACTIONS,
    ACCOUNT_TRANSFERS,
    ALLOWANCES,
    APPROVALS,
    BALANCES,
    TRANSACTIONS,
    TRANSFERS,
    Table,
)
from storage.tail import Batch

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from storage.lake import Lake
    from storage.tail import Tail

DERIVED = ("account_transfers", "account_actions", "balances", "allowances")
DECODED = ("transfers", "approvals", "logs")
# Datasets whose rows are one standard of `transfers`; the dataset `transfers` has all others.
OWN = ("native", "internal")
# Tables that are made whole each time, and from what.
WHOLE = {"balances": (TRANSFERS, BALANCES), "allowances": (APPROVALS, ALLOWANCES)}
WINDOW_ROWS = 250_000


@dataclass(frozen=True, slots=True)
class History:
    """A table sorted by account, made from the rows of some datasets, each of which fills one table."""

    table: Table
    sources: Mapping[str, Table]


HISTORIES = {
    "account_transfers": History(ACCOUNT_TRANSFERS, dict.fromkeys(("transfers", *OWN), TRANSFERS)),
    "account_actions": History(ACCOUNT_ACTIONS, {"transactions": TRANSACTIONS, "approvals": APPROVALS}),
}
# What makes rows of a history from rows of a table: functions of `portfolio.ledger`.
MAKERS = {TRANSFERS.name: "account_transfers", TRANSACTIONS.name: "actions_sent", APPROVALS.name: "actions_allowed"}


def derive(lake: Lake, tail: Tail, chain: str, wanted: Sequence[str] = DERIVED) -> dict[str, int]:
    """Bring the derived tables up to what is in the lake; how many rows were written to each."""
    recover(lake, tail, chain)
    written = {}
    for name, history in HISTORIES.items():
        if name in wanted:
            written[name] = sum(_follow(lake, tail, chain, name, source) for source in history.sources)
    for name, (source, target) in WHOLE.items():
        if name in wanted:
            rows = whole(lake, tail, chain, name)
            if lake.exists(source):
                lake.replace(target, chain, rows)
            written[name] = len(rows)
    return written


def in_lake(tail: Tail, chain: str, dataset: str, filter_: str = "") -> Spans:
    """The part of a dataset's cover that is in the lake: what the tail still holds is not there yet."""
    # Looked at before and after: blocks come to the tail, and leave it for the lake, while this is read.
    kept = tail.blocks(chain)[:1]
    cover = tail.cover(chain, dataset, filter_)
    kept += tail.blocks(chain)[:1]
    lowest = min((block.height for block in kept), default=None)
    return cover if lowest is None else cover - [Span(lowest, max(lowest, *(span.last for span in cover), 0))]


def pending(tail: Tail, chain: str, source: str, filter_: str) -> Spans:
    """Heights whose rows of one source are in the lake, but not in its history yet."""
    name = next(f"{name}/{source}" for name, history in HISTORIES.items() if source in history.sources)
    done = tail.cover(chain, name, filter_) | (tail.cover(chain, name, "") if filter_ else ())
    return in_lake(tail, chain, source, filter_) - done


def whole(lake: Lake, tail: Tail, chain: str, name: str) -> pa.Table:
    """The rows of `balances` or `allowances` of a chain, from all that is in the lake."""
    import polars as pl

    from portfolio import ledger

    source, target = WHOLE[name]
    if not lake.exists(source):
        return target.schema().empty_table()
    filters = tail.cover_filters(chain, source.name)
    height = max((span.last for filter_ in filters for span in in_lake(tail, chain, source.name, filter_)), default=0)
    compute: Callable[[pl.LazyFrame], pl.DataFrame] = getattr(ledger, name)
    frame = compute(lake.scan(source, chain=chain)).with_columns(pl.lit(height, pl.Int64).alias("height"))
    return in_schema(frame.with_columns(pl.lit(chain).alias("chain")), target)


def in_schema(frame: pl.DataFrame, table: Table) -> pa.Table:
    """A frame as Arrow in a table's own columns and types."""
    return frame.select(table.names).to_arrow().cast(table.schema())


# --- histories -------------------------------------------------------------------------------------------------------


def _follow(lake: Lake, tail: Tail, chain: str, name: str, source: str) -> int:
    """Rows of a history for the spans of one source dataset that have none yet."""
    written = 0
    for filter_ in tail.cover_filters(chain, source):
        for span in pending(tail, chain, source, filter_):
            for window in _windows(lake, chain, span, HISTORIES[name].sources[source]):
                after = max(lake.last(history.table, f"{chain}/derive") for history in HISTORIES.values())
                batch = tail.open_batch(chain, window, (f"{name}/{source}",), (filter_,), after=after)
                written += _commit(lake, tail, batch)
    return written


def _made_from(table: Table, rows: pl.DataFrame, history: History) -> pa.Table:
    from portfolio import ledger

    make: Callable[[pl.DataFrame], pl.DataFrame] = getattr(ledger, MAKERS[table.name])
    return in_schema(make(rows), history.table)


def _rows(lake: Lake, tail: Tail, batch: Batch) -> pa.Table:
    """One batch of a history, made from the rows that are in the lake: the same whenever it is made."""
    name, source = batch.datasets[0].split("/")
    rows = _source_rows(lake, tail, batch, HISTORIES[name].sources[source]).collect()
    return _made_from(HISTORIES[name].sources[source], rows, HISTORIES[name])


def _commit(lake: Lake, tail: Tail, batch: Batch) -> int:
    rows = _rows(lake, tail, batch)
    table = HISTORIES[batch.datasets[0].split("/")[0]].table
    lake.append(table, rows, stream=f"{batch.chain}/derive", batch=batch.number)
    tail.close_batch(batch)
    return len(rows)


def _source_rows(lake: Lake, tail: Tail, batch: Batch, table: Table) -> pl.LazyFrame:
    """The source's rows of a batch: of one contract, or of all but those whose turn has been."""
    import polars as pl

    dataset, filter_ = batch.datasets[0], batch.filters[0]
    rows = lake.scan(table, chain=batch.chain).filter(_within(batch.span))
    if table is TRANSFERS:
        source = dataset.rpartition("/")[2]
        rows = rows.filter(pl.col("standard") == source if source in OWN else ~pl.col("standard").is_in(OWN))
    if filter_:
        return rows.filter(pl.col("token") == filter_)
    for contract in tail.cover_filters(batch.chain, dataset):
        for span in tail.cover(batch.chain, dataset, contract) & [batch.span] if contract else ():
            rows = rows.filter(~(_within(span) & (pl.col("token") == contract)))
    return rows


def _within(span: Span) -> pl.Expr:
    import polars as pl

    return pl.col("height").is_between(span.first, span.last)


def recover(lake: Lake, tail: Tail, chain: str) -> None:
    """Finish the derivations that a killed process, or a full disk, left open."""
    for batch in tail.open_batches(chain):
        if batch.datasets[0].split("/")[0] in HISTORIES:
            _commit(lake, tail, batch)


def _windows(lake: Lake, chain: str, span: Span, table: Table) -> Iterator[Span]:
    """A span in pieces of about a quarter of a million rows, so that memory does not grow with history."""
    heights = lake.scan(table, chain=chain).filter(_within(span)).group_by("height").len().sort("height").collect()
    first, rows = span.first, 0
    for height, count in heights.iter_rows():
        if rows and rows + count > WINDOW_ROWS:
            yield Span(first, height - 1)
            first, rows = height, 0
        rows += count
    yield Span(first, span.last)


# --- decoding again --------------------------------------------------------------------------------------------------


def check(names: Sequence[str]) -> None:
    """Every name is a table that is decoded from logs or derived from others; BadRequest with what there is."""
    known = (*DECODED, *DERIVED)
    for name in names:
        if name not in known:
            raise BadRequest("tables", f"`{name}` cannot be derived", cure=f"there are: {', '.join(known)}")


def again(lake: Lake, tail: Tail, chain: str, name: str) -> int:
    """A history made whole again from all of its sources, for after those have changed; how many rows."""
    history = HISTORIES[name]
    derive(lake, tail, chain, (name,))

    def batches() -> Iterator[pa.RecordBatch]:
        for table in dict.fromkeys(history.sources.values()):
            covered = _stored_span(lake, chain, table)
            for window in _windows(lake, chain, covered, table) if covered else ():
                rows = lake.scan(table, chain=chain).filter(_within(window)).collect()
                yield from _made_from(table, rows, history).to_batches()

    counted = Counted(batches())
    lake.replace(history.table, chain, counted)
    return counted.rows


def of_cover(lake: Lake, tail: Tail, chain: str, name: str) -> Iterator[pa.RecordBatch]:
    """The rows that a history of a chain has by its cover, made again: for a table of another revision.

    What a killed process had committed, and not closed, counts as covered.
    """
    history = HISTORIES[name]
    committed = lake.last(history.table, f"{chain}/derive")
    for batch in tail.open_batches(chain):
        if batch.datasets[0].split("/")[0] == name and batch.number <= committed:
            tail.close_batch(batch)
    for source, table in history.sources.items():
        for filter_ in tail.cover_filters(chain, f"{name}/{source}"):
            for span in tail.cover(chain, f"{name}/{source}", filter_):
                for window in _windows(lake, chain, span, table):
                    yield from _rows(
                        lake, tail, Batch(chain, 0, window, (f"{name}/{source}",), (filter_,))
                    ).to_batches()


class Counted:
    """Record batches, counted as they pass."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches, self.rows = batches, 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


def _stored_span(lake: Lake, chain: str, table: Table) -> Span | None:
    import polars as pl

    ends = [pl.col("height").min().alias("first"), pl.col("height").max().alias("last")]
    first, last = lake.scan(table, chain=chain).select(ends).collect().row(0)
    return None if first is None else Span(first, last)
