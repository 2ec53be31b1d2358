"""A dataset as a value: its name, its table, and the facts that other parts need.

Nothing else lists datasets by name. Two datasets may fill one table: then all but one of them name the `standards` of
their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final, Literal

from chainfolio.blocks import Span
from chainfolio.table import Table
from chainfolio.tables import (
    ACCOUNT_APPROVALS,
    ACCOUNT_TRANSACTIONS,
    ACCOUNT_TRANSFERS,
    APPROVALS,
    BLOCKS,
    LOGS,
    TRANSACTIONS,
    TRANSFERS,
)

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class AccountRows:
    """The rows of a table by account: `rows` yields each row once per account, in the column `account`.

    `columns` are those that may name the account.
    """

    columns: tuple[str, ...]
    rows: Callable[[pl.LazyFrame], pl.LazyFrame]


@dataclass(frozen=True, slots=True)
class Dataset:
    """One kind of rows that a chain can be indexed for.

    `filtered_by`: the filter by which a part of it can be indexed, contracts or events. `history`: the table by
    account that its rows also go into; `account_rows`: how, if that table is not shared by all kinds. `by_account`:
    how it can be read for some accounts only: from the `logs` that name them, from the `places` on the chain where
    they acted, or by the `epochs` of the chain. `account_columns` are the columns that name accounts, `account_text`
    formats an account for them. `is_default`: it is indexed if the settings name no datasets. `is_restorable`: its
    rows can be decoded again without a node. `in_activity`: account activity is made of it; then `loss` tells what an
    answer lacks without it, and is empty if there is no answer without it. `reward_protocol`: its rows are rewards of
    positions in the protocol with this key and change no balance: they are left out of sums, are read by account
    only, and may be missing.
    """

    name: str
    table: Table
    standards: tuple[str, ...] = ()
    filtered_by: Literal["", "contract", "event"] = ""
    by_account: Literal["", "logs", "places", "epochs"] = ""
    account_columns: tuple[str, ...] = ()
    account_text: Callable[[str], str] = str
    history: str = ""
    account_rows: AccountRows | None = None
    is_default: bool = True
    is_restorable: bool = False
    in_activity: bool = False
    reward_protocol: str = ""
    loss: str = ""

    def without_contract(self, tables: dict[str, pa.Table], contract: str, span: Span) -> dict[str, pa.Table]:
        """Return the tables without this dataset's rows of a contract in a span."""
        return without_rows(tables, self.table.name, "token", contract, span)

    def rows_of_accounts(self, rows: pa.Table, accounts: Collection[str]) -> pa.Table:
        """Return the rows that name one of the accounts."""
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = pa.array(sorted(self.account_text(each) for each in accounts), pa.string())
        matches = [pc.is_in(rows[name], value_set=texts) for name in self.account_columns]
        return rows.filter(reduce(pc.or_, matches))


def select_accounts(
    datasets: Mapping[str, Dataset], tables: Mapping[str, pa.Table], accounts: Collection[str]
) -> dict[str, pa.Table]:
    """Return the tables that have columns of accounts, with the rows that concern some accounts."""
    by_table = {each.table.name: each for each in datasets.values() if each.account_columns}
    return {name: by_table[name].rows_of_accounts(rows, accounts) for name, rows in tables.items() if name in by_table}


def restorable_tables(datasets: Iterable[Dataset]) -> tuple[Table, ...]:
    """Return the tables that are decoded again from stored rows, raw logs last."""
    tables = dict.fromkeys(each.table for each in datasets if each.is_restorable)
    return (*(table for table in tables if table is not LOGS), LOGS) if tables else ()


def without_rows(
    tables: dict[str, pa.Table], name: str, column: str, contract: str, span: Span, topics: pa.Array | None = None
) -> dict[str, pa.Table]:
    """Return the tables without rows of table `name` about a contract in a span, of all or some topics.

    They are unchanged if there is no such table. Rows whose `column` is null stay.
    """
    import pyarrow.compute as pc

    if name not in tables:
        return tables
    rows = tables[name]
    matches = pc.and_(pc.greater_equal(rows["height"], span.first), pc.less_equal(rows["height"], span.last))
    matches = pc.and_(matches, pc.fill_null(pc.equal(rows[column], contract), False))
    if topics is not None:
        matches = pc.and_(matches, pc.is_in(rows["topic0"], value_set=topics))
    return {**tables, name: rows.filter(pc.invert(matches))}


# --- datasets of chains whose accounts are read at their places -------------------------------------------------------

PARTIES: Final = ("sender", "recipient")


def coin_dataset(name: str, loss: str) -> Dataset:
    """Return a dataset of the native coin: transfers of the standard `name`."""
    return Dataset(
        name,
        TRANSFERS,
        standards=(name,),
        history=ACCOUNT_TRANSFERS.name,
        in_activity=True,
        loss=loss,
        by_account="places",
        account_columns=PARTIES,
    )


BLOCKS_DATASET: Final = Dataset("blocks", BLOCKS)
TRANSACTIONS_DATASET: Final = Dataset(
    "transactions",
    TRANSACTIONS,
    history=ACCOUNT_TRANSACTIONS.name,
    in_activity=True,
    loss="transactions are not indexed",
    by_account="places",
    account_columns=PARTIES,
)
NATIVE_DATASET: Final = coin_dataset("native", "native coins are not indexed")
TRANSFERS_DATASET: Final = Dataset(
    "transfers",
    TRANSFERS,
    filtered_by="contract",
    history=ACCOUNT_TRANSFERS.name,
    in_activity=True,
    by_account="places",
    account_columns=PARTIES,
)
APPROVALS_DATASET: Final = Dataset(
    "approvals",
    APPROVALS,
    filtered_by="contract",
    history=ACCOUNT_APPROVALS.name,
    in_activity=True,
    by_account="places",
    account_columns=("owner", "spender"),
)
