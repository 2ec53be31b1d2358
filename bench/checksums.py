"""Measure the cost of comparing files with their checksums.

It compares the processor time of reads with and without the comparison, and the time of a later query, whose files
were compared before, with that of `--unchecked`.

python -m bench.checksums [--rows 1000000] [--repeat 9]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow.parquet as pq

from bench import runs
from bench.figures import Figure, main, spread
from bench.lookup import CHAIN, fill
from bench.places import ROOT, scratch
from chainfolio.storage.lake import Lake
from chainfolio.storage.parquet import Folder, open_file
from chainfolio.table import Table
from chainfolio.tables import ACCOUNT_TRANSFERS, TRANSFERS

Open = Callable[[Folder, str], AbstractContextManager[pq.ParquetFile]]
Read = Callable[[pq.ParquetFile], int]
BAR = 1.4
QUERY = "SELECT count(*) AS n, count(DISTINCT sender) AS senders, max(raw) AS largest FROM transfers"
QUERY_BAR = 1.1


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    with scratch() as folder:
        lake = Lake(str(folder / "lake"))
        fill(lake, options.rows // 2)
        return [
            _compared(lake, TRANSFERS, "all of a table", _read_all, options.repeat),
            _compared(lake, TRANSFERS, "two columns of a table", _two_columns, options.repeat),
            _compared(lake, ACCOUNT_TRANSFERS, "one row group of each file", _one_group, options.repeat),
            _later_query(folder, options.repeat),
        ]


def _compared(lake: Lake, table: Table, subject: str, read: Read, repeat: int) -> Figure:
    """Compare both ways of reading in turns, without the first turn; fails if their rows differ."""
    files, ratios = lake.files(table, CHAIN), list[float]()
    for turn in range(repeat + 1):
        (checked_s, rows), (plain_s, plain_rows) = (
            _spent(files, opener, read) for opener in (open_file, _open_unchecked)
        )
        assert rows == plain_rows > 0, f"{rows} rows with the comparison, {plain_rows} without"
        if turn:
            ratios.append(checked_s / plain_s)
    is_met = statistics.median(ratios) <= BAR
    name = f"processor time of reading {subject}, with the comparison / without"
    return Figure("checksums", name, spread(ratios), f"≤ {BAR}", is_met, {"rows": rows, "files": len(files)})


def _open_unchecked(folder: Folder, path: str) -> pq.ParquetFile:
    return pq.ParquetFile(folder.root / path)


def _later_query(folder: Path, repeat: int) -> Figure:
    """Return the wall time of a query of files that were verified before, relative to `--unchecked`.

    Both run in turns, `repeat` times, in separate processes, and give the same rows.
    """
    environment = runs.environment({"CHAINFOLIO_DATA": str(folder), "PYTHONPATH": str(ROOT)})
    query = [*runs.product(), "sql", QUERY, "--json"]
    first, ratios = runs.run(query, environment).checked(), list[float]()
    for _ in range(repeat):
        later, unchecked = (runs.run([*query, *options], environment).checked() for options in ((), ("--unchecked",)))
        assert later.output == unchecked.output == first.output, "the same rows"
        ratios.append(later.wall_s / unchecked.wall_s)
    is_met = statistics.median(ratios) <= QUERY_BAR
    name = "wall of a second `chainfolio sql` query / the same one with --unchecked"
    facts = {"first_s": round(first.wall_s, 2), "later_s": round(later.wall_s, 2)}
    return Figure("checksums", name, spread(ratios), f"≤ {QUERY_BAR}", is_met, facts)


def _spent(files: Sequence[str], opener: Open, read: Read) -> tuple[float, int]:
    start_s = time.process_time()
    rows = sum(_rows(files, opener, read))
    return time.process_time() - start_s, rows


def _rows(files: Sequence[str], opener: Open, read: Read) -> Iterator[int]:
    for file in map(Path, files):
        with opener(Folder(file.parent), file.name) as parquet:
            yield read(parquet)


def _read_all(parquet: pq.ParquetFile) -> int:
    return int(parquet.read().num_rows)


def _two_columns(parquet: pq.ParquetFile) -> int:
    return int(parquet.read(columns=["height", "raw"]).num_rows)


def _one_group(parquet: pq.ParquetFile) -> int:
    return int(parquet.read_row_group(parquet.num_row_groups // 2).num_rows)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--rows", type=int, default=1_000_000, help="of account_transfers; half as many transfers")
    parser.add_argument("--repeat", type=int, default=9)


if __name__ == "__main__":
    main(__doc__, run, add)
