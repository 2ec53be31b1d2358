"""Daily snapshots in the lake: documents in `snapshots`, their assets in `snapshot_holdings`.

A batch of snapshots is one commit. The holdings are derived from the documents in a second commit with the same number;
if a process died between the two, the next writer makes the missing one without asking a node.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from chainfolio.blocks import Block
from chainfolio.engine.history.day_blocks import midnight
from chainfolio.errors import Locked
from chainfolio.portfolio.document import Portfolio, encode_one
from chainfolio.portfolio.snapshot_rows import holdings_of
from chainfolio.table import bucket
from chainfolio.tables import SNAPSHOT_HOLDINGS, SNAPSHOTS

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
UNREADABLE: Final = "unreadable"
KINDS: Final = ("complete", "partial", UNREADABLE)
KEY: Final = ("account", "day", "attempt")
FACTS: Final = (*KEY, "height", "time", "hash", "completeness", "reason", "retry", "unindexed", "value", "digest")


@dataclass(frozen=True, slots=True)
class DaySnapshot:
    """The holdings of an account on one chain as a day began; without a document `reason` says why.

    Attributes:
        retry: True if a read failed, so that another read may return more.
        unindexed: Digest of what the index lacked; empty if it lacked nothing.
    """

    chain: str
    account: str
    day: date
    block: Block
    completeness: str
    reason: str = ""
    retry: bool = False
    unindexed: str = ""
    value: str | None = None
    document: bytes | None = field(default=None, repr=False, compare=False)
    digest: str = ""

    @property
    def portfolio(self) -> Portfolio:
        """The decoded document; the snapshot must have one."""
        assert self.document is not None, "it could not be read"
        return msgspec.json.decode(self.document, type=Portfolio)

    def has_same_content(self, other: DaySnapshot) -> bool:
        """Return True if block, completeness, reason, gaps of the index and document are the same."""
        own_fields, other_fields = (
            (each.block.height, each.block.hash, each.completeness, each.reason, each.unindexed, each.digest)
            for each in (self, other)
        )
        return own_fields == other_fields


def snapshot_of(
    chain: str, day: date, block: Block, document: Portfolio, reason: str, *, retry: bool, unindexed: str
) -> DaySnapshot:
    """Return the snapshot of a document, with its JSON and the SHA-256 of that; nothing is stored.

    The block loses its parent.

    Args:
        reason: Issues as text; empty if complete.
        retry: True if a read failed.
        unindexed: A digest of what the index lacks; empty if it lacks nothing.
    """
    encoded = encode_one(document)
    digest, block_without_parent = hashlib.sha256(encoded).hexdigest(), replace(block, parent="")
    return DaySnapshot(
        chain,
        document.address,
        day,
        block_without_parent,
        document.completeness,
        reason,
        retry,
        unindexed,
        document.networth,
        encoded,
        digest,
    )


@dataclass(frozen=True, slots=True)
class SnapshotStore:
    """Stored snapshots of all chains; one process at a time writes those of a chain."""

    lake: Lake
    tail: Tail

    def newest(
        self, chain: str, accounts: Sequence[str], days: Iterable[date] | None = None, *, documents: bool = True
    ) -> dict[tuple[str, date], DaySnapshot]:
        """Return the newest stored snapshot of each account and day, by account and day.

        Pairs without a snapshot are absent.

        Args:
            days: None for all stored days.
            documents: False leaves the documents out.
        """
        import polars as pl

        columns = [*FACTS, *(["document"] if documents else [])]
        rows = self.lake.of_accounts(SNAPSHOTS, chain, accounts, columns)
        if days is not None:
            rows = rows.filter(pl.col("day").is_in([midnight(day) for day in days]))
        newest = rows.sort("attempt").unique(["account", "day"], keep="last", maintain_order=True).collect()
        snapshots = [_snapshot(chain, row) for row in newest.iter_rows(named=True)]
        return {(each.account, each.day): each for each in snapshots}

    def holdings(self, chain: str, accounts: Sequence[str], days: Iterable[date]) -> pl.DataFrame:
        """Return the holdings of the newest snapshots of some days: a row for each asset that is not zero.

        Unknown balances are among them, with null as `raw`; so is spam.
        """
        import polars as pl

        is_requested_day = pl.col("day").is_in([midnight(day) for day in days])
        counts = self.lake.of_accounts(SNAPSHOTS, chain, accounts, KEY).filter(is_requested_day)
        newest = counts.group_by("account", "day").agg(pl.col("attempt").max())
        columns = [*KEY, "asset", "symbol", "decimals", "protocol", "raw", "value", "spam"]
        rows = self.lake.of_accounts(SNAPSHOT_HOLDINGS, chain, accounts, columns).filter(is_requested_day)
        is_held = pl.col("raw").is_null() | (pl.col("raw") != bytes(32))
        return rows.filter(is_held).join(newest, on=list(KEY), how="semi").collect()

    def first_days(self, chain: str, accounts: Sequence[str]) -> dict[str, date]:
        """Return the first stored day of each account that has one."""
        import polars as pl

        rows = self.lake.of_accounts(SNAPSHOTS, chain, accounts, ["account", "day"])
        return {each: day.date() for each, day in rows.group_by("account").agg(pl.col("day").min()).collect().rows()}

    def summary(self, chain: str) -> dict[str, Any]:
        """Return the number of `accounts`, `first` and `last` day, and counts of snapshots by completeness.

        Only the newest snapshot of each account and day counts. Days are texts, None if there are no snapshots.
        """
        import polars as pl

        rows = self.lake.scan(SNAPSHOTS, chain=chain).select(*KEY, "completeness")
        newest = rows.collect().sort(KEY).unique(["account", "day"], keep="last", maintain_order=True)
        counts = {name: newest.filter(pl.col("completeness") == name).height for name in KINDS}
        ends = newest["day"].min(), newest["day"].max()
        first, last = (str(each.date()) if isinstance(each, datetime) else None for each in ends)
        return {"accounts": newest["account"].n_unique(), "first": first, "last": last, **counts}

    def add(self, chain: str, snapshots: Sequence[DaySnapshot], now: datetime) -> int:
        """Store snapshots whose content differs from the stored ones; return their number.

        Holdings that a killed writer left out are stored first.

        Raises:
            Locked: Another process stored snapshots at the same time.
        """
        import pyarrow as pa

        with self.tail.hold(f"{chain}.snapshots", f"the snapshots of {chain}", store="lake", wait=True):
            self.complete_holdings(chain)
            accounts = sorted({each.account for each in snapshots})
            batch = self.lake.last(SNAPSHOTS, _stream(chain)) + 1
            stored = self.newest(chain, accounts, {each.day for each in snapshots}, documents=False)
            new = [
                each
                for each in snapshots
                if not (old := stored.get((each.account, each.day))) or not old.has_same_content(each)
            ]
            if not new:
                return 0
            attempts = self._attempts(chain, accounts)
            rows = [
                {**_row(each), "attempt": attempts.get((each.account, each.day), -1) + 1, "taken": now, "batch": batch}
                for each in new
            ]
            content = pa.Table.from_pylist(rows, schema=SNAPSHOTS.schema())
            if not self.lake.append(SNAPSHOTS, content, stream=_stream(chain), batch=batch):
                raise Locked("lake", f"another process stored snapshots of {chain}", remedy="try again")
            self._add_holdings(chain, rows, batch)
            return len(new)

    def complete_holdings(self, chain: str) -> None:
        """Store the holdings of snapshots whose writer died before it stored them.

        Do nothing if none are missing.
        """
        import polars as pl

        last, last_with_holdings = (self.lake.last(table, _stream(chain)) for table in (SNAPSHOTS, SNAPSHOT_HOLDINGS))
        if last_with_holdings >= last:
            return
        is_incomplete = pl.col("batch") > last_with_holdings
        accounts = self.lake.scan(SNAPSHOTS, chain=chain).filter(is_incomplete).select("account").unique().collect()
        columns = ["chain", "bucket", *KEY, "height", "batch", "document"]
        rows = (
            self.lake.of_accounts(SNAPSHOTS, chain, accounts["account"].to_list(), columns)
            .filter(is_incomplete)
            .collect()
        )
        self._add_holdings(chain, rows.to_dicts(), last)

    def _add_holdings(self, chain: str, rows: Sequence[dict[str, Any]], batch: int) -> None:
        """Append the holdings in the rows' documents to the lake; rows without a document add none."""
        import pyarrow as pa

        columns = ("chain", "bucket", *KEY, "height")
        holdings = [
            {**{name: row[name] for name in columns}, **holding}
            for row in rows
            if row["document"] is not None
            for holding in holdings_of(msgspec.json.decode(row["document"], type=Portfolio))
        ]
        content = pa.Table.from_pylist(holdings, schema=SNAPSHOT_HOLDINGS.schema())
        self.lake.append(SNAPSHOT_HOLDINGS, content, stream=_stream(chain), batch=batch)

    def _attempts(self, chain: str, accounts: Sequence[str]) -> dict[tuple[str, date], int]:
        """Return the highest stored attempt by account and day; days without a snapshot are absent."""
        import polars as pl

        rows = self.lake.of_accounts(SNAPSHOTS, chain, accounts, KEY)
        attempts = rows.group_by("account", "day").agg(pl.col("attempt").max()).collect()
        return {(account, day.date()): attempt for account, day, attempt in attempts.iter_rows()}


def _stream(chain: str) -> str:
    return f"{chain}/snapshots"


def _row(each: DaySnapshot) -> dict[str, Any]:
    """Return the row of the table of snapshots; empty texts become null."""
    return {
        "chain": each.chain,
        "bucket": bucket(each.account),
        "account": each.account,
        "day": midnight(each.day),
        "height": each.block.height,
        "time": each.block.time,
        "hash": each.block.hash,
        "completeness": each.completeness,
        "reason": each.reason or None,
        "retry": each.retry,
        "unindexed": each.unindexed or None,
        "value": each.value,
        "digest": each.digest or None,
        "document": None if each.document is None else each.document.decode(),
    }


def _snapshot(chain: str, row: dict[str, Any]) -> DaySnapshot:
    """Return the snapshot of a row; without a document if the row was read without that column."""
    time_us = (row["time"] - EPOCH) // timedelta(microseconds=1)
    document = row.get("document")
    return DaySnapshot(
        chain,
        row["account"],
        row["day"].date(),
        Block(row["height"], row["hash"], "", time_us),
        row["completeness"],
        row["reason"] or "",
        row["retry"],
        row["unindexed"] or "",
        row["value"],
        None if document is None else document.encode(),
        row["digest"] or "",
    )
