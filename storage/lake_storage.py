"""The storage of a lake: a local folder or an object store, and the differences between the two."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from chainfolio.storage.deltalog import needed_entries
from chainfolio.storage.disk import sync
from chainfolio.storage.parquet import Bucket, Folder

if TYPE_CHECKING:
    from chainfolio.storage.object_store import ObjectStore

FileVersion = tuple[int, int, int, int]
LOG: Final = "_delta_log"


class LakeStorage(Protocol):
    """The address of a lake, and what has to be done there besides reading and writing Delta tables."""

    uri: str

    @property
    def delta_options(self) -> dict[str, str] | None:
        """The options with which the Delta library opens a table."""

    def folder(self, table: str) -> Folder | Bucket:
        """Return the folder with a table's files."""

    def table_names(self) -> list[str]:
        """Return the names of all tables with an entry in their log, sorted.

        Tables that this release does not know are among them. An interrupted first commit may leave an empty log.
        """

    def log_names(self, table: str) -> list[str]:
        """Return the names of all files in the log of a table; empty if there is none."""

    def may_exist(self, table: str) -> bool:
        """Return False if a table was never written; True if it has to be opened to know."""

    def is_newest(self, table: str, version: int) -> bool:
        """Return True if no commit follows `version`; False if the log has to be listed to know."""

    def sync_commits(self, table: str, before: int) -> None:
        """Make all commits after version `before` durable."""

    def discard_torn_entry(self, table: str) -> bool:
        """Set aside a last log entry that a power failure left incomplete. Return True if there was one."""


class LocalStorage:
    """A lake in a local folder. Commits are forced to the disk, which the Delta library does not do."""

    delta_options = None

    def __init__(self, path: str) -> None:
        self.uri = path

    def folder(self, table: str) -> Folder:
        """Return the folder with a table's files."""
        return Folder(Path(self.uri, table))

    def table_names(self) -> list[str]:
        """Return the names of all tables with an entry in their log, sorted."""
        names = (log.parent.name for log in Path(self.uri).glob(f"*/{LOG}"))
        return sorted(name for name in names if needed_entries(self.log_names(name), None))

    def log_names(self, table: str) -> list[str]:
        """Return the names of all files in the log of a table."""
        log = self._log(table)
        return [entry.name for entry in log.iterdir()] if log.exists() else []

    def may_exist(self, table: str) -> bool:
        """Return True if the table has a log."""
        return self._log(table).exists()

    def is_newest(self, table: str, version: int) -> bool:
        """Return True if no commit follows `version`.

        Checking for the next log entry takes a hundredth of listing the log. The log is cleaned from its oldest entry
        on: if the entry of `version` exists, so does a later one.
        """
        current, following = (self._log(table) / f"{number:020}.json" for number in (version, version + 1))
        return current.exists() and not following.exists()

    def sync_commits(self, table: str, before: int) -> None:
        """Force all commits after version `before`, their checkpoints and the log's folder to the disk."""
        log = self._log(table)
        version = before + 1
        while (entry := log / f"{version:020}.json").exists():
            sync(entry)
            checkpoint = entry.with_suffix(".checkpoint.parquet")
            if checkpoint.exists():
                sync(checkpoint)
            version += 1
        sync(log)
        if before < 0:
            sync(log.parent)
            sync(log.parent.parent)

    def discard_torn_entry(self, table: str) -> bool:
        """Rename a last log entry that a power failure left incomplete, and return True if there was one.

        Such an entry was never forced to the disk, so its commit was never confirmed.
        """
        entries = sorted(self._log(table).glob("*.json"))
        if not entries:
            return False
        try:
            for line in entries[-1].read_bytes().splitlines():
                json.loads(line)
        except ValueError:
            entries[-1].rename(entries[-1].with_suffix(".torn"))
            return True
        return False

    def _log(self, table: str) -> Path:
        return Path(self.uri, table, LOG)


class ObjectStorage:
    """A lake in an object store. Finished objects are durable, and commits are conditional writes."""

    def __init__(self, uri: str, store: ObjectStore) -> None:
        self.uri, self._store = uri, store

    @cached_property
    def delta_options(self) -> dict[str, str]:
        """The address of the store, and the limits of repeated requests."""
        return self._store.delta_options()

    def folder(self, table: str) -> Bucket:
        """Return the prefix with a table's objects."""
        return Bucket(self._store.folder(f"{self.uri}/{table}"))

    def table_names(self) -> list[str]:
        """Return the sorted names of all tables with an entry in their log, by one request for each."""
        return sorted(name for name in self._names("") if needed_entries(self.log_names(name), None))

    def log_names(self, table: str) -> list[str]:
        """Return the names of all objects in the log of a table."""
        return self._names(f"{table}/{LOG}")

    def _names(self, directory: str) -> list[str]:
        """Return the names right below a prefix of the lake; empty if there are none."""
        from pyarrow.fs import FileSelector

        filesystem = self._store.folder(self.uri)
        return [info.base_name for info in filesystem.get_file_info(FileSelector(directory, allow_not_found=True))]

    def may_exist(self, table: str) -> bool:
        """Return True: only the Delta library looks for the log."""
        return True

    def is_newest(self, table: str, version: int) -> bool:
        """Return False: the Delta library looks for newer commits."""
        return False

    def sync_commits(self, table: str, before: int) -> None:
        """Do nothing: objects are durable."""

    def discard_torn_entry(self, table: str) -> bool:
        """Return False: an object is written whole, or not at all."""
        return False
