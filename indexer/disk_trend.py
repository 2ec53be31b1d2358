"""Trend of the lake: files of each table, growth a day, and the days until its disk is full."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chainfolio.errors import ChainfolioError, StaleTable
from chainfolio.indexer.materialise import STATE_TABLES
from chainfolio.tables import TABLES

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.storage.lake_reader import LakeReader
    from chainfolio.storage.parquet import LakeFile
    from chainfolio.table import Table

DAY_S: Final = 86_400
WARN_DAYS: Final = 30
REMEDY: Final = "add space, move the lake with `lake.uri`, or index fewer chains"


@dataclass(frozen=True, slots=True)
class DiskTrend:
    """Files and growth of the lake, and the space on its disk.

    Attributes:
        file_counts: Number of files by table, without files that were replaced. Tables without files, and tables that
            another release wrote, are not among them.
        day_bytes: Bytes of the newest day of all chains. Rewritten tables of balances do not count.
        free_bytes: Free space on the disk of the lake; None if the lake is not on a local disk.
    """

    file_counts: dict[str, int]
    day_bytes: int
    free_bytes: int | None

    @property
    def days_left(self) -> int | None:
        """Days until the disk is full, at the growth of the newest day.

        None if nothing grows or the disk is not local.
        """
        return None if self.free_bytes is None or not self.day_bytes else self.free_bytes // self.day_bytes

    @property
    def warning(self) -> str:
        """The warning that the disk will soon be full, with its remedy; empty if there is time."""
        if self.days_left is None or self.days_left >= WARN_DAYS:
            return ""
        return f"the disk is full in about {self.days_left} days: {REMEDY}"


def free_bytes_at(folder: Path) -> int:
    """Return the free space of the disk of a folder, which need not exist yet."""
    existing = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    return shutil.disk_usage(existing).free


def disk_trend(
    lake: LakeReader, chains: Sequence[Chain], free_bytes: Callable[[Path], int] = free_bytes_at
) -> DiskTrend:
    """Return the trend of a lake from the logs of its tables, without tables of another release.

    Tables that are replaced as a whole do not count as growth. The free space is None if the lake is remote.

    Args:
        free_bytes: Returns the free space of the disk of a folder.

    Raises:
        StoreError: A table cannot be read.
    """
    files = {name: table_files for name, table in TABLES.items() if (table_files := _readable_files(lake, table))}
    growing = [file for name, table_files in files.items() if name not in STATE_TABLES for file in table_files]
    day_bytes = sum(_newest_bytes(growing, chain.key, chain.info.blocks_in(DAY_S)) for chain in chains)
    free = free_bytes(Path(lake.uri)) if lake.is_local else None
    return DiskTrend({name: len(table_files) for name, table_files in files.items()}, day_bytes, free)


def _readable_files(lake: LakeReader, table: Table) -> list[LakeFile]:
    """Return the files of a table; empty if it does not exist or another release wrote it."""
    try:
        return lake.entries(table)
    except StaleTable:
        return []


def _newest_bytes(files: Sequence[LakeFile], chain: str, blocks: int) -> int:
    """Return the bytes of a chain's newest blocks; files with older blocks too count in proportion.

    0 without files.
    """
    own = [file for file in files if file.chain == chain]
    start = max((file.last for file in own), default=0) - blocks + 1
    return sum(
        file.size * (file.last - max(file.first, start) + 1) // (file.last - file.first + 1)
        for file in own
        if file.last >= start
    )


class LakeMetrics:
    """Metrics of the lake, computed at each scrape."""

    def __init__(self, read_trend: Callable[[], DiskTrend]) -> None:
        self._read_trend = read_trend

    def collect(self) -> Iterator[Any]:
        """Yield all metrics; unknown ones are left out. Yield none if a table cannot be read."""
        from prometheus_client.core import GaugeMetricFamily

        try:
            trend = self._read_trend()
        except ChainfolioError:  # the other metrics of the process are shown all the same
            return
        files = GaugeMetricFamily("chainfolio_lake_files", "files of a table, without replaced ones", labels=["table"])
        for name, count in trend.file_counts.items():
            files.add_metric([name], count)
        yield files
        yield GaugeMetricFamily("chainfolio_lake_day_bytes", "bytes of the newest day", value=trend.day_bytes)
        if trend.free_bytes is not None:
            yield GaugeMetricFamily("chainfolio_disk_free_bytes", "free space of its disk", value=trend.free_bytes)
        if trend.days_left is not None:
            yield GaugeMetricFamily("chainfolio_disk_days_left", "days until the disk is full", value=trend.days_left)
