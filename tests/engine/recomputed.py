"""A lake with snapshots, their holdings and prices, for tests of `chainfolio recompute`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from chainfolio.storage.lake import Lake
from chainfolio.table import Table, bucket
from chainfolio.tables import PRICES, SNAPSHOT_HOLDINGS, SNAPSHOTS

CHAIN = "ethereum"
NATIVE = "0x0000000000000000000000000000000000000000"
USDC = "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48"
THIN = "0x00000000000000000000000000000000000000aa"
BARE = "0x00000000000000000000000000000000000000bb"
NAMES = {NATIVE: "eip155:1/slip44:60"}
FIRST = date(2025, 1, 1)


class SnapshotAsset(NamedTuple):
    """One asset of a snapshot."""

    asset: str
    raw: int | None
    decimals: int | None = 18
    value: str | None = None
    side: str = "owned"
    name: str = ""
    spam: bool = False


class Snap(NamedTuple):
    """One snapshot of an account."""

    account: str
    day: int
    height: int
    holdings: Sequence[SnapshotAsset]
    attempt: int = 0
    completeness: str = "complete"


def wallet(number: int) -> str:
    """An address; neighbours are of different buckets."""
    return f"0x{number:040x}"


def write_snapshots(folder: Path | str, snapshots: Sequence[Snap], batch: int = 0) -> None:
    """Store snapshots and their holdings."""
    facts, holdings = list[dict[str, Any]](), list[dict[str, Any]]()
    for each in snapshots:
        day = datetime(FIRST.year, FIRST.month, FIRST.day, tzinfo=UTC) + timedelta(days=each.day)
        key = {"chain": CHAIN, "bucket": bucket(each.account), "account": each.account, "day": day}
        key |= {"attempt": each.attempt, "height": each.height}
        facts_columns = {"time": day, "hash": "0x00", "taken": day, "batch": batch, "retry": False}
        facts.append({**key, **facts_columns, "completeness": each.completeness, "value": "0"})
        for item, holding in enumerate(each.holdings):
            row = holding._asdict() | {"raw": None if holding.raw is None else holding.raw.to_bytes(32, "big")}
            holdings.append({**key, **row, "item": item, "protocol": "wallet", "position": "WALLET", "symbol": "T"})
    _append(folder, SNAPSHOTS, facts, batch)
    _append(folder, SNAPSHOT_HOLDINGS, holdings, batch)


def write_prices(folder: Path, prices: Sequence[tuple[int, str, str, str | None]], batch: int = 0) -> None:
    """Store prices: height, contract, USD and what the market could pay."""
    observed_at = datetime(2025, 1, 1, tzinfo=UTC)
    rows = [
        {
            "chain": CHAIN,
            "height": height,
            "time": observed_at,
            "asset": NAMES.get(contract, f"eip155:1/erc20:{contract}"),
            "usd": usd,
            "source": "example",
            "observed": observed_at,
            "confidence": "1",
            "depth_usd": depth,
            **{"detail": "", "others": "[]", "calls": "[]"},
        }
        for height, contract, usd, depth in prices
    ]
    _append(folder, PRICES, rows, batch)


def _append(folder: Path | str, table: Table, rows: list[dict[str, Any]], batch: int) -> None:
    content = pa.Table.from_pylist(rows, schema=table.schema())
    assert Lake(str(folder)).append(table, content, stream="test", batch=batch)
