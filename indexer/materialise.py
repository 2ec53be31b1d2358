"""Tables made from other tables: no node is asked.

The histories of accounts (`account_transfers`, `account_approvals`, `account_transactions`, `account_events`) follow
their sources batch by batch; `balances` and `allowances` are made whole each time. The caller holds the chain's lock.
Decoding stored logs again is next door, in `reprocess`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainfolio import kinds
from chainfolio.blocks import Span, Spans
from chainfolio.errors import BadRequest
from chainfolio.tables import ALLOWANCES, APPROVALS, BALANCES, LOGS, TABLES, TRANSACTIONS, TRANSFERS, Table
from storage.tail import Batch

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from storage.lake import Lake
    from storage.tail import Tail

DECODED = ("transfers", "approvals", "logs")


@dataclass(frozen=True, slots=True)
class History:
    """A table by account: its name, and the table that its rows come from."""

    name: str
    source: Table

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets that fill it."""
        return tuple(each.name for each in kinds.datasets().values() if each.history == self.name)


HISTORIES = {
    each.name: each
    for each in (
        History("account_transfers", TRANSFERS),
        History("account_approvals", APPROVALS),
        History("account_transactions", TRANSACTIONS),
        History("account_events", LOGS),
    )
}
# Tables that are made whole each time, and from what.
WHOLE = {"balances": (TRANSFERS, BALANCES), "allowances": (APPROVALS, ALLOWANCES)}
DERIVED = (*HISTORIES, *WHOLE)
WINDOW_ROWS = 50_000


def materialise(lake: Lake, tail: Tail, chain: str, wanted: Sequence[str] = DERIVED) -> dict[str, int]:
    """Bring the derived tables up to what is in the lake; how many rows were written to each."""
    recover(lake, tail, chain)
    written = {}
    for name, history in HISTORIES.items():
        if name in wanted:
            written[name] = sum(_follow(lake, tail, chain, name, source) for source in history.datasets)
    for name, (source, target) in WHOLE.items():
        if name in wanted:
            rows = whole(lake, tail, chain, name)
            if lake.exists(source):
                lake.replace(target, chain, rows)
            written[name] = len(rows)
    return written


def indexed_in_lake(tail: Tail, chain: str, dataset: str, filter_: str = "") -> Spans:
    """The part of a dataset's cover that is in the lake: what the tail still holds is not there yet."""
    # Looked at before and after: blocks come to the tail, and leave it for the lake, while this is read.
    kept = tail.blocks(chain)[:1]
    indexed_ranges = tail.indexed_ranges(chain, dataset, filter_)
    kept += tail.blocks(chain)[:1]
    lowest = min((block.height for block in kept), default=None)
    return (
        indexed_ranges
        if lowest is None
        else indexed_ranges - [Span(lowest, max(lowest, *(span.last for span in indexed_ranges), 0))]
    )


def pending(tail: Tail, chain: str, source: str, filter_: str) -> Spans:
    """Heights whose rows of one source dataset are in the lake, but not in the history that they belong to yet."""
    name = next(f"{name}/{source}" for name, history in HISTORIES.items() if source in history.datasets)
    done = tail.indexed_ranges(chain, name, filter_) | (tail.indexed_ranges(chain, name, "") if filter_ else ())
    return indexed_in_lake(tail, chain, source, filter_) - done


def unmaterialised(tail: Tail, chain: str, history: Table) -> Spans:
    """Heights whose rows are in the lake, but not all in a history that they belong to yet."""
    behind = Spans()
    for source in HISTORIES[history.name].datasets:
        for filter_ in tail.indexed_filters(chain, source):
            behind |= pending(tail, chain, source, filter_)
    return behind


def whole(lake: Lake, tail: Tail, chain: str, name: str) -> pa.Table:
    """The rows of `balances` or `allowances` of a chain, from all that is in the lake."""
    import polars as pl

    from portfolio import ledger

    source, target = WHOLE[name]
    if not lake.exists(source):
        return target.schema().empty_table()
    filters = tail.indexed_filters(chain, source.name)
    height = max(
        (span.last for filter_ in filters for span in indexed_in_lake(tail, chain, source.name, filter_)), default=0
    )
    compute: Callable[[pl.LazyFrame], pl.DataFrame] = getattr(ledger, name)
    frame = compute(lake.scan(source, chain=chain)).with_columns(pl.lit(height, pl.Int64).alias("height"))
    return in_schema(frame.with_columns(pl.lit(chain).alias("chain")), target)


def in_schema(frame: pl.DataFrame, table: Table) -> pa.Table:
    """A frame as Arrow in a table's own columns and types."""
    return frame.select(table.names).to_arrow().cast(table.schema())


# --- histories of accounts -------------------------------------------------------------------------------------------


def _follow(lake: Lake, tail: Tail, chain: str, name: str, source: str) -> int:
    """Rows of a history for the spans of one source dataset that have none yet."""
    written = 0
    for spans, filters in _underlying(tail, chain, source):
        for span in spans:
            for window in _windows(lake, chain, span, HISTORIES[name].source):
                after = lake.last(TABLES[name], f"{chain}/derive")
                batch = tail.open_batch(chain, window, (f"{name}/{source}",), filters, after=after)
                written += _commit(lake, tail, batch)
    return written


def _underlying(tail: Tail, chain: str, source: str) -> Iterator[tuple[Spans, tuple[str, ...]]]:
    """What has no history yet, and of which filters: everything first, which may be all that the others lack; then
    those that lack the same together."""
    if left := pending(tail, chain, source, ""):
        yield left, ("",)
    lacking: dict[Spans, list[str]] = {}
    for filter_ in filter(None, tail.indexed_filters(chain, source)):
        if left := pending(tail, chain, source, filter_):
            lacking.setdefault(left, []).append(filter_)
    yield from ((spans, tuple(filters)) for spans, filters in lacking.items())


def _history_of(batch: Batch) -> str:
    """The history that a batch is for; empty where it is for none."""
    name = batch.datasets[0].partition("/")[0]
    return name if name in HISTORIES else ""


def _rows(lake: Lake, tail: Tail, batch: Batch) -> pa.Table:
    """One batch of a history, made from the rows that are in its source: the same whenever it is made."""
    name = _history_of(batch)
    return in_schema(_compute(name)(_source_rows(lake, tail, batch, HISTORIES[name].source).collect()), TABLES[name])


def _compute(name: str) -> Callable[[pl.DataFrame], pl.DataFrame]:
    from portfolio import ledger

    compute: Callable[[pl.DataFrame], pl.DataFrame] = getattr(ledger, name)
    return compute


def _commit(lake: Lake, tail: Tail, batch: Batch) -> int:
    table = _rows(lake, tail, batch)
    lake.append(TABLES[_history_of(batch)], table, stream=f"{batch.chain}/derive", batch=batch.number)
    tail.close_batch(batch)
    return len(table)


def _source_rows(lake: Lake, tail: Tail, batch: Batch, source: Table) -> pl.LazyFrame:
    """The source rows of a batch: of its filters, or of all but those whose turn has been."""
    import polars as pl

    dataset = batch.datasets[0]
    rows = lake.scan(source, chain=batch.chain, heights=[batch.span]).filter(_within(batch.span))
    known = kinds.datasets()
    if every := [standard for each in known.values() if each.table is source for standard in each.standards]:
        own = known[dataset.rpartition("/")[2]].standards
        rows = rows.filter(pl.col("standard").is_in(own) if own else ~pl.col("standard").is_in(every))
    if source is LOGS:
        return rows.filter(of_events(batch.filters))
    if batch.filters != ("",):
        return rows.filter(pl.col("token").is_in(batch.filters))
    for contract in tail.indexed_filters(batch.chain, dataset):
        for span in tail.indexed_ranges(batch.chain, dataset, contract) & [batch.span] if contract else ():
            rows = rows.filter(~(_within(span) & (pl.col("token") == contract)))
    return rows


def _within(span: Span) -> pl.Expr:
    import polars as pl

    return pl.col("height").is_between(span.first, span.last)


def of_events(filters: Collection[str]) -> pl.Expr:
    """Which logs, or rows of `account_events`, are of some filters of the dataset `events`."""
    import polars as pl

    return pl.concat_str("address", pl.lit("/"), "topic0").is_in(sorted(filters))


def recover(lake: Lake, tail: Tail, chain: str) -> None:
    """Finish the derivations that a killed process, or a full disk, left open."""
    for batch in tail.open_batches(chain):
        if _history_of(batch):
            _commit(lake, tail, batch)


def _windows(lake: Lake, chain: str, span: Span, source: Table) -> Iterator[Span]:
    """A span in pieces of about `WINDOW_ROWS` rows, so that memory does not grow with history."""
    inside = lake.scan(source, chain=chain, heights=[span]).filter(_within(span))
    heights = inside.group_by("height").len().sort("height").collect()
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
            raise BadRequest("tables", f"`{name}` cannot be derived", remedy=f"there are: {', '.join(known)}")


def history_again(lake: Lake, tail: Tail, chain: str, name: str) -> int:
    """A history made whole again from all of its source, for after that has changed; how many rows."""
    materialise(lake, tail, chain, (name,))
    source = HISTORIES[name].source
    if source is LOGS:  # which has others beside those that a history is made of
        counted = Counted(history_of_indexed(lake, tail, chain, name))
        lake.replace(TABLES[name], chain, counted)
        return counted.rows

    def batches() -> Iterator[pa.RecordBatch]:
        covered = _stored_span(lake, chain, (source,))
        for window in _windows(lake, chain, covered, source) if covered else ():
            rows = lake.scan(source, chain=chain, heights=[window]).filter(_within(window)).collect()
            yield from in_schema(_compute(name)(rows), TABLES[name]).to_batches()

    counted = Counted(batches())
    lake.replace(TABLES[name], chain, counted)
    return counted.rows


def history_of_indexed(lake: Lake, tail: Tail, chain: str, name: str) -> Iterator[pa.RecordBatch]:
    """The rows that a history of a chain has by its cover, made again: for a table of another revision.

    What a killed process had committed, and not closed, counts as covered.
    """
    committed = lake.last(TABLES[name], f"{chain}/derive")
    for batch in tail.open_batches(chain):
        if _history_of(batch) == name and batch.number <= committed:
            tail.close_batch(batch)
    for dataset in (f"{name}/{source}" for source in HISTORIES[name].datasets):
        for filter_ in tail.indexed_filters(chain, dataset):
            for span in tail.indexed_ranges(chain, dataset, filter_):
                for window in _windows(lake, chain, span, HISTORIES[name].source):
                    yield from _rows(lake, tail, Batch(chain, 0, window, (dataset,), (filter_,))).to_batches()


class Counted:
    """Record batches, counted as they pass."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches, self.rows = batches, 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


def _stored_span(lake: Lake, chain: str, tables: Sequence[Table]) -> Span | None:
    import polars as pl

    ends = [pl.col("height").min().alias("first"), pl.col("height").max().alias("last")]
    found = [lake.scan(table, chain=chain).select(ends).collect().row(0) for table in tables]
    known = [(first, last) for first, last in found if first is not None]
    return Span(min(first for first, _ in known), max(last for _, last in known)) if known else None
