"""Copy an installation of files to a folder, as it is at one moment, while others write it.

While the write lock of the tail is held, no batch begins or ends. In this time the versions of the lake's tables are
read twice until both readings are equal, and the databases are read in between. So the copies show one moment, and a
process that had died at this moment would have left the same data. The lock is held for milliseconds. Afterwards the
logs of these versions are copied, then the databases, then the data files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw
import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from chainfolio.errors import BadRequest, Locked, StoreError
from chainfolio.storage.deltalog import files_of, needed_entries
from chainfolio.storage.disk import sync, write_error
from chainfolio.storage.lake_storage import LOG
from chainfolio.storage.sqlite import connect, translate_errors
from chainfolio.storage.tail_schema import VERSION, prepare

if TYPE_CHECKING:
    from chainfolio.settings import Settings

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
SQLITE: Final = "sqlite:///"
DATABASES: Final = ("tail", "state")
MAX_READINGS: Final = 50  # of the versions; no batch can begin meanwhile, so they soon stay the same
CHUNK_BYTES: Final = 2**20
PAGES: Final = 2000  # of a database that are copied before progress is shown
ONLY_FILES: Final = (
    "backups are made of SQLite files and of a lake in a folder: use pg_dump for PostgreSQL and the versioning of the "
    "bucket for an object store; take the dump after the other writers have stopped"
)

Progress = Callable[[int, int], None]  # receives the bytes that are done, and all bytes


class BackupFile(msgspec.Struct, frozen=True):
    """A file of a backup. `path` is relative to the folder of the backup."""

    path: str
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """Manifest of a backup.

    Attributes:
        format: Version of the layout of backups.
        release: Release of Chainfolio that made the backup.
        made_at: Moment of the data, as a UTC time.
        tail: Format version of the tail.
        tables: Version of each Delta table of the lake.
        files: All files except the manifest.
    """

    format: int
    release: str
    made_at: str
    tail: int
    tables: dict[str, int]
    files: list[BackupFile]


@dataclass(frozen=True, slots=True)
class StorePaths:
    """Paths of the stores of an installation. A store need not exist."""

    data: Path
    lake: Path
    tail: Path
    state: Path

    @classmethod
    def of(cls, settings: Settings) -> StorePaths:
        """Return the paths that the settings name.

        Raises:
            BadRequest: A store is in PostgreSQL or in an object store.
        """
        for name, url in (("tail", settings.tail_url), ("state", settings.state_url)):
            if not url.startswith(SQLITE):
                raise BadRequest(name, "is in PostgreSQL, which is not backed up here", remedy=ONLY_FILES)
        if "://" in settings.lake_uri:
            raise BadRequest("lake", "is in an object store, which is not backed up here", remedy=ONLY_FILES)
        tail, state = (Path(url.removeprefix(SQLITE)) for url in (settings.tail_url, settings.state_url))
        return cls(settings.data_dir, Path(settings.lake_uri), tail, state)

    def database(self, name: str) -> Path:
        """Return the path of one of DATABASES."""
        return self.tail if name == "tail" else self.state


@dataclass(slots=True)
class _OpenSnapshot:
    """Open transactions on the databases, and the versions of the lake's tables, of one moment."""

    databases: dict[str, apsw.Connection] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Writer:
    """Copies files into a backup and collects their digests."""

    folder: Path
    link: bool
    on_progress: Progress
    total: int = 0
    done: int = 0
    files: list[BackupFile] = field(default_factory=list)

    def copy(self, lake: Path, sources: Iterable[Path]) -> None:
        """Link or copy files of the lake. Raises FileNotFoundError if one is gone."""
        sources = list(sources)
        self.total += sum(source.stat().st_size for source in sources)
        for source in sources:
            self._add(source, f"lake/{source.relative_to(lake)}")

    def _add(self, source: Path, path: str) -> None:
        """Link or copy a file to `path` in the backup. Raises FileNotFoundError if it is gone."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        digest = link_file(source, target) if self.link else copy_file(source, target)
        self.note(path, digest)

    def note(self, path: str, digest: str) -> None:
        """Record a file that is in the backup."""
        size = (self.folder / path).stat().st_size
        self.files.append(BackupFile(path, size, digest))
        self.done += size
        self.on_progress(self.done, max(self.total, self.done))


def back_up(
    places: StorePaths,
    folder: Path,
    documents: dict[str, str],
    *,
    release: str,
    now: Callable[[], str],
    on_progress: Progress,
    link: bool = False,
) -> Manifest:
    """Write a backup into a folder, and return its manifest. After an error no file of it is left.

    Args:
        documents: Texts to store, by their path in the backup.
        release: This release, for the manifest.
        now: The clock, as UTC text.
        link: Hard-link the files of the lake where the file system can, instead of copying them.

    Raises:
        BadRequest: The folder is not empty, it is inside the lake, or there is nothing to back up.
        Locked: Others hold the tail for too long.
        StoreError: A store cannot be read, or the backup cannot be written.
    """
    _check_target(places, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _write_files(places, _Writer(folder, link, on_progress), documents, release, now)
    except BaseException as error:  # also if it is interrupted: a part of a backup would look like one
        _delete_written(folder, documents)
        if isinstance(error, FileNotFoundError):
            remedy = "run it again; if it happens again, raise `lake.keep_replaced_h`"
            message = f"{error.filename} was deleted while it was copied"
            raise StoreError("lake", message, remedy=remedy) from error
        if isinstance(error, OSError):
            raise write_error("backup", folder, error) from error
        raise


def _delete_written(folder: Path, documents: Iterable[str]) -> None:
    """Delete the files of an unfinished backup, as far as possible; files of others stay."""
    databases = [f"{name}.db{suffix}" for name in DATABASES for suffix in ("", "-journal", "-wal", "-shm")]
    written = {*(path.partition("/")[0] for path in documents), "lake", MANIFEST, f"{MANIFEST}.new", *databases}
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name in written:
            with suppress(OSError):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _check_target(places: StorePaths, folder: Path) -> None:
    """Raise BadRequest if the folder has entries or is inside the lake, or if no tail or state exists."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadRequest("folder", f"{folder} is not an empty folder", remedy="name a new one for each backup")
    if folder.resolve().is_relative_to(places.lake.resolve()):
        raise BadRequest("folder", f"{folder} is inside the lake", remedy="name a folder on another disk")
    if not (places.tail.exists() or places.state.exists()):
        remedy = "check `data` in the settings; chainfolio status shows what is indexed"
        raise BadRequest("data", f"nothing is stored at {places.data}", remedy=remedy)


def _write_files(
    places: StorePaths, writer: _Writer, documents: dict[str, str], release: str, now: Callable[[], str]
) -> Manifest:
    """Write all files of a backup as of one moment, and its manifest last; return the manifest."""
    for path, text in documents.items():
        target = writer.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        sync(target)
        writer.note(path, hashlib.sha256(text.encode()).hexdigest())
    with _moment(places) as moment:
        made_at = now()
        # The logs come first: the next commit may delete old entries. The databases come next, because their journals
        # grow as long as the transactions are open. Data files that are replaced stay for hours.
        writer.copy(places.lake, _log_entries(places.lake, moment.versions))
        for name, connection in moment.databases.items():
            _copy_database(name, connection, writer)
            connection.execute("ROLLBACK")
    writer.copy(places.lake, _data_files(places.lake, writer.folder / "lake", moment.versions))
    manifest = Manifest(FORMAT, release, made_at, VERSION, moment.versions, writer.files)
    for root in {(writer.folder / file.path).parent for file in writer.files} | {writer.folder}:
        sync(root)
    _write_manifest(writer.folder, manifest)
    return manifest


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest as the last file: it is there completely or not at all, also after a crash."""
    unfinished = folder / f"{MANIFEST}.new"
    unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
    sync(unfinished)
    unfinished.rename(folder / MANIFEST)
    sync(folder)


@contextmanager
def _moment(places: StorePaths) -> Iterator[_OpenSnapshot]:
    """Open read transactions of one moment on the databases, and read the tables' versions at it.

    Databases that do not exist are left out. Raises Locked or StoreError as `_read_moment`.
    """
    moment = _OpenSnapshot()
    with ExitStack() as stack:
        for name in DATABASES:
            path = places.database(name)
            if path.exists():
                with translate_errors(name, path):
                    connection = connect(path, reader=True)
                stack.callback(connection.close)
                if name == "tail":
                    prepare(connection, path)  # raises for another format version
                moment.databases[name] = connection
        with _lock_tail(places.tail):
            _read_moment(places, moment)
        yield moment


@contextmanager
def _lock_tail(path: Path) -> Iterator[None]:
    """Hold the write lock of the tail for the duration of the block, if the tail exists."""
    if not path.exists():
        yield
        return
    with translate_errors("tail", path):
        connection = connect(path)
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield
        finally:
            connection.close()  # gives the lock back


def _read_moment(places: StorePaths, moment: _OpenSnapshot) -> None:
    """Begin a read transaction on each database of `moment`, and set its versions of the lake.

    The versions are equal before and after all begin, else every transaction begins again.

    Raises:
        Locked: The lake changed during each of MAX_READINGS attempts, or a database is in use.
        StoreError: A database cannot be read.
    """
    for _ in range(MAX_READINGS):
        before = _versions(places.lake)
        for name, connection in moment.databases.items():
            with translate_errors(name, places.database(name)):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                connection.execute("BEGIN")
                connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # the read begins here
        if _versions(places.lake) == before:
            moment.versions = before
            return
    raise Locked("lake", "the lake changes all the time", remedy="run the backup again")


def _versions(lake: Path) -> dict[str, int]:
    """Return the newest version of each table."""
    newest: dict[str, int] = {}
    for log in sorted(lake.glob(f"*/{LOG}")):
        versions = [int(entry.stem) for entry in log.glob("[0-9]*.json") if entry.stem.isdigit()]
        if versions:
            newest[log.parent.name] = max(versions)
    return newest


def _log_entries(lake: Path, versions: dict[str, int]) -> Iterator[Path]:
    """Yield the files of the logs that some versions need: their last checkpoint, and all later entries."""
    for name, version in versions.items():
        log = lake / name / LOG
        yield from (log / entry for entry in needed_entries((path.name for path in log.iterdir()), version))


def _data_files(lake: Path, copied: Path, versions: dict[str, int]) -> Iterator[Path]:
    """Yield the data files of some versions, by the copied logs: those of the lake go on.

    Raises:
        StoreError: A table cannot be read.
    """
    for name, version in versions.items():
        try:
            files = files_of(DeltaTable(str(copied / name), version=version))
        except DeltaError as error:
            raise StoreError("lake", f"table {name} cannot be read: {error}", remedy="chainfolio doctor") from error
        yield from (lake / name / file.path for file in files)


def _copy_database(name: str, source: apsw.Connection, writer: _Writer) -> None:
    """Copy a database as its open transaction shows it, to one file without a log beside it.

    Raises:
        StoreError: The copy is damaged.
    """
    path = writer.folder / f"{name}.db"
    with translate_errors(name, path):
        target = apsw.Connection(str(path))
        try:
            with target.backup("main", source, "main") as backup:
                while not backup.done:
                    backup.step(PAGES)
            target.execute("PRAGMA journal_mode = DELETE").fetchall()
            problems = target.execute("PRAGMA quick_check(1)").fetchall()
        finally:
            target.close()
    if problems != [("ok",)]:
        message = f"the {name} store is damaged: {problems[0][0]}"
        raise StoreError(name, message, remedy="stop everything, then restore an earlier backup")
    sync(path)
    writer.note(path.name, sha256_of(path))


def link_file(source: Path, target: Path) -> str:
    """Hard-link a file, or copy it if the file system cannot. Return its SHA-256."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        return copy_file(source, target)
    return sha256_of(target)


def copy_file(source: Path, target: Path) -> str:
    """Copy a file to a path that must not exist, force it to the disk, and return its SHA-256 in hex.

    Raises:
        FileExistsError: The target exists.
    """
    digest = hashlib.sha256()
    with source.open("rb") as from_file, target.open("xb") as to_file:
        while chunk := from_file.read(CHUNK_BYTES):
            digest.update(chunk)
            to_file.write(chunk)
        to_file.flush()
        os.fsync(to_file.fileno())
    return digest.hexdigest()


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
