"""Measure the files and bytes in the lake by hour while a fast chain is followed, without a node.

python -m bench.follow [--hours 24] [--transfers 6 600]

The follower's code that moves final blocks and the maintenance run on a virtual clock; blocks are generated.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from bench.figures import Figure, main
from bench.places import scratch
from chainfolio.blocks import Span
from chainfolio.indexer import follow, materialise
from chainfolio.indexer.maintenance import Maintenance
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.table import Table
from chainfolio.tables import ACCOUNT_TRANSFERS, BLOCKS, TABLES, TRANSACTIONS, TRANSFERS

CHAIN: Final = "local"
CHECK_EVERY_S: Final = 30.0  # as the default of `schedule.materialise`
BLOCK_MS: Final = 250
ACCOUNTS: Final = 50_000
MAX_FILES: Final = 3_000
MAX_ACCOUNT_FILES: Final = 4
MAX_BYTES: Final = 1.15
KEEP_H: Final = 1  # our own readers end within an hour


@dataclass(slots=True)
class Jumping:
    """A clock whose time advances by sleeps and assignments only."""

    now_s: float = 0.0

    def monotonic_s(self) -> float:
        """Return the seconds that passed."""
        return self.now_s

    def now_us(self) -> int:
        """Return the time in microseconds."""
        return int(self.now_s * 1_000_000)  # float: a clock

    async def sleep(self, seconds: float) -> None:
        """Advance the time by `seconds`."""
        self.now_s += seconds


def generated(table: Table, span: Span, per_block: int, chance: random.Random) -> pa.Table:
    """Return rows of a chain with random accounts and amounts."""
    positions = [(height, number) for height in range(span.first, span.last + 1) for number in range(per_block)]
    columns: dict[str, list[Any]] = {}
    for column in table.columns:
        fixed: dict[str, list[Any]] = {
            "chain": [CHAIN] * len(positions),
            "height": [height for height, _ in positions],
            "time": [height * BLOCK_MS * 1000 for height, _ in positions],
            "tx_index": [number for _, number in positions],
            "log_index": [number for _, number in positions],
        }
        columns[column.name] = fixed.get(column.name) or [_value(column.type, chance) for _ in positions]
    return pa.table(columns, schema=table.schema())


def _value(kind: str, chance: random.Random) -> Any:
    match kind:
        case "raw":
            return chance.randrange(10**24).to_bytes(32, "big")
        case "bytes":
            return chance.randbytes(20)
        case "bool":
            return chance.random() < 0.5
        case "text":
            return f"0x{chance.randrange(ACCOUNTS):040x}"
        case _:
            return chance.randrange(100)


def delete_replaced(lake: Lake, replaced: set[Path]) -> tuple[int, set[Path]]:
    """Delete files that were replaced before the last hour.

    `Lake.delete_replaced` uses the machine's clock, which does not follow the virtual one.

    Returns:
        The number of files before it, and those that are replaced but remain.
    """
    present = {
        Path(lake.address(table, file))
        for table in TABLES.values()
        if lake.exists(table)
        for file in lake.entries(table)
    }
    files = set(Path(lake.uri).rglob("*.parquet")) - set(Path(lake.uri).rglob("_delta_log/*"))
    assert present <= files
    for path in replaced:
        path.unlink()
    return len(files), files - present - replaced


def bytes_of(lake: Lake) -> int:
    """Return the bytes of the present files."""
    return sum(file.size for table in TABLES.values() if lake.exists(table) for file in lake.entries(table))


def follow_for(folder: Path, hours: int, transfers: int) -> list[tuple[int, int, int, float]]:
    """Follow a chain, then compact the lake.

    Returns:
        For each hour: files, most files of an account, bytes, seconds of processor time. The last row is of the
        compacted lake, with its bytes alone.
    """
    lake, tail, clock = Lake(str(folder / "lake")), Tail(folder / "tail.db"), Jumping()
    maintenance = Maintenance(lake, tail, CHAIN, BLOCK_MS, KEEP_H)
    chance, height, batch, figures = random.Random(transfers), 0, 0, list[tuple[int, int, int, float]]()
    per_move = min(follow.FINALISE_BLOCKS, int(follow.FINALISE_S * 1000 / BLOCK_MS))
    replaced = set[Path]()
    sizes = {TRANSFERS: transfers, TRANSACTIONS: max(1, transfers // 2), BLOCKS: 1}
    for _hour in range(hours):
        cpu_s, end_s = time.process_time(), clock.now_s + 3600
        next_check_s = clock.now_s
        while clock.now_s < end_s:
            span, batch = Span(height, height + per_move - 1), batch + 1
            height += per_move
            opened = tail.open_batch(CHAIN, span, tuple(table.name for table in sizes), ("",), after=batch - 1)
            for table, count in sizes.items():
                rows = generated(table, span, count, chance)
                lake.append(table, rows, stream=f"{CHAIN}/follow", batch=opened.number)
            tail.close_batch(opened)
            clock.now_s += per_move * BLOCK_MS / 1000
            if clock.now_s >= next_check_s:
                maintenance.run_once()
                next_check_s = clock.now_s + CHECK_EVERY_S
        by_bucket = Counter(file.bucket for file in lake.entries(ACCOUNT_TRANSFERS))
        account_files = max(by_bucket.values(), default=0)
        count, replaced = delete_replaced(lake, replaced)
        figures.append((count, account_files, bytes_of(lake), time.process_time() - cpu_s))
        print(f"{transfers} transfers a block, hour {len(figures)}: {figures[-1]}", flush=True)
    assert lake.count(TRANSFERS, CHAIN) == height * transfers, "no row is lost or doubled"
    materialise.materialise(lake, tail, CHAIN, tuple(materialise.HISTORIES))
    for table in TABLES.values():
        if lake.exists(table):
            lake.compact(table, CHAIN)
    figures.append((0, 0, bytes_of(lake), 0.0))
    return figures


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    figures = []
    for transfers in options.transfers:
        with scratch() as folder:
            *hours, (_, _, compacted, _) = follow_for(folder, options.hours, transfers)
        subject = f"{options.hours} h of 4 blocks/s with {transfers} transfers each"
        files, account_files = max(each[0] for each in hours), max(each[1] for each in hours)
        figures += [
            Figure(
                "follow",
                f"{subject}: most files of all tables, replaced ones too",
                f"{files:,}",
                f"≤ {MAX_FILES:,}",
                files <= MAX_FILES,
            ),
            Figure(
                "follow",
                f"{subject}: most files of an account's history",
                f"{account_files}",
                f"≤ {MAX_ACCOUNT_FILES}",
                account_files <= MAX_ACCOUNT_FILES,
            ),
            Figure(
                "follow",
                f"{subject}: bytes / compacted",
                f"{hours[-1][2] / compacted:.2f} x",
                f"≤ {MAX_BYTES}",
                hours[-1][2] <= MAX_BYTES * compacted,
            ),
        ]
    return figures


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--transfers", type=int, nargs="+", default=[6, 600])


if __name__ == "__main__":
    main(__doc__, run, add)
