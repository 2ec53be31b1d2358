"""Balances, allowances and account histories from events alone, exact for all of uint256.

A raw is cut into four 64-bit limbs. They are summed as 128-bit integers (fewer than 2^63 rows cannot overflow them),
then carried into one another. Polars' streaming engine keeps no order, so every result is sorted explicitly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chainfolio import kinds, tables
from chainfolio.addresses import burn_addresses
from chainfolio.datasets import AccountRows, Dataset
from chainfolio.table import Table, bucket

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from chainfolio.chain_results import ChainInfo

RAW_BYTES: Final = 32
LIMB: Final = 2**64
LIMBS: Final = ("limb0", "limb1", "limb2", "limb3")  # the most significant first, as in the bytes

# A wrap mints the wrapped token to its recipient, an unwrap burns it from its sender; the other side has native coins.
NO_CREDIT, NO_DEBIT = "unwrap", "wrap"


def balances(transfers: pl.DataFrame | pl.LazyFrame, *, height: int | None = None) -> pl.DataFrame:
    """Return received minus sent of each account and fungible token, as rows of `balances`.

    Accounts that mint and burn are left out; balances of zero are not. `height` only fills the column of that name, and
    filters nothing; without it, that is the height of the last fungible transfer of the chain. A sum beyond 2^256-1,
    from events of a dishonest token, is given as 2^256-1; `short` marks negative sums.
    """
    import polars as pl

    key = (*tables.BALANCES.order, "chain")  # the constant last: first in the key, it doubles the time of the sort
    malformed = (pl.col("raw").bin.size() != RAW_BYTES).fill_null(True).any().alias("malformed")
    sums = (
        pl.concat([_legs(transfers, "recipient", NO_CREDIT, 1), _legs(transfers, "sender", NO_DEBIT, -1)])
        .group_by(key)
        .agg(*(summed(index) for index in range(4)), pl.col("height").max(), malformed)
        .filter(pl.col("account").is_in(burn_addresses()).not_())
        .collect()
    )
    assert not sums["malformed"].any(), f"a raw has {RAW_BYTES} bytes"
    block_height = pl.col("height").max().over("chain") if height is None else pl.lit(height, dtype=pl.Int64)
    return _carried(sums).with_columns(block_height.alias("height")).select(tables.BALANCES.names).sort(key)


def _legs(transfers: pl.DataFrame | pl.LazyFrame, side: str, without: str, sign: int) -> pl.LazyFrame:
    """Return the fungible transfers seen from one side, without those of the standard `without`.

    `sign` is 1 if the account on that side gains, -1 if it loses. Native coins and tokens with a number are left out.
    """
    import polars as pl

    account, signed = pl.col(side).alias("account"), pl.lit(sign, dtype=pl.Int128).alias("sign")
    tokens = pl.col("token").is_not_null() & pl.col("token_id").is_null()
    leg_rows = transfers.lazy().filter(tokens & (pl.col("standard") != without))
    return leg_rows.select("chain", "height", account, "token", "raw", signed)


def summed(index: int) -> pl.Expr:
    """Return an expression for the signed sum of one 64-bit limb of the raws."""
    import polars as pl

    limb = pl.col("raw").bin.slice(8 * index, 8).bin.reinterpret(dtype=pl.UInt64, endianness="big").cast(pl.Int128)
    return (limb * pl.col("sign")).sum().alias(LIMBS[index])


def _carried(sums: pl.DataFrame) -> pl.DataFrame:
    """Return the sums with `raw` (magnitude) and `short` (it was negative) in place of their limbs."""
    import polars as pl

    short = _carry(sums).get_column("over") < 0
    sign = pl.when(pl.lit(short)).then(pl.lit(-1, dtype=pl.Int128)).otherwise(pl.lit(1, dtype=pl.Int128))
    clean = _carry(sums.with_columns(pl.col(LIMBS) * sign))
    full = pl.lit(LIMB - 1, dtype=pl.UInt64)
    clean = clean.with_columns(
        pl.when(pl.col("over") > 0).then(full).otherwise(pl.col(name).cast(pl.UInt64)).alias(name) for name in LIMBS
    )
    return clean.with_columns(_to_bytes(clean), short.alias("short"))


def _carry(sums: pl.DataFrame) -> pl.DataFrame:
    """Return limbs in 0..2^64-1, and the rest as `over` (units of 2^256), negative if the sum is."""
    import polars as pl

    carried = sums.with_columns(pl.lit(0, dtype=pl.Int128).alias("over"))
    for name in reversed(LIMBS):
        carried = carried.with_columns(pl.col(name) + pl.col("over")).with_columns(
            pl.col(name) % LIMB, (pl.col(name) // LIMB).alias("over")
        )
    return carried


def _to_bytes(limbs: pl.DataFrame) -> pl.Series:
    """Return the limbs as a column `raw` of 32 big-endian bytes a row."""
    import numpy as np
    import polars as pl

    limbs_be = np.empty((limbs.height, 4), dtype=">u8")
    for index, name in enumerate(LIMBS):
        limbs_be[:, index] = limbs.get_column(name).to_numpy()
    cells = limbs_be.view(np.uint8).reshape(limbs.height, RAW_BYTES)
    return pl.Series("raw", cells, dtype=pl.Array(pl.UInt8, RAW_BYTES)).cast(pl.List(pl.UInt8)).cast(pl.Binary)


def drop_native_duplicates(transfers: pl.DataFrame, info: ChainInfo) -> pl.DataFrame:
    """Return rows of `account_transfers` without token movements of the native token `also_at`.

    Token movements that repeat a native movement are dropped, and the others become native ones. Other rows are
    unchanged; so are all rows if the chain has no `also_at`.
    """
    import polars as pl

    if info.also_at is None:
        return transfers
    is_native_token = pl.col("token").eq_missing(info.also_at.reference)
    movement = ["account", "height", "tx_index", "direction", "raw"]
    native_rows = transfers.filter(pl.col("token").is_null())
    token_rows = transfers.filter(is_native_token).join(native_rows, on=movement, how="anti")
    token_rows = token_rows.with_columns(pl.lit(None, pl.String).alias("token"))
    return pl.concat([transfers.filter(~is_native_token), token_rows])


def allowances(approvals: pl.DataFrame | pl.LazyFrame, *, height: int | None = None) -> pl.DataFrame:
    """Return the last ERC-20 approval of each owner, token and spender, as rows of `allowances`.

    Approvals of zero are included. `height` only fills the column of that name, and filters nothing; without it, that
    is the height of the last ERC-20 approval.
    """
    import polars as pl

    key = (*tables.ALLOWANCES.order, "chain")
    last = (
        approvals.lazy()
        .filter(pl.col("standard") == "erc20")
        .group_by(key)
        .agg(pl.col("raw", "height").sort_by("height", "tx_index", "log_index").last())
        .rename({"height": "approved_height"})
        .collect()
    )
    block_height = pl.col("approved_height").max().over("chain") if height is None else pl.lit(height, dtype=pl.Int64)
    return last.with_columns(block_height.alias("height")).select(tables.ALLOWANCES.names).sort(key)


def rows_of_accounts(history: Table, accounts: Sequence[str]) -> pl.Expr:
    """Return a filter for source rows of a history that may concern the accounts; `by_account` decides."""
    import polars as pl

    to_text = str if history.name in SHARED else _maker(history).account_text
    names = [to_text(account) for account in accounts]
    return pl.any_horizontal(pl.col(column).is_in(names) for column in _account_rows(history).columns)


def by_account(history: Table, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return each source row of a history once per account that it concerns, without the column `bucket`."""
    columns = [name for name in history.names if name != "bucket"]
    return _account_rows(history).rows(rows).select(columns)


def _account_rows(history: Table) -> AccountRows:
    """Return how rows are assigned to accounts: shared by all kinds of chain, or defined by the dataset."""
    if history.name in SHARED:
        return SHARED[history.name]
    how = _maker(history).account_rows
    assert how is not None
    return how


def _maker(history: Table) -> Dataset:
    """Return the dataset that defines the rows of a history."""
    (dataset,) = (each for each in kinds.datasets().values() if each.history == history.name and each.account_rows)
    return dataset


def in_buckets(history: Table, source: pl.DataFrame) -> pl.DataFrame:
    """Return source rows of a history by account, with buckets, in the columns and the order of its files."""
    import polars as pl

    rows = by_account(history, source.lazy()).collect()
    accounts = rows.get_column("account").unique()
    buckets = pl.Series([bucket(account) for account in accounts.to_list()], dtype=pl.Int32)
    bucket_of_account = pl.DataFrame({"account": accounts, "bucket": buckets})
    return rows.join(bucket_of_account, on="account").select(history.names).sort("bucket", *history.order)


def _transfers(transfers: pl.LazyFrame) -> pl.LazyFrame:
    """Return both sides of each transfer, with `account`, `counterparty` and `direction` (`in` or `out`).

    A transfer to oneself has both rows.
    """
    import polars as pl

    def rows_of_side(account: str, counterparty: str, direction: str) -> pl.LazyFrame:
        return transfers.with_columns(
            pl.col(account).alias("account"),
            pl.col(counterparty).alias("counterparty"),
            pl.lit(direction).alias("direction"),
        )

    return pl.concat([rows_of_side("recipient", "sender", "in"), rows_of_side("sender", "recipient", "out")])


def _approvals(approvals: pl.LazyFrame) -> pl.LazyFrame:
    """Return approvals with their owner as `account`."""
    return approvals.rename({"owner": "account"})


def _transactions(transactions: pl.LazyFrame) -> pl.LazyFrame:
    """Return a row for the sender of each transaction, and one for another account that was called.

    A created contract counts as called.
    """
    import polars as pl

    selector = pl.col("input").bin.slice(0, 4).alias("selector")
    rows = transactions.with_columns(selector, pl.col("hash").alias("tx_hash"))
    sender, called = pl.col("sender"), pl.coalesce("recipient", "created")
    called_rows = rows.filter(called != sender).with_columns(called.alias("account"))
    return pl.concat([rows.with_columns(sender.alias("account")), called_rows])


SHARED: Final = {
    "account_transfers": AccountRows(("sender", "recipient"), _transfers),
    "account_approvals": AccountRows(("owner",), _approvals),
    "account_transactions": AccountRows(("sender", "recipient", "created"), _transactions),
}
