"""Derive tables from other tables, without requests to nodes.

The histories of accounts (`account_transfers`, `account_approvals`, `account_transactions`, `account_events`) follow
their sources batch by batch. `balances` and `allowances` are replaced as a whole. The caller holds the chain's lock.
`reprocess` decodes stored logs again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainfolio import kinds
from chainfolio.blocks import Span, Spans
from chainfolio.datasets import restorable_tables
from chainfolio.errors import BadRequest
from chainfolio.indexer.scopes import NO_END, accounts_of
from chainfolio.scopes import account_of
from chainfolio.storage.tail import Batch
from chainfolio.table import Table
from chainfolio.tables import ALLOWANCES, APPROVALS, BALANCES, LOGS, TABLES, TRANSACTIONS, TRANSFERS

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail


@dataclass(frozen=True, slots=True)
class History:
    """A table by account: its name, and its source table."""

    name: str
    source: Table

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets from which it is derived."""
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
# Tables that are replaced as a whole: source and table.
STATE_TABLES = {"balances": (TRANSFERS, BALANCES), "allowances": (APPROVALS, ALLOWANCES)}
DERIVED = (*HISTORIES, *STATE_TABLES)
WINDOW_ROWS = 100_000


def materialise(lake: Lake, tail: Tail, chain: str, names: Sequence[str] = DERIVED) -> dict[str, int]:
    """Update the derived tables `names` from the lake. Return the number of rows written to each.

    Interrupted updates are finished first. Histories get the rows that they lack; tables of state are replaced.
    """
    recover(lake, tail, chain)
    row_counts = {}
    for name, history in HISTORIES.items():
        if name in names:
            row_counts[name] = sum(_follow(lake, tail, chain, name, source) for source in history.datasets)
    for name, (source, target) in STATE_TABLES.items():
        if name in names:
            rows = current_state(lake, tail, chain, name)
            if lake.exists(source):
                lake.replace(target, chain, rows)
            row_counts[name] = len(rows)
    return row_counts


def pending_size(lake: Lake, tail: Tail, chain: str, name: str) -> tuple[int, int]:
    """Return how many rows (an upper bound) and heights a history lacks. Only a log is read."""
    spans, source = unmaterialised(tail, chain, TABLES[name]), HISTORIES[name].source
    files = [file for file in lake.entries(source) if file.chain == chain] if spans else []
    rows = sum(file.rows for file in files if spans & [Span(file.first, file.last)])
    return rows, sum(span.last - span.first + 1 for span in spans)


def indexed_in_lake(tail: Tail, chain: str, dataset: str, filter_: str = "") -> Spans:
    """Return the part of a dataset's indexed ranges that is in the lake, without the tail's blocks."""
    return _by_filter_in_lake(tail, chain, dataset).get(filter_, Spans())


def _by_filter_in_lake(tail: Tail, chain: str, dataset: str) -> dict[str, Spans]:
    """Return the indexed ranges by filter, only below the lowest block of the tail."""
    # Read before and after: blocks enter and leave the tail meanwhile.
    before, ranges, after = tail.lowest(chain), tail.ranges_by_filter(chain, dataset), tail.lowest(chain)
    lowest = min((block.height for block in (before, after) if block is not None), default=None)
    if lowest is None:
        return ranges
    below = {spans: spans - [Span(lowest, NO_END)] for spans in set(ranges.values())}
    return {filter_: below[spans] for filter_, spans in ranges.items()}


def pending(tail: Tail, chain: str, source: str, filter_: str) -> Spans:
    """Return heights with rows of a source dataset in the lake that are not in their history yet."""
    return _pending(tail, chain, source).get(filter_, Spans())


def _pending(tail: Tail, chain: str, source: str) -> dict[str, Spans]:
    """Return the heights that are in the lake and not in the history, by filter; others are absent."""
    name = next(f"{name}/{source}" for name, history in HISTORIES.items() if source in history.datasets)
    derived = tail.ranges_by_filter(chain, name)
    unfiltered = derived.get("", Spans())
    both = {
        filter_: (spans, derived.get(filter_, Spans()))
        for filter_, spans in _by_filter_in_lake(tail, chain, source).items()
    }
    missing = {each: each[0] - each[1] - unfiltered for each in set(both.values())}
    return {filter_: missing[each] for filter_, each in both.items() if missing[each]}


def unmaterialised(tail: Tail, chain: str, history: Table) -> Spans:
    """Return heights with rows in the lake that are not in one of their histories yet."""
    spans = [span for source in HISTORIES[history.name].datasets for span in _spans(_pending(tail, chain, source))]
    return Spans(spans)


def _spans(by_filter: Mapping[str, Spans]) -> Iterator[Span]:
    yield from {span for spans in set(by_filter.values()) for span in spans}


def current_state(lake: Lake, tail: Tail, chain: str, name: str) -> pa.Table:
    """Return the rows of `balances` or `allowances` of a chain, computed from the whole lake.

    Writes nothing. If only some accounts are indexed, the rows of others are left out.
    """
    import polars as pl

    from chainfolio.portfolio import ledger

    source, target = STATE_TABLES[name]
    if not lake.exists(source):
        return target.schema().empty_table()
    ranges = _by_filter_in_lake(tail, chain, source.name)
    height = max((span.last for span in _spans(ranges)), default=0)
    compute: Callable[[pl.LazyFrame], pl.DataFrame] = getattr(ledger, name)
    frame = compute(lake.scan(source, chain=chain)).with_columns(pl.lit(height, pl.Int64).alias("height"))
    if any(spans - ranges.get("", ()) for filter_, spans in ranges.items() if account_of(filter_)):
        # Accounts that only appear in transfers of indexed accounts have incomplete rows, and are left out.
        frame = frame.filter(pl.col(target.order[0]).is_in(accounts_of(ranges)) | pl.col("token").is_in(list(ranges)))
    return in_schema(frame.with_columns(pl.lit(chain).alias("chain")), target)


def in_schema(frame: pl.DataFrame, table: Table) -> pa.Table:
    """Return a frame as Arrow with a table's columns and types."""
    return frame.select(table.names).to_arrow().cast(table.schema())


# --- histories of accounts -------------------------------------------------------------------------------------------


def _follow(lake: Lake, tail: Tail, chain: str, name: str, source: str) -> int:
    """Add rows to a history for the spans of one source dataset that it lacks. Return their number."""
    row_count = 0
    for spans, filters in _missing_spans(tail, chain, source):
        for span in spans:
            for window in _windows(lake, chain, span, HISTORIES[name].source):
                after = lake.last(TABLES[name], f"{chain}/derive")
                batch = tail.open_batch(chain, window, (f"{name}/{source}",), filters, after=after)
                row_count += _commit(lake, tail, batch)
    return row_count


def _missing_spans(tail: Tail, chain: str, source: str) -> Iterator[tuple[Spans, tuple[str, ...]]]:
    """Yield missing spans of a history with their filters.

    All rows (`""`) come first, which may include the others; then filters with equal missing spans together.
    """
    if missing := _pending(tail, chain, source).get(""):
        yield missing, ("",)
    filters_by_spans: dict[tuple[Spans, bool], list[str]] = {}
    for filter_, missing in _pending(tail, chain, source).items():
        if filter_:
            filters_by_spans.setdefault((missing, account_of(filter_) is not None), []).append(filter_)
    yield from ((spans, tuple(filters)) for (spans, _), filters in filters_by_spans.items())


def _history_of(batch: Batch) -> str:
    """Return the history that a batch belongs to; empty if it belongs to none."""
    name = batch.datasets[0].partition("/")[0]
    return name if name in HISTORIES else ""


def _rows(lake: Lake, tail: Tail, batch: Batch) -> pa.Table:
    """Return one batch of a history, made from its source, without the rows that it has already."""
    name = _history_of(batch)
    rows = _source_rows(lake, batch, of_filters(HISTORIES[name], batch.filters))
    return _in_buckets(name, _without_existing(lake, tail, batch, rows.collect()))


def _in_buckets(name: str, source: pl.DataFrame) -> pa.Table:
    from chainfolio.portfolio import ledger

    return in_schema(ledger.in_buckets(TABLES[name], source), TABLES[name])


def _commit(lake: Lake, tail: Tail, batch: Batch) -> int:
    table = _rows(lake, tail, batch)
    lake.append(TABLES[_history_of(batch)], table, stream=f"{batch.chain}/derive", batch=batch.number)
    tail.close_batch(batch)
    return len(table)


def _source_rows(lake: Lake, batch: Batch, condition: pl.Expr) -> pl.LazyFrame:
    """Return the rows of a batch's source dataset in its span that match a condition."""
    import polars as pl

    source, dataset = HISTORIES[_history_of(batch)].source, batch.datasets[0]
    rows = lake.scan(source, chain=batch.chain, heights=[batch.span]).filter(_in_span(batch.span) & condition)
    dataset_types = kinds.datasets()
    if every := [standard for each in dataset_types.values() if each.table is source for standard in each.standards]:
        standards = dataset_types[dataset.rpartition("/")[2]].standards
        rows = rows.filter(pl.col("standard").is_in(standards) if standards else ~pl.col("standard").is_in(every))
    return rows


def of_filters(history: History, filters: Collection[str]) -> pl.Expr:
    """Return the condition for rows of the source that belong to some filters.

    Filters are accounts, `address/topic0` of events, or tokens; the empty filter is all rows of a table of tokens.
    Either all filters are accounts, or none is.
    """
    import polars as pl

    from chainfolio.portfolio.ledger import rows_of_accounts

    if accounts := accounts_of(filters):
        return rows_of_accounts(TABLES[history.name], accounts)
    if history.source is LOGS:
        return of_events(filters)
    return pl.lit(True) if "" in filters else pl.col("token").is_in(filters)


def _without_existing(lake: Lake, tail: Tail, batch: Batch, rows: pl.DataFrame) -> pl.DataFrame:
    """Return source rows that are not in the batch's history yet.

    If an account's history has a row, so have the other accounts of the row: checking one account is enough.
    """
    derived = tail.ranges_by_filter(batch.chain, batch.datasets[0])
    nearby = {filter_: spans for filter_, ranges in derived.items() if (spans := ranges & [batch.span])}
    if batch.filters == ("",):
        for contract in nearby:
            for span in nearby[contract] if contract and account_of(contract) is None else ():
                rows = rows.filter(~(_in_span(span) & of_filters(HISTORIES[_history_of(batch)], (contract,))))
    accounts = accounts_of(batch.filters) or accounts_of(nearby)
    if not nearby or not accounts or rows.is_empty():
        return rows
    table = TABLES[_history_of(batch)]
    key = [name for name in table.key if name in rows.columns and name != "chain"]
    existing = lake.of_accounts(table, batch.chain, accounts, key).filter(_in_span(batch.span)).collect()
    return rows.join(existing, on=key, how="anti", maintain_order="left")


def _in_span(span: Span) -> pl.Expr:
    import polars as pl

    return pl.col("height").is_between(span.first, span.last)


def of_events(filters: Collection[str]) -> pl.Expr:
    """Return the condition for logs, or rows of `account_events`, of some filters of the dataset `events`."""
    import polars as pl

    return pl.concat_str("address", pl.lit("/"), "topic0").is_in(sorted(filters))


def recover(lake: Lake, tail: Tail, chain: str) -> None:
    """Finish the batches of histories that a killed process, or a full disk, left open."""
    for batch in tail.open_batches(chain):
        if _history_of(batch):
            _commit(lake, tail, batch)


def _windows(lake: Lake, chain: str, span: Span, source: Table) -> Iterator[Span]:
    """Split a span into pieces of about `WINDOW_ROWS` rows, to bound the memory."""
    rows_in_span = lake.scan(source, chain=chain, heights=[span]).filter(_in_span(span))
    heights = rows_in_span.group_by("height").len().sort("height").collect()
    first, rows = span.first, 0
    for height, count in heights.iter_rows():
        if rows and rows + count > WINDOW_ROWS:
            yield Span(first, height - 1)
            first, rows = height, 0
        rows += count
    yield Span(first, span.last)


# --- decoding again --------------------------------------------------------------------------------------------------


def decoded_tables() -> tuple[str, ...]:
    """Return the names of the tables that are decoded from logs, on chains of any kind."""
    return tuple(table.name for table in restorable_tables(kinds.datasets().values()))


def check_tables(names: Sequence[str]) -> None:
    """Check that each table is decoded from logs or derived from other tables.

    Raises:
        BadRequest: A table is neither.
    """
    tables = (*decoded_tables(), *DERIVED)
    for name in names:
        if name not in tables:
            raise BadRequest("tables", f"`{name}` cannot be derived", remedy=f"there are: {', '.join(tables)}")


def rebuild_history(lake: Lake, tail: Tail, chain: str, name: str) -> int:
    """Rebuild a history from all of its source, after the source has changed. Return its number of rows.

    The history is updated first, then replaced in one commit.
    """
    materialise(lake, tail, chain, (name,))
    source = HISTORIES[name].source
    if source is LOGS:  # has rows that belong to no history, too
        counted_batches = CountedBatches(rebuilt_history(lake, tail, chain, name))
        lake.replace(TABLES[name], chain, counted_batches)
        return counted_batches.rows

    def batches() -> Iterator[pa.RecordBatch]:
        covered = _stored_span(lake, chain, (source,))
        for window in _windows(lake, chain, covered, source) if covered else ():
            rows = lake.scan(source, chain=chain, heights=[window]).filter(_in_span(window)).collect()
            yield from _in_buckets(name, rows).to_batches()

    counted_batches = CountedBatches(batches())
    lake.replace(TABLES[name], chain, counted_batches)
    return counted_batches.rows


def rebuilt_history(lake: Lake, tail: Tail, chain: str, name: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a chain's history must have by its indexed ranges.

    Batches that a killed process committed but did not close count as indexed. It closes them.
    """
    committed = lake.last(TABLES[name], f"{chain}/derive")
    for batch in tail.open_batches(chain):
        if _history_of(batch) == name and batch.number <= committed:
            tail.close_batch(batch)
    for dataset in (f"{name}/{source}" for source in HISTORIES[name].datasets):
        ranges = tail.ranges_by_filter(chain, dataset)
        for span in Spans(_spans(ranges)):
            for window in _windows(lake, chain, span, HISTORIES[name].source):
                batch = Batch(chain, 0, window, (dataset,))
                rows = _source_rows(lake, batch, _of_ranges(HISTORIES[name], ranges, window))
                yield from _in_buckets(name, rows.collect()).to_batches()


def _of_ranges(history: History, ranges: Mapping[str, Spans], window: Span) -> pl.Expr:
    """Return the condition for source rows that a history has in a window, by filters and their heights."""
    import polars as pl

    filters_by_spans: dict[tuple[Spans, bool], list[str]] = {}
    for filter_, spans in ranges.items():
        if nearby := spans & [window]:
            filters_by_spans.setdefault((nearby, account_of(filter_) is not None), []).append(filter_)
    return pl.any_horizontal(
        pl.lit(False),
        *(
            pl.any_horizontal(*map(_in_span, spans)) & of_filters(history, filters)
            for (spans, _), filters in filters_by_spans.items()
        ),
    )


class CountedBatches:
    """Record batches, counted while they are iterated."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches, self.rows = batches, 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


def _stored_span(lake: Lake, chain: str, tables: Sequence[Table]) -> Span | None:
    """Return the span from the lowest to the highest height in the lake's tables, None without rows."""
    import polars as pl

    ends = [pl.col("height").min().alias("first"), pl.col("height").max().alias("last")]
    extents = [lake.scan(table, chain=chain).select(ends).collect().row(0) for table in tables]
    nonempty = [(first, last) for first, last in extents if first is not None]
    return Span(min(first for first, _ in nonempty), max(last for _, last in nonempty)) if nonempty else None
