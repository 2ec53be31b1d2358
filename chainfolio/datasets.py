"""A dataset as a value: what it is called, the table that it fills, and what other parts have to know of it.

Nothing else lists datasets by name. Two datasets may fill one table: then each but one says which `standards` of its
rows are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Literal

from chainfolio.blocks import Span
from chainfolio.table import Table
from chainfolio.tables import LOGS

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class AccountRows:
    """How the rows of a table become those of its table by account: `rows` gives each once for each account that it
    concerns, as its `account`. `columns` are those that may name the account."""

    columns: tuple[str, ...]
    rows: Callable[[pl.LazyFrame], pl.LazyFrame]


@dataclass(frozen=True, slots=True)
class Dataset:
    """What one chain is indexed for.

    `filtered_by`: what it can be indexed for alone, the contracts or the events that somebody names. `history`: the
    table by account that its rows go into, too; `account_rows`: how, where that table is not one of all kinds.
    `by_account`: how it can be read for some accounts alone: from the `logs` that name them, from the `places` of
    the chain where they did something, or by the `epochs` of the chain; `parties` are the columns in which its rows
    name accounts, and `written` is how they write one. `is_usual`: whether it is indexed where nobody names any.
    `restores`: whether its rows can be decoded again without a node. `in_activity`: whether what accounts did is made
    of it; then `loss` is what an answer lacks that has to do without, and empty where there is no answer without.
    `of_positions`: its rows are what positions in the protocol of this key earned, and change the balance of nobody:
    sums of balances leave them out, they are read by account alone, and where they are not indexed answers say so and
    go on."""

    name: str
    table: Table
    standards: tuple[str, ...] = ()
    filtered_by: Literal["", "contract", "event"] = ""
    by_account: Literal["", "logs", "places", "epochs"] = ""
    parties: tuple[str, ...] = ()
    written: Callable[[str], str] = str
    history: str = ""
    account_rows: AccountRows | None = None
    is_usual: bool = True
    restores: bool = False
    in_activity: bool = False
    of_positions: str = ""
    loss: str = ""

    def without(self, tables: dict[str, pa.Table], contract: str, span: Span) -> dict[str, pa.Table]:
        """Tables without the rows that this dataset has of a contract at some heights."""
        return dropped(tables, self.table.name, "token", contract, span)

    def concerning(self, rows: pa.Table, accounts: Collection[str]) -> pa.Table:
        """The rows that name some of these accounts."""
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = pa.array(sorted(self.written(each) for each in accounts), pa.string())
        mine = [pc.is_in(rows[name], value_set=wanted) for name in self.parties]
        return rows.filter(reduce(pc.or_, mine))


def restored(datasets: Iterable[Dataset]) -> tuple[Table, ...]:
    """The tables that are decoded again from what is stored. Raw logs come last: they are what no other row says."""
    tables = dict.fromkeys(each.table for each in datasets if each.restores)
    return (*(table for table in tables if table is not LOGS), LOGS) if tables else ()


def dropped(
    tables: dict[str, pa.Table], name: str, column: str, contract: str, span: Span, also: pa.Array | None = None
) -> dict[str, pa.Table]:
    """Tables without the rows of one of them that name a contract at some heights, and one of some events."""
    import pyarrow.compute as pc

    if name not in tables:
        return tables
    rows = tables[name]
    mine = pc.and_(pc.greater_equal(rows["height"], span.first), pc.less_equal(rows["height"], span.last))
    mine = pc.and_(mine, pc.fill_null(pc.equal(rows[column], contract), False))
    if also is not None:
        mine = pc.and_(mine, pc.is_in(rows["topic0"], value_set=also))
    return {**tables, name: rows.filter(pc.invert(mine))}
