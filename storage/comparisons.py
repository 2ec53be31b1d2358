"""Store which versions of files matched their checksums: DuckDB does not compare files itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from chainfolio.storage.lake import Lake
from chainfolio.storage.parquet import LakeFile
from chainfolio.table import Table

FileVersion = tuple[int, int, int, int]
Versions = dict[str, FileVersion]
TableFile = tuple[Table, LakeFile]


class Comparisons:
    """The versions of a lake's files that matched their checksums, in one JSON file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._versions = _read(path)

    def pending(self, lake: Lake, files: Iterable[TableFile]) -> list[TableFile]:
        """Return the files, each with its table, that were not compared in their present version.

        Missing files that were never compared are left out.
        """
        return [
            (table, file)
            for table, file in files
            if self._versions.get(f"{table.name}/{file.path}") != _version(lake.address(table, file))
        ]

    def compare(
        self, lake: Lake, files: Iterable[TableFile], report: Callable[[int], None] = lambda count: None
    ) -> None:
        """Compare local files with their checksums, and store the versions that match.

        All given files are read, also those that matched before: `pending` leaves these out.

        Args:
            lake: The lake of the files.
            files: Files, each with its table.
            report: Called with the number of bytes of each part that was compared.

        Raises:
            CorruptFile: A file does not match its checksums. The files before it are stored.
        """
        matched: Versions = {}
        try:
            for table, file in files:
                # The version from before: a file that changes meanwhile is compared again by the next query.
                version = _version(lake.address(table, file))
                for count in lake.examine(table, file):
                    report(count)
                if version is not None:
                    matched[f"{table.name}/{file.path}"] = version
        finally:
            self._add(matched, lake)

    def _add(self, matched: Versions, lake: Lake) -> None:
        """Store versions, and remove those of deleted files; without versions nothing happens.

        In a read-only folder they are only kept in memory.
        """
        if not matched:
            return
        versions = _read(self.path) | matched
        self._versions = {path: version for path, version in versions.items() if Path(lake.uri, path).exists()}
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                draft.write_bytes(msgspec.json.encode(self._versions))
                draft.replace(self.path)
            finally:
                draft.unlink(missing_ok=True)


def _read(path: Path) -> Versions:
    """Return the stored versions; none if the file is missing or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Versions)
    except (OSError, msgspec.MsgspecError):
        return {}


def _version(path: str) -> FileVersion | None:
    """Return size, mtime, ctime and inode of a file; None if it is missing. Programs cannot set the ctime."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
