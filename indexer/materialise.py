"""Tables made from other tables: no node is asked.

The histories of accounts (`account_transfers`, `account_approvals`, `account_transactions`, `account_events`) follow
their sources batch by batch; `balances` and `allowances` are made whole each time. The caller holds the chain's lock.
Decoding stored logs again is next door, in `reprocess`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainfolio import kinds
from chainfolio.blocks import Span, Spans
from chainfolio.datasets import restored
from chainfolio.errors import BadRequest
from chainfolio.scopes import account_of
from chainfolio.table import Table
from chainfolio.tables import ALLOWANCES, APPROVALS, BALANCES, LOGS, TABLES, TRANSACTIONS, TRANSFERS
from indexer.scopes import NO_END, accounts_of
from storage.tail import Batch

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from storage.lake import Lake
    from storage.tail import Tail


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
    """The part of a dataset's indexed ranges that is in the lake: what the tail still holds is not there yet."""
    return _by_filter_in_lake(tail, chain, dataset).get(filter_, Spans())


def _by_filter_in_lake(tail: Tail, chain: str, dataset: str) -> dict[str, Spans]:
    # Looked at before and after: blocks come to the tail, and leave it for the lake, while this is read.
    kept = tail.blocks(chain)[:1]
    found = tail.ranges_by_filter(chain, dataset)
    kept += tail.blocks(chain)[:1]
    lowest = min((block.height for block in kept), default=None)
    if lowest is None:
        return found
    below = {spans: spans - [Span(lowest, NO_END)] for spans in set(found.values())}
    return {filter_: below[spans] for filter_, spans in found.items()}


def pending(tail: Tail, chain: str, source: str, filter_: str) -> Spans:
    """Heights whose rows of one source dataset are in the lake, but not in the history that they belong to yet."""
    return _pending(tail, chain, source).get(filter_, Spans())


def _pending(tail: Tail, chain: str, source: str) -> dict[str, Spans]:
    """By filter, heights whose rows of one source dataset are not in the history that they belong to yet."""
    name = next(f"{name}/{source}" for name, history in HISTORIES.items() if source in history.datasets)
    done = tail.ranges_by_filter(chain, name)
    everything = done.get("", Spans())
    both = {
        filter_: (spans, done.get(filter_, Spans()))
        for filter_, spans in _by_filter_in_lake(tail, chain, source).items()
    }
    left = {each: each[0] - each[1] - everything for each in set(both.values())}
    return {filter_: left[each] for filter_, each in both.items() if left[each]}


def unmaterialised(tail: Tail, chain: str, history: Table) -> Spans:
    """Heights whose rows are in the lake, but not all in a history that they belong to yet."""
    behind = [span for source in HISTORIES[history.name].datasets for span in _spans(_pending(tail, chain, source))]
    return Spans(behind)


def _spans(several: Mapping[str, Spans]) -> Iterator[Span]:
    yield from {span for spans in set(several.values()) for span in spans}


def whole(lake: Lake, tail: Tail, chain: str, name: str) -> pa.Table:
    """The rows of `balances` or `allowances` of a chain, from all that is in the lake."""
    import polars as pl

    from portfolio import ledger

    source, target = WHOLE[name]
    if not lake.exists(source):
        return target.schema().empty_table()
    ranges = _by_filter_in_lake(tail, chain, source.name)
    height = max((span.last for span in _spans(ranges)), default=0)
    compute: Callable[[pl.LazyFrame], pl.DataFrame] = getattr(ledger, name)
    frame = compute(lake.scan(source, chain=chain)).with_columns(pl.lit(height, pl.Int64).alias("height"))
    if any(spans - ranges.get("", ()) for filter_, spans in ranges.items() if account_of(filter_)):
        # Others met the accounts that were indexed alone, and are known from nothing else.
        frame = frame.filter(pl.col(target.order[0]).is_in(accounts_of(ranges)) | pl.col("token").is_in(list(ranges)))
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
    if left := _pending(tail, chain, source).get(""):
        yield left, ("",)
    lacking: dict[tuple[Spans, bool], list[str]] = {}
    for filter_, left in _pending(tail, chain, source).items():
        if filter_:
            lacking.setdefault((left, account_of(filter_) is not None), []).append(filter_)
    yield from ((spans, tuple(filters)) for (spans, _), filters in lacking.items())


def _history_of(batch: Batch) -> str:
    """The history that a batch is for; empty where it is for none."""
    name = batch.datasets[0].partition("/")[0]
    return name if name in HISTORIES else ""


def _rows(lake: Lake, tail: Tail, batch: Batch) -> pa.Table:
    """One batch of a history, made from the rows that are in its source, without those that it has already."""
    name = _history_of(batch)
    rows = _source_rows(lake, batch, of_filters(HISTORIES[name], batch.filters))
    return _in_buckets(name, _not_there(lake, tail, batch, rows.collect()))


def _in_buckets(name: str, source: pl.DataFrame) -> pa.Table:
    from portfolio import ledger

    return in_schema(ledger.in_buckets(TABLES[name], source), TABLES[name])


def _commit(lake: Lake, tail: Tail, batch: Batch) -> int:
    table = _rows(lake, tail, batch)
    lake.append(TABLES[_history_of(batch)], table, stream=f"{batch.chain}/derive", batch=batch.number)
    tail.close_batch(batch)
    return len(table)


def _source_rows(lake: Lake, batch: Batch, wanted: pl.Expr) -> pl.LazyFrame:
    """The rows of a batch's source dataset in its heights, those that are wanted of them."""
    import polars as pl

    source, dataset = HISTORIES[_history_of(batch)].source, batch.datasets[0]
    rows = lake.scan(source, chain=batch.chain, heights=[batch.span]).filter(_within(batch.span) & wanted)
    known = kinds.datasets()
    if every := [standard for each in known.values() if each.table is source for standard in each.standards]:
        own = known[dataset.rpartition("/")[2]].standards
        rows = rows.filter(pl.col("standard").is_in(own) if own else ~pl.col("standard").is_in(every))
    return rows


def of_filters(history: History, filters: Collection[str]) -> pl.Expr:
    """Which rows of its source belong into a history by some filters: all of accounts, or none of them."""
    import polars as pl

    from portfolio.ledger import concerns

    if accounts := accounts_of(filters):
        return concerns(TABLES[history.name], accounts)
    if history.source is LOGS:
        return of_events(filters)
    return pl.lit(True) if "" in filters else pl.col("token").is_in(filters)


def _not_there(lake: Lake, tail: Tail, batch: Batch, rows: pl.DataFrame) -> pl.DataFrame:
    """Source rows that are not in the history of the batch yet. Whatever an account's history has of a row, the other
    accounts that the row concerns have, too; so one account tells."""

    done = tail.ranges_by_filter(batch.chain, batch.datasets[0])
    near = {filter_: spans for filter_, ranges in done.items() if (spans := ranges & [batch.span])}
    if batch.filters == ("",):
        for contract in near:
            for span in near[contract] if contract and account_of(contract) is None else ():
                rows = rows.filter(~(_within(span) & of_filters(HISTORIES[_history_of(batch)], (contract,))))
    accounts = accounts_of(batch.filters) or accounts_of(near)
    if not near or not accounts or rows.is_empty():
        return rows
    table = TABLES[_history_of(batch)]
    key = [name for name in table.key if name in rows.columns and name != "chain"]
    known = lake.of_accounts(table, batch.chain, accounts, key).filter(_within(batch.span)).collect()
    return rows.join(known, on=key, how="anti", maintain_order="left")


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


def decoded() -> tuple[str, ...]:
    """The names of the tables that are decoded from logs, on chains of any kind."""
    return tuple(table.name for table in restored(kinds.datasets().values()))


def check(names: Sequence[str]) -> None:
    """Every name is a table that is decoded from logs or derived from others; BadRequest with what there is."""
    known = (*decoded(), *DERIVED)
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
            yield from _in_buckets(name, rows).to_batches()

    counted = Counted(batches())
    lake.replace(TABLES[name], chain, counted)
    return counted.rows


def history_of_indexed(lake: Lake, tail: Tail, chain: str, name: str) -> Iterator[pa.RecordBatch]:
    """The rows that a history of a chain has by its indexed ranges, made again: for a table of another revision.

    What a killed process had committed, and not closed, counts as covered.
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
    """Which rows of its source a history has in a window, by the filters that it was made for and their heights."""
    import polars as pl

    alike: dict[tuple[Spans, bool], list[str]] = {}
    for filter_, spans in ranges.items():
        if near := spans & [window]:
            alike.setdefault((near, account_of(filter_) is not None), []).append(filter_)
    return pl.any_horizontal(
        pl.lit(False),
        *(
            pl.any_horizontal(*map(_within, spans)) & of_filters(history, filters)
            for (spans, _), filters in alike.items()
        ),
    )


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
