"""Compute the values of one partition in columns: stored holdings joined with stored prices.

A holding is valued by the newest stored price of its asset between the block of its snapshot and the requested block.
Without such a price, it keeps the value that its snapshot has. An unpriced part of a position stays unpriced, because
the position may be one that Chainfolio does not trust.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from chainfolio import amounts
from chainfolio.assets import asset
from chainfolio.blocks import Span
from chainfolio.engine.history.day_blocks import midnight
from chainfolio.portfolio.columns import AssetQuote, values_by_account
from chainfolio.portfolio.ledger import RAW_BYTES
from chainfolio.storage.lake_reader import LakeReader
from chainfolio.tables import PRICES, SNAPSHOT_HOLDINGS, SNAPSHOTS

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.engine.recompute.partitions import Partition

KEY: Final = ("account", "day", "attempt")
HOLDING_COLUMNS: Final = (*KEY, "name", "side", "asset", "decimals", "raw", "value", "spam")


def compute(partition: Partition) -> pl.DataFrame:
    """Return the value of each account and day of a partition, by account and day, from the lake.

    The columns are `chain`, `account`, `day`, `height`, `completeness`, `value_usd` (an exact decimal as text, null if
    the snapshot is unreadable), `valued` (the number of holdings in the value) and `unpriced` (that of the others).

    Raises:
        StoreError: The lake cannot be read.
    """
    import polars as pl

    lake = LakeReader(partition.task.lake_uri, partition.task.store)
    snapshots = _snapshots(lake, partition).with_row_index("owner")
    holdings = _holdings(lake, partition, snapshots)
    priced = _with_prices(holdings, _prices(lake, partition, snapshots), at_block=partition.task.block is not None)
    usable = pl.col("usd").is_not_null() & (pl.col("value").is_not_null() | (pl.col("name") == ""))
    is_valued = (
        pl.col("decimals").is_not_null() & pl.col("raw").is_not_null() & (usable | pl.col("value").is_not_null())
    )
    joined = priced.with_columns(is_valued=is_valued, by_price=is_valued & usable)
    values = _values(joined.filter("by_price"), joined.filter(pl.col("is_valued") & ~pl.col("by_price")))
    counts = joined.group_by("owner").agg(
        valued=pl.col("is_valued").sum().cast(pl.Int64), unpriced=(~pl.col("is_valued")).sum().cast(pl.Int64)
    )
    texts = [
        None if completeness == "unreadable" else amounts.text(values.get(owner, amounts.ZERO))
        for owner, completeness in snapshots.select("owner", "completeness").iter_rows()
    ]
    return (
        snapshots.with_columns(pl.Series("value_usd", texts, pl.String), chain=pl.lit(partition.task.chain))
        .join(counts, on="owner", how="left", maintain_order="left")
        .with_columns(pl.col("valued", "unpriced").fill_null(0))
        .select("chain", "account", "day", "height", "completeness", "value_usd", "valued", "unpriced")
    )


def _snapshots(lake: LakeReader, partition: Partition) -> pl.DataFrame:
    """Return the newest attempt of each account and day of a partition.

    For a block, return only the newest readable day of each account up to it. All days of the
    accounts are read, because no file says which days it has.
    """
    import polars as pl

    rows = lake.of_accounts(
        SNAPSHOTS, partition.task.chain, partition.accounts, [*KEY, "height", "completeness"]
    ).filter(_is_requested(partition))
    newest = rows.sort(KEY).unique(["account", "day"], keep="last", maintain_order=True)
    if partition.task.block is not None:
        newest = newest.filter(pl.col("completeness") != "unreadable").unique(
            "account", keep="last", maintain_order=True
        )
    return newest.collect()


def _is_requested(partition: Partition) -> pl.Expr:
    """Return the filter of a partition's rows: its days, both included, or all up to its block."""
    import polars as pl

    if partition.first is None or partition.last is None:
        return pl.col("height") <= partition.task.block
    return pl.col("day").is_between(midnight(partition.first), midnight(partition.last))


def _holdings(lake: LakeReader, partition: Partition, snapshots: pl.DataFrame) -> pl.DataFrame:
    """Return the holdings above zero of snapshots, without spam, with the snapshot's `owner` and `height`."""
    import polars as pl

    chain, span = partition.task.chain, _span(snapshots)
    rows = lake.of_accounts(SNAPSHOT_HOLDINGS, chain, partition.accounts, HOLDING_COLUMNS, span)
    is_held = ~pl.col("spam") & (pl.col("raw").is_null() | (pl.col("raw") != bytes(RAW_BYTES)))
    return rows.filter(is_held).join(snapshots.lazy(), on=list(KEY)).collect()


def _prices(lake: LakeReader, partition: Partition, snapshots: pl.DataFrame) -> pl.DataFrame:
    """Return the stored prices above zero at the blocks of the snapshots.

    If the task is about one block, they are all from the first snapshot's block up to it. The columns are `asset` (the
    contract as answers show it), `height`, `usd` and `depth`, by height. Collectibles are left out.
    """
    import polars as pl

    empty = pl.DataFrame(schema={"asset": pl.String, "height": pl.Int64, "usd": pl.String, "depth": pl.String})
    if snapshots.is_empty() or not lake.exists(PRICES):
        return empty
    span = _span(snapshots)
    first, last = span.first, partition.task.block or span.last
    rows = lake.scan(PRICES, chain=partition.task.chain, heights=[Span(first, last)])
    if partition.task.block is None:
        rows = rows.join(snapshots.lazy().select("height").unique(), on="height", how="semi")
    prices = (
        rows.filter(pl.col("height").is_between(first, last)).select("asset", "height", "usd", "depth_usd").collect()
    )
    contracts = {name: asset(name) for name in prices["asset"].unique().to_list()}
    shown = {name: each.shown_contract for name, each in contracts.items() if not each.is_collectible}
    is_usable = [Decimal(usd).is_finite() and Decimal(usd) > 0 for usd in prices["usd"].to_list()]
    return (
        prices.filter(pl.Series(is_usable, dtype=pl.Boolean))
        .with_columns(pl.col("asset").replace_strict(shown, default=None, return_dtype=pl.String))
        .filter(pl.col("asset").is_not_null())
        .rename({"depth_usd": "depth"})
        .sort("height", maintain_order=True)
        .cast({"height": pl.Int64})
    )


def _span(snapshots: pl.DataFrame) -> Span:
    """Return the span from the lowest to the highest block of snapshots; block 0 without any."""
    first, last = snapshots["height"].min() or 0, snapshots["height"].max() or 0
    assert isinstance(first, int)
    assert isinstance(last, int)
    return Span(first, last)


def _with_prices(holdings: pl.DataFrame, prices: pl.DataFrame, *, at_block: bool) -> pl.DataFrame:
    """Return holdings with `usd` and `depth` of the price that values them; null if none is stored.

    Args:
        at_block: Use the newest price since the snapshot's block; False: that of the snapshot's block.
    """
    import polars as pl

    if not at_block:
        one_each = prices.unique(["asset", "height"], keep="last", maintain_order=True)
        return holdings.join(one_each, on=["asset", "height"], how="left")
    newest = prices.unique("asset", keep="last", maintain_order=True).rename({"height": "price_height"})
    joined = holdings.join(newest, on="asset", how="left")
    is_current = pl.col("price_height") >= pl.col("height")
    return joined.with_columns(pl.when(is_current).then(pl.col(name)).alias(name) for name in ("usd", "depth"))


def _values(priced: pl.DataFrame, valued_before: pl.DataFrame) -> dict[int, Decimal]:
    """Return the net value in USD by owner; an owner without a valued holding is absent.

    Args:
        priced: Holdings with a stored price; computed in columns.
        valued_before: Holdings without one, which keep the value of their snapshot.
    """
    import polars as pl

    priced = priced.with_columns(quote=pl.struct("usd", "depth", "decimals").rank("dense").cast(pl.UInt32))
    quotes = {
        number: AssetQuote(decimals, Decimal(usd), _depth(depth))
        for number, usd, depth, decimals in priced.select("quote", "usd", "depth", "decimals").unique().iter_rows()
    }
    debts = {number: quote._replace(depth_usd=None) for number, quote in quotes.items()}
    is_owed = pl.col("side") == "borrowed"
    owned = priced.filter(~is_owed)
    has_several = pl.col("depth").is_not_null() & (pl.len().over("owner", "asset") > 1)
    values: defaultdict[int, list[Decimal]] = defaultdict(list)
    for sign, part, part_quotes in ((1, owned.filter(~has_several), quotes), (-1, priced.filter(is_owed), debts)):
        columns = part.select(pl.col("owner").alias("account"), pl.col("quote").alias("asset"), "raw")
        for owner, value in values_by_account(columns, part_quotes).items():
            values[owner].append(value if sign > 0 else value.copy_negate())
    for owner, value in _shared_markets(owned.filter(has_several), quotes):
        values[owner].append(value)
    for owner, side, text in valued_before.select("owner", "side", "value").iter_rows():
        values[owner].append(Decimal(text).copy_negate() if side == "borrowed" else Decimal(text))
    return {owner: amounts.total(parts) for owner, parts in values.items()}


def _depth(text: str | None) -> Decimal | None:
    """Return the most that a market could pay, at least 0; None if it is not known."""
    depth = None if text is None else Decimal(text)
    return max(depth, amounts.ZERO) if depth is not None and depth.is_finite() else None


def _shared_markets(holdings: pl.DataFrame, quotes: Mapping[int, AssetQuote]) -> Iterator[tuple[int, Decimal]]:
    """Yield owner and value of holdings of one asset that one thin market has to pay for together."""
    for (owner, _, quote), part in holdings.group_by("owner", "asset", "quote", maintain_order=True):
        assert isinstance(owner, int)
        assert isinstance(quote, int)
        yield owner, quotes[quote].value(sum(map(amounts.raw_from_bytes, part["raw"])))
