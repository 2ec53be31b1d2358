"""Copy a lake into another folder or object store, and compare all files by digests.

Each table is copied as it is: the files of its newest version, and the log from its last checkpoint on. So the marks of
batches stay. The first entry of the log is copied last: before it, the target has no table. A transfer that was
interrupted copies the remaining files when it is repeated. A table with other versions is refused, also one that came
while files were copied, so no commit is ever overwritten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from deltalake import DeltaTable

from chainfolio.errors import StoreError
from chainfolio.storage.deltalog import files_of, needed_entries
from chainfolio.storage.lake_reader import translate_errors
from chainfolio.storage.lake_storage import LOG
from chainfolio.storage.parquet import compare_file
from chainfolio.storage.transfer import CopiedTable

if TYPE_CHECKING:
    from chainfolio.storage.checksums import ReadAt
    from chainfolio.storage.lake_storage import LakeStorage
    from chainfolio.storage.parquet import Bucket, Folder

STORE: Final = "lake"
START_AGAIN: Final = "stop everything that writes, empty the target, and start again"
PART_BYTES: Final = 4 * 2**20
COPIERS: Final = 8  # files at once: an object store answers slowly


@dataclass(frozen=True, slots=True)
class _Version:
    """The newest version of a table: the paths of its files and of the entries of its log, and its rows."""

    number: int
    files: list[str]
    entries: list[str]
    rows: int


def transfer_lake(source: LakeStorage, target: LakeStorage) -> Iterator[CopiedTable]:
    """Copy the tables of a lake, one per step of the iteration, and yield the result for each one.

    Files that are equal already are not copied. At the end the source is looked at once more.

    Raises:
        StoreError: The target has other tables or versions, or the source has changed during the transfer.
    """
    with translate_errors("of the lake"):
        names, foreign = source.table_names(), sorted(set(target.table_names()) - set(source.table_names()))
    if foreign:
        raise _refused(f"the target has the table {foreign[0]}, which the source does not have")
    versions = {name: _newest(source, name) for name in names}
    for name, version in versions.items():
        with translate_errors(name):
            _check_is_free(source, target, name, version)
    for name, version in versions.items():
        with translate_errors(name):
            copied = _copied(source, target, name, version)
        yield copied
    with translate_errors("of the lake"):
        is_same = source.table_names() == names
    if not is_same or any(_newest(source, name).number != version.number for name, version in versions.items()):
        raise StoreError(STORE, "its tables were changed while they were copied", remedy=START_AGAIN)


def _newest(storage: LakeStorage, name: str) -> _Version:
    """Return the newest version of a table. Raises StoreError if it cannot be read."""
    with translate_errors(name):
        handle = DeltaTable(f"{storage.uri}/{name}", storage_options=storage.delta_options)
        files, number = files_of(handle), handle.version()
        entries = [f"{LOG}/{entry}" for entry in needed_entries(storage.log_names(name), number)]
        return _Version(number, [file.path for file in files], entries, sum(file.rows for file in files))


def _check_is_free(source: LakeStorage, target: LakeStorage, name: str, version: _Version) -> None:
    """Raise StoreError if the target has another version of a table; equal log entries may exist."""
    stored = {f"{LOG}/{entry}" for entry in needed_entries(target.log_names(name), None)}
    folders = source.folder(name), target.folder(name)
    for entry in sorted(stored):
        if entry not in version.entries or _digest(folders[0], entry) != _digest(folders[1], entry):
            raise _refused(f"table {name} of the target has another entry {entry} than the source")


def _copied(source: LakeStorage, target: LakeStorage, name: str, version: _Version) -> CopiedTable:
    """Copy the missing files of a table, then its log, and compare all of them.

    Raises:
        CorruptFile: A file is damaged.
        StoreError: The table differs from its source after the copy, or the target has another version by now.
    """
    copy = partial(_copy, source.folder(name), folder := target.folder(name), name)
    with ThreadPoolExecutor(COPIERS) as pool:
        results = list(pool.map(copy, version.files))
    folder.sync_directories(version.files)
    _check_is_free(source, target, name, version)  # copying may take hours
    results += [copy(entry) for entry in reversed(version.entries)]
    folder.sync_directories()
    target.sync_commits(name, -1)
    if _newest(target, name) != version:
        raise StoreError(STORE, f"table {name} differs after it was copied", remedy=START_AGAIN)
    digest = hashlib.sha256()
    for path, sha256 in sorted(zip([*version.files, *reversed(version.entries)], results, strict=True)):
        digest.update(f"{path}\0{sha256[0]}\n".encode())
    return CopiedTable(STORE, name, version.rows, digest.hexdigest(), any(is_new for _, is_new in results))


def _copy(source: Folder | Bucket, target: Folder | Bucket, table: str, path: str) -> tuple[str, bool]:
    """Copy a file of a table unless it is equal already; return its SHA-256, and True if it was copied.

    A copy is compared with the checksums of the file; an entry of a log has none, and is read again. A file of the same
    name with other bytes is replaced: it is damaged, because names of files have digests.

    Raises:
        CorruptFile: The file is damaged.
        StoreError: The file was read only in part. Also for an entry of the log of which the target has another one, or
            that differs from its source after the copy.
    """
    present, directory = _digest(target, path), path.rpartition("/")[0]
    if present is not None and present == _digest(source, path):
        return present, False
    if present is not None and directory == LOG:
        raise _refused(f"table {table} of the target has another entry {path} than the source")
    digest = hashlib.sha256()
    with (
        source.source(path) as (size, read_at),
        target.create(directory, lambda: path.rpartition("/")[2]) as copy,
    ):
        for part in _parts(path, size, read_at):
            digest.update(part)
            copy.write(part)
    if directory != LOG:
        for _ in compare_file(target, path):
            pass
    elif {_digest(target, path), _digest(source, path)} != {digest.hexdigest()}:
        raise StoreError(STORE, f"{table}/{path} is another one after it was copied", remedy="run it again")
    return digest.hexdigest(), True


def _digest(folder: Folder | Bucket, path: str) -> str | None:
    """Return the SHA-256 of a file; None if there is none."""
    digest = hashlib.sha256()
    try:
        with folder.source(path) as (size, read_at):
            for part in _parts(path, size, read_at):
                digest.update(part)
    except FileNotFoundError:
        return None
    return digest.hexdigest()


def _parts(path: str, size: int, read_at: ReadAt) -> Iterator[bytes]:
    """Yield the bytes of a file. Raises StoreError if they end before its size."""
    for start in range(0, size, PART_BYTES):
        part = read_at(start, count := min(PART_BYTES, size - start))
        if len(part) != count:
            raise StoreError(STORE, f"{path} was read only in part", remedy="run it again")
        yield part


def _refused(reason: str) -> StoreError:
    remedy = "name an empty place; an interrupted move continues only while the source stays as it was"
    return StoreError(STORE, reason, remedy=remedy)
