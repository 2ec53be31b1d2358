"""Rows that are stored already, though something else was indexed: a transfer concerns two accounts, and everybody.

Ranges say where that can be, and there the rows are looked up by the keys of their tables, which identify a row for
ever. Ranges alone cannot say it of each row. An account's own read does not find a transfer whose event has its parties
in the data, nor, on a node that cannot list calls, a call that moved nothing; an index of everything does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from chainfolio.blocks import Span, Spans
from chainfolio.scopes import account_of
from chainfolio.table import Table
from chainfolio.tables import LOGS, TABLES, TRANSFERS
from indexer.scopes import accounts_of

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from chainfolio.datasets import Dataset
    from storage.lake import Lake
    from storage.tail import Tail

INSIDE = ("height", "tx_index", "sender", "recipient", "raw")  # what a movement inside a transaction is known by


def without_stored(
    lake: Lake,
    tail: Tail,
    chain: str,
    datasets: Mapping[str, Dataset],
    tables: Mapping[str, pa.Table],
    span: Span,
    filters: Collection[str],
) -> dict[str, pa.Table]:
    """The tables of a batch without the rows that the lake has of other filters. `datasets` are those of the chain."""
    left = {}
    for name, rows in tables.items():
        shared = _shared(tail, chain, datasets, TABLES[name], span, filters) if len(rows) else Spans()
        left[name] = _new(TABLES[name], rows, _stored(lake, chain, TABLES[name], shared)) if shared else rows
    return left


def merged(table: Table, one: pa.Table, other: pa.Table) -> pa.Table:
    """The rows of two tables in the table's order, each once."""
    import pyarrow as pa

    both = pa.concat_tables([one, _new(table, other, _keys(table, one))])
    return both.sort_by([(name, "ascending") for name in table.order])


def _shared(
    tail: Tail, chain: str, datasets: Mapping[str, Dataset], table: Table, span: Span, filters: Collection[str]
) -> Spans:
    """The heights of a span at which another filter may have given rows of a table that these filters give, too."""
    found = Spans()
    # A log that its dataset cannot decode is a row of `logs`.
    writers = [each for each in datasets.values() if each.table is table or (table is LOGS and each.filtered_by)]
    for dataset in writers:
        for filter_, ranges in tail.ranges_by_filter(chain, dataset.name).items():
            if _overlaps(filters, dataset, filter_):
                found |= ranges & [span]
    return found


def _overlaps(filters: Collection[str], dataset: Dataset, other: str) -> bool:
    """Whether some filters and another one of a dataset can give the same row. Contracts do not, nor do events;
    everything does, with accounts and with contracts that were indexed before."""
    if accounts_of(filters) or account_of(other) is not None:
        return True
    return "" in filters and other != "" and dataset.filtered_by == "contract"


def _stored(lake: Lake, chain: str, table: Table, heights: Spans) -> pl.DataFrame:
    import polars as pl

    here = pl.any_horizontal(pl.col("height").is_between(each.first, each.last) for each in heights)
    return lake.scan(table, chain=chain, heights=heights).filter(here).select(_named(table)).collect()


def _keys(table: Table, rows: pa.Table) -> pl.DataFrame:
    import polars as pl

    found = pl.from_arrow(rows.select(_named(table)))
    assert isinstance(found, pl.DataFrame)
    return found


def _key(table: Table) -> list[str]:
    return [name for name in table.key if name != "chain"]


def _named(table: Table) -> list[str]:
    """The columns by which rows are compared."""
    return list(dict.fromkeys([*_key(table), *(INSIDE if table is TRANSFERS else ())]))


def _new(table: Table, rows: pa.Table, known: pl.DataFrame) -> pa.Table:
    """The rows that are not known, by their keys. A movement inside a transaction is known, too, where the same parties
    moved as much as often: not everybody who looks inside can count all movements, and numbers differ."""
    import polars as pl
    import pyarrow as pa

    own = pl.from_arrow(rows.select(known.columns))
    assert isinstance(own, pl.DataFrame)
    new = own.with_row_index("place")
    if table is TRANSFERS:
        is_inside = (pl.col("log_index") < 0) & (pl.col("item") > 0)
        nth = pl.when(is_inside).then(pl.int_range(pl.len()).over([*INSIDE, is_inside])).alias("nth")
        new, known = new.with_columns(nth), known.with_columns(nth)
        new = new.join(known, on=[*INSIDE, "nth"], how="anti")
    new = new.join(known, on=_key(table), how="anti").sort("place")
    return rows if len(new) == len(rows) else rows.take(pa.array(new["place"].to_list(), pa.int64()))
