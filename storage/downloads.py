"""Local copies of files of a lake in an object store, for processes without network access.

Files never change, so a copy is made once. It is compared with its checksums before it gets its name. So a copy that
has its name is whole, even if another process made it or was killed meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from chainfolio.storage.checksums import ChecksumReader, read_footer
from chainfolio.storage.disk import write_error
from chainfolio.storage.lake import Lake
from chainfolio.storage.lake_reader import translate_errors
from chainfolio.storage.parquet import Folder, LakeFile
from chainfolio.table import Table

KEEP_S = 24 * 3600  # a query that began before a file was replaced may still read its copy
PART = 4 * 2**20


class Downloads:
    """Copies of a lake's files in a local folder, below the names of their tables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, table: Table, file: LakeFile) -> Path:
        """Return the path of the copy of a file."""
        return self.folder / table.name / file.path

    def fetch(self, lake: Lake, table: Table, files: Iterable[LakeFile], report: Callable[[int], None]) -> None:
        """Copy the missing ones of a table's files.

        Copies of other files are deleted, and drafts of unfinished copies, if they are older than `KEEP_S`.

        Args:
            report: Called with the number of bytes of each part that was copied.

        Raises:
            CorruptFile: A file does not match its checksums. There is no copy of it.
            StoreError: The object store does not answer, or the folder cannot be written.
        """
        current = set()
        for file in files:
            path = self.path(table, file)
            current.add(path)
            if not path.exists():
                self._copy(lake, table, file, report)
        limit = time.time() - KEEP_S
        for path in (self.folder / table.name).rglob("part-*"):
            with suppress(OSError):  # another query deleted it
                if path not in current and path.stat().st_mtime < limit:
                    path.unlink()

    def _copy(self, lake: Lake, table: Table, file: LakeFile, report: Callable[[int], None]) -> None:
        """Write the copy of a file under a temporary name, compare it, and rename it.

        Raises:
            CorruptFile: It does not match its checksums.
            StoreError: The object store does not answer, or the folder cannot be written.
        """
        directory, _, name = file.path.rpartition("/")
        try:
            with Folder(self.folder / table.name).create(directory, lambda: name) as copy:
                for part in _parts(lake, table, file):
                    copy.write(part)
                    report(len(part))
                copy.flush()
                with translate_errors(table):
                    _compare(file, copy)
        except OSError as error:
            raise write_error("sql", self.folder, error) from error


def _parts(lake: Lake, table: Table, file: LakeFile) -> Iterator[bytes]:
    """Yield the bytes of a file of the lake in parts."""
    with translate_errors(table), lake.storage.folder(table.name).source(file.path) as (size, read_at):
        for start in range(0, size, PART):
            yield read_at(start, min(PART, size - start))


def _compare(file: LakeFile, copy: BinaryIO) -> None:
    """Compare all bytes of a copy with the checksums of the file. Raises CorruptFile."""
    handle = copy.fileno()
    size = os.fstat(handle).st_size

    def read_at(offset: int, count: int) -> bytes:
        return os.pread(handle, count, offset)

    for _ in ChecksumReader(file.path, size, read_at, read_footer(file.path, size, read_at)).blocks():
        pass
