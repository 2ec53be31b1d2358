"""Random rows of any table, from its columns alone, and an empty lake for each test."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chainfolio.amounts import MAX_DEC38, MAX_RAW
from chainfolio.storage.lake import Lake
from chainfolio.table import Table, bucket

Maker = Callable[..., pa.Table]
on_both_stores = pytest.mark.parametrize(
    "lake", ["folder", pytest.param("bucket", marks=pytest.mark.slow("the same on a second store"))], indirect=True
)


@pytest.fixture
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """An empty lake in a folder, or in a bucket for tests that are marked `on_both_stores`."""
    if getattr(request, "param", "folder") == "bucket":
        return request.getfixturevalue("bucket_lake")  # type: ignore[no-any-return]
    return Lake(str(tmp_path / "lake"))


@pytest.fixture(scope="session")
def make_rows() -> Maker:
    return make


def make(table: Table, chain: str, heights: Iterable[int], per_block: int = 2, seed: int = 0) -> pa.Table:
    """Rows of a chain at some heights, in block order; every kind of value, the extreme ones included."""
    chance = random.Random(f"{seed} {table.name} {chain} {list(heights)}")
    positions = [(height, at) for height in heights for at in range(per_block)]
    accounts = [f"0x{chance.randrange(30):040x}" for _ in positions]
    columns: dict[str, list[Any]] = {}
    for column in table.columns:
        fixed: dict[str, list[Any]] = {
            "chain": [chain] * len(positions),
            "height": [height for height, _ in positions],
            "time": [height * 12_000_000 for height, _ in positions],
            "tx_index": [at for _, at in positions],
            "log_index": [at for _, at in positions],
            "account": accounts,
            "bucket": [bucket(account) for account in accounts],
        }
        values = fixed.get(column.name) or [_value(column.type, chance) for _ in positions]
        if column.nullable:
            values = [None if chance.random() < 0.2 else value for value in values]
        columns[column.name] = values
    return pa.table(columns, schema=table.schema())


def stored(lake: Lake, table: Table, chain: str) -> pa.Table:
    """A chain's rows as they lie in the files, one file after the other."""
    parts = [table.schema().empty_table()]
    for file in (file for file in lake.entries(table) if file.chain == chain):
        with lake.storage.folder(table.name).source(file.path) as (size, read_at):
            rows = pq.ParquetFile(pa.BufferReader(read_at(0, size))).read()
        partition: dict[str, Any] = {"chain": chain, "bucket": file.bucket}
        columns = [
            pa.array([partition[field.name]] * len(rows), field.type)
            if field.name in table.partitions
            else rows[field.name]
            for field in table.schema()
        ]
        parts.append(pa.table(columns, schema=table.schema()))
    return pa.concat_tables(parts)


def _value(kind: str, chance: random.Random) -> Any:
    if kind == "raw":
        raw = chance.choice([0, 1, MAX_DEC38, MAX_DEC38 + 1, MAX_RAW, chance.randrange(10**24)])
        return raw.to_bytes(32, "big")
    if kind == "bytes":
        return chance.randbytes(chance.randrange(80))
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "text":
        return f"0x{chance.getrandbits(256):064x}"
    return chance.randrange(2**31)
