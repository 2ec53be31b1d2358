"""The lake and the tail of `bench.soak`: they count reads, and files age by the virtual clock."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.soak_chain import KEY, GeneratedLedger
from chainfolio.blocks import Span
from chainfolio.indexer import materialise
from chainfolio.storage.checksums import ReadAt
from chainfolio.storage.lake import Lake
from chainfolio.storage.lake_storage import LOG, LocalStorage
from chainfolio.storage.parquet import Folder, LakeFile
from chainfolio.storage.tail import Tail
from chainfolio.table import Table
from chainfolio.tables import BLOCKS, TABLES, TRANSACTIONS, TRANSFERS

SOURCES: Final = (TRANSFERS, TRANSACTIONS, BLOCKS)
AT_ONCE: Final = 20_000  # blocks in one commit of a lake that is written at once
CHECKPOINT: Final = 100  # commits between two checkpoints, at which the Delta library deletes old entries of a log
MARGIN_S: Final = 0.5  # makes entries younger, so that one at the age limit stays in every run


@dataclass
class StoredFiles:
    """Files that the lakes of one folder opened and replaced. They outlive the processes of a run.

    Attributes:
        opened: Number of opened files.
        replaced: The time at which a file was replaced, by table and path.
        logged: The time at which an entry of a log was written.
    """

    now_s: Callable[[], float]
    opened: int = 0
    replaced: dict[tuple[str, str], float] = field(default_factory=dict)
    logged: dict[Path, float] = field(default_factory=dict)

    def age_log(self, log: Path) -> None:
        """Give each entry of a log the age that it has by the virtual clock."""
        machine_s, now_s = time.time(), self.now_s()
        present = set(log.iterdir()) if log.exists() else set()
        for entry in [each for each in self.logged if each.parent == log and each not in present]:
            del self.logged[entry]
        for entry in present:
            age_s = now_s - self.logged.setdefault(entry, now_s)
            changed_s = machine_s - age_s + MARGIN_S
            os.utime(entry, (changed_s, changed_s))

    def sizes(self, lake: Path) -> tuple[int, int, int]:
        """Return the number of data files, that of files of logs, and the bytes of both."""
        data, logs, size = 0, 0, 0
        for folder, _, names in os.walk(lake):
            if Path(folder).name == LOG:
                logs += len(names)
            else:
                data += len(names)
                size += sum(Path(folder, name).stat().st_size for name in names)
        return data, logs, size


class _CountedFolder(Folder):
    """A folder that counts the files that are opened for reading."""

    def __init__(self, root: Path, files: StoredFiles) -> None:
        super().__init__(root)
        self._files = files

    @contextmanager
    def source(self, path: str) -> Iterator[tuple[int, ReadAt]]:
        self._files.opened += 1
        with super().source(path) as opened:
            yield opened


class _CountedStorage(LocalStorage):
    def __init__(self, path: str, files: StoredFiles) -> None:
        super().__init__(path)
        self._files = files

    def folder(self, table: str) -> Folder:
        return _CountedFolder(Path(self.uri, table), self._files)


class SimulatedLake(Lake):
    """A lake whose replaced files and log entries age by the virtual clock.

    The Delta library uses the machine's clock. So this class deletes replaced files itself, by the same rule, and sets
    the times of log files before the library deletes them.
    """

    def __init__(self, uri: str, files: StoredFiles) -> None:
        super().__init__(uri)
        self.storage, self.stored = _CountedStorage(uri, files), files
        self.is_local = False  # disables the thread that reads footers ahead, which makes runs differ

    def _commit(
        self,
        table: Table,
        added: list[LakeFile],
        removed: list[LakeFile],
        batch: tuple[str, int] | None = None,
        *,
        changes: bool = True,
    ) -> bool:
        writer: Any = self._writers.get(table.name)
        self.stored.logged.setdefault(
            self._entry(table, 0 if writer is None else writer.version() + 1), self.stored.now_s()
        )
        if writer is not None and (writer.version() + 2) % CHECKPOINT <= 1:
            self.stored.age_log(Path(self.uri, table.name, LOG))
        is_committed = super()._commit(table, added, removed, batch, changes=changes)
        for file in removed if is_committed else ():
            self.stored.replaced[table.name, file.path] = self.stored.now_s()
        return is_committed

    def _entry(self, table: Table, version: int) -> Path:
        return Path(self.uri, table.name, LOG, f"{version:020}.json")

    def _vacuum(self, table: Table, retention_hours: int) -> int:
        """Delete files that were replaced before the last `retention_hours`."""
        limit_s = self.stored.now_s() - retention_hours * 3600
        old = [key for key, at_s in self.stored.replaced.items() if key[0] == table.name and at_s <= limit_s]
        for key in old:
            self.storage.folder(table.name).remove(key[1])
            del self.stored.replaced[key]
        return len(old)

    def total_bytes(self) -> int:
        """Return the bytes of the present files."""
        return sum(file.size for table in TABLES.values() if self.exists(table) for file in self.entries(table))


class CountedTail(Tail):
    """A tail that counts its reads."""

    read_count = 0

    def _read(self, sql: str, *arguments: object) -> Any:
        self.read_count += 1
        return super()._read(sql, *arguments)


def written_at_once(folder: Path, ledger: GeneratedLedger, last: int, files: StoredFiles) -> SimulatedLake:
    """Return a new lake with the blocks up to a height, in few commits, with histories and large files."""
    lake, tail = SimulatedLake(str(folder / "lake"), files), Tail(folder / "tail.db")
    try:
        for span in Span(0, last).cut(AT_ONCE):
            batch = tail.open_batch(KEY, span, tuple(table.name for table in SOURCES), ("",), after=0)
            rows = ledger.rows(span, [table.name for table in SOURCES])
            for table in SOURCES:
                lake.append(table, rows[table.name], stream=f"{KEY}/once", batch=batch.number)
            tail.close_batch(batch)
        materialise.materialise(lake, tail, KEY, tuple(materialise.HISTORIES))
        for table in TABLES.values():
            if lake.exists(table):
                lake.compact(table, KEY)
        return lake
    finally:
        tail.close()


def different_rows(lake: Lake, clean: Lake, last: int) -> tuple[int, int]:
    """Compare all tables of two lakes up to a height; return the numbers of rows and of different rows."""
    names = [*(table.name for table in SOURCES), *materialise.HISTORIES]
    rows = different = 0
    for table in (TABLES[name] for name in names):
        for span in Span(0, last).cut(AT_ONCE):
            rows_read, expected = lake.window(table, KEY, span), clean.window(table, KEY, span)
            rows += len(expected)
            if not rows_read.equals(expected):
                different += max(1, abs(len(rows_read) - len(expected)))
    return rows, different
