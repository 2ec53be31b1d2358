"""Tables made from other tables, and all tables made again from what is stored: no node is asked.

`account_transfers` follows `transfers` batch by batch; `balances` and `allowances` are made whole each time. After a
change of a decoder, `rederive` turns stored rows back into the logs they stand for and decodes those again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from chainfolio.blocks import Span, Spans
from chainfolio.errors import BadRequest
from chainfolio.tables import ACCOUNT_TRANSFERS, ALLOWANCES, APPROVALS, BALANCES, LOGS, TABLES, TRANSFERS, Table

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from adapters.evm.chain import EvmChain
    from storage.lake import Lake
    from storage.tail import Batch, Tail

DERIVED = ("account_transfers", "balances", "allowances")
DECODED = ("transfers", "approvals", "logs")
SOURCES = ("transfers", "native")
WINDOW_ROWS = 250_000


def derive(lake: Lake, tail: Tail, chain: str, wanted: Sequence[str] = DERIVED) -> dict[str, int]:
    """Bring the derived tables up to what is indexed; how many rows were written to each."""
    written = {}
    if "account_transfers" in wanted:
        written["account_transfers"] = sum(_follow(lake, tail, chain, source) for source in SOURCES)
    if "balances" in wanted:
        from portfolio.ledger import balances

        written["balances"] = _whole(lake, tail, chain, TRANSFERS, BALANCES, balances)
    if "allowances" in wanted:
        from portfolio.ledger import allowances

        written["allowances"] = _whole(lake, tail, chain, APPROVALS, ALLOWANCES, allowances)
    return written


def _whole(
    lake: Lake, tail: Tail, chain: str, source: Table, target: Table, compute: Callable[[pl.LazyFrame], pl.DataFrame]
) -> int:
    import polars as pl

    if not lake.exists(source):
        return 0
    height = max((span.last for span in tail.cover(chain, source.name)), default=0)
    frame = compute(lake.scan(source, chain=chain)).with_columns(pl.lit(height, pl.Int64).alias("height"))
    rows = in_schema(frame.with_columns(pl.lit(chain).alias("chain")), target)
    lake.replace(target, chain, rows)
    return len(rows)


def in_schema(frame: pl.DataFrame, table: Table) -> pa.Table:
    """A frame as Arrow in a table's own columns and types."""
    return frame.select(table.names).to_arrow().cast(table.schema())


def _follow(lake: Lake, tail: Tail, chain: str, source: str) -> int:
    """Rows of `account_transfers` for the spans of one source dataset that have none yet."""
    written = 0
    name = f"account_transfers/{source}"
    for filter_ in tail.cover_filters(chain, source):
        done = tail.cover(chain, name, filter_) | (tail.cover(chain, name, "") if filter_ else ())
        for span in tail.cover(chain, source, filter_) - done:
            for window in _windows(lake, chain, span):
                written += _account_rows(lake, tail, chain, source, filter_, window)
    return written


def _account_rows(lake: Lake, tail: Tail, chain: str, source: str, filter_: str, span: Span) -> int:
    batch = tail.open_batch(
        chain, span, (f"account_transfers/{source}",), (filter_,), after=lake.last(ACCOUNT_TRANSFERS, f"{chain}/derive")
    )
    return _commit(lake, tail, batch)


def _commit(lake: Lake, tail: Tail, batch: Batch) -> int:
    """One batch of `account_transfers`, made from the rows that are in `transfers`: the same whenever it is made."""
    import polars as pl

    from portfolio.ledger import account_transfers

    source, filter_, span = batch.datasets[0].partition("/")[2], batch.filters[0], batch.span
    is_native = pl.col("standard") == "native"
    rows = lake.scan(TRANSFERS, chain=batch.chain).filter(pl.col("height").is_between(span.first, span.last))
    rows = rows.filter(is_native if source == "native" else ~is_native)
    if filter_:
        rows = rows.filter(pl.col("token") == filter_)
    table = in_schema(account_transfers(rows.collect()), ACCOUNT_TRANSFERS)
    lake.append(ACCOUNT_TRANSFERS, table, stream=f"{batch.chain}/derive", batch=batch.number)
    tail.close_batch(batch)
    return len(table)


def recover(lake: Lake, tail: Tail, chain: str) -> None:
    """Finish the derivations that a killed process left open."""
    for batch in tail.open_batches(chain):
        if batch.datasets[0].startswith("account_transfers/"):
            _commit(lake, tail, batch)


def _windows(lake: Lake, chain: str, span: Span) -> Iterator[Span]:
    """A span in pieces of about a quarter of a million transfers, so that memory does not grow with history."""
    import polars as pl

    heights = (
        lake.scan(TRANSFERS, chain=chain).filter(pl.col("height").is_between(span.first, span.last))
        .group_by("height").len().sort("height").collect()
    )  # fmt: skip
    first, rows = span.first, 0
    for height, count in heights.iter_rows():
        if rows and rows + count > WINDOW_ROWS:
            yield Span(first, height - 1)
            first, rows = height, 0
        rows += count
    yield Span(first, span.last)


def check(names: Sequence[str]) -> None:
    """Every name is a table that is decoded from logs or derived from others; BadRequest with what there is."""
    for name in names:
        if name not in (*DECODED, *DERIVED):
            raise BadRequest("tables", f"`{name}` cannot be derived", cure=f"there are: {', '.join((*DECODED, *DERIVED))}")


def rederive(chain: EvmChain, lake: Lake, tables: Sequence[str] = DECODED) -> dict[str, int]:
    """Decode everything again that is stored as logs or as rows which stand for logs; rows written by table."""
    written = {}
    for name in tables:
        counted = _Counted(_decoded(chain, lake, TABLES[name]))
        lake.replace(TABLES[name], chain.key, counted)
        written[name] = counted.rows
    return written


class _Counted:
    """Record batches, counted as they pass."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches, self.rows = batches, 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


def _decoded(chain: EvmChain, lake: Lake, target: Table) -> Iterator[pa.RecordBatch]:
    """One table's rows from all stored logs, window by window in the order of the chain; native transfers pass as they are."""
    import polars as pl
    import pyarrow as pa

    covered = _stored_span(lake, chain.key)
    for window in _windows(lake, chain.key, covered) if covered else ():
        stored = {}
        for table in (TRANSFERS, APPROVALS, LOGS):
            rows = lake.scan(table, chain=chain.key).filter(pl.col("height").is_between(window.first, window.last))
            stored[table.name] = in_schema(rows.sort(table.order).collect(), table)
        native = stored["transfers"].filter(pa.compute.equal(stored["transfers"]["standard"], "native"))
        stored["transfers"] = stored["transfers"].filter(pa.compute.not_equal(stored["transfers"]["standard"], "native"))
        tables = chain.decode(chain.restore(stored), ("transfers", "approvals"))
        rows = tables.get(target.name, target.schema().empty_table())
        if target is TRANSFERS and len(native):
            rows = pa.concat_tables([rows, native]).sort_by([(key, "ascending") for key in target.order])
        yield from rows.to_batches()


def _stored_span(lake: Lake, chain: str) -> Span | None:
    import polars as pl

    ends = [
        lake.scan(table, chain=chain).select(pl.col("height").min().alias("first"), pl.col("height").max().alias("last")).collect().row(0)
        for table in (TRANSFERS, APPROVALS, LOGS)
    ]
    known = [(first, last) for first, last in ends if first is not None]
    return Span(min(first for first, _ in known), max(last for _, last in known)) if known else None
