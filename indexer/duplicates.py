"""Remove rows that are stored already, because another dataset or filter includes them.

A transfer belongs to two accounts, and to an index of all accounts. Indexed ranges tell where rows may be stored, and
there rows are compared by the keys of their tables. Ranges are not enough: an account's own read misses transfers
whose event has the parties in its data, and, on a node that cannot list calls, calls that moved nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from chainfolio.blocks import Span, Spans
from chainfolio.indexer.scopes import accounts_of
from chainfolio.scopes import account_of
from chainfolio.table import Table
from chainfolio.tables import LOGS, TABLES, TRANSFERS

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from chainfolio.datasets import Dataset
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

INTERNAL_KEY = ("height", "tx_index", "sender", "recipient", "raw")  # identifies an internal transfer


def without_stored(
    lake: Lake,
    tail: Tail,
    chain: str,
    datasets: Mapping[str, Dataset],
    tables: Mapping[str, pa.Table],
    span: Span,
    filters: Collection[str],
) -> dict[str, pa.Table]:
    """Return the tables of a batch without rows that the lake has from other filters.

    Args:
        datasets: Those of the chain.
        filters: Those of the batch.
    """
    remaining = {}
    for name, rows in tables.items():
        shared = _shared(tail, chain, datasets, TABLES[name], span, filters) if len(rows) else Spans()
        remaining[name] = _new(TABLES[name], rows, _stored(lake, chain, TABLES[name], shared)) if shared else rows
    return remaining


def merged(table: Table, first: pa.Table, second: pa.Table) -> pa.Table:
    """Return the rows of two tables in the table's order, each once.

    Of rows with the same key, that of `first` is taken.
    """
    import pyarrow as pa

    both = pa.concat_tables([first, _new(table, second, _keys(table, first))])
    return both.sort_by([(name, "ascending") for name in table.order])


def _shared(
    tail: Tail, chain: str, datasets: Mapping[str, Dataset], table: Table, span: Span, filters: Collection[str]
) -> Spans:
    """Return the heights at which another filter may have provided the same rows of a table."""
    shared = Spans()
    # A dataset stores logs that it cannot decode in `logs`.
    writers = [each for each in datasets.values() if each.table is table or (table is LOGS and each.filtered_by)]
    for dataset in writers:
        for filter_, ranges in tail.ranges_by_filter(chain, dataset.name).items():
            if _overlaps(filters, dataset, filter_):
                shared |= ranges & [span]
    return shared


def _overlaps(filters: Collection[str], dataset: Dataset, filter_: str) -> bool:
    """Return True if one of the filters can give the same row as another filter of the dataset.

    Contracts and events do not overlap each other. All rows (`""`) overlap accounts and contracts.
    """
    if accounts_of(filters) or account_of(filter_) is not None:
        return True
    return "" in filters and filter_ != "" and dataset.filtered_by == "contract"


def _stored(lake: Lake, chain: str, table: Table, heights: Spans) -> pl.DataFrame:
    import polars as pl

    at_heights = pl.any_horizontal(pl.col("height").is_between(each.first, each.last) for each in heights)
    return lake.scan(table, chain=chain, heights=heights).filter(at_heights).select(_compared_columns(table)).collect()


def _keys(table: Table, rows: pa.Table) -> pl.DataFrame:
    """Return the columns of rows that tell whether two are equal, as a frame."""
    import polars as pl

    keys = pl.from_arrow(rows.select(_compared_columns(table)))
    assert isinstance(keys, pl.DataFrame)
    return keys


def _key(table: Table) -> list[str]:
    return [name for name in table.key if name != "chain"]


def _compared_columns(table: Table) -> list[str]:
    """Return the columns by which rows are compared."""
    return list(dict.fromkeys([*_key(table), *(INTERNAL_KEY if table is TRANSFERS else ())]))


def _new(table: Table, rows: pa.Table, stored: pl.DataFrame) -> pa.Table:
    """Return the rows whose keys are not stored, in their order.

    Internal transfers are also compared by parties and amounts, and by how often they occur: nodes number them
    differently, because not all of them report all calls.

    Args:
        stored: Keys of rows in the lake.
    """
    import polars as pl
    import pyarrow as pa

    row_keys = pl.from_arrow(rows.select(stored.columns))
    assert isinstance(row_keys, pl.DataFrame)
    new = row_keys.with_row_index("place")
    if table is TRANSFERS:
        is_inside = (pl.col("log_index") < 0) & (pl.col("item") > 0)
        nth = pl.when(is_inside).then(pl.int_range(pl.len()).over([*INTERNAL_KEY, is_inside])).alias("nth")
        new, stored = new.with_columns(nth), stored.with_columns(nth)
        new = new.join(stored, on=[*INTERNAL_KEY, "nth"], how="anti")
    new = new.join(stored, on=_key(table), how="anti").sort("place")
    return rows if len(new) == len(rows) else rows.take(pa.array(new["place"].to_list(), pa.int64()))
