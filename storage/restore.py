"""Put a backup back: every file is compared with the manifest before anything appears in its place."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from chainfolio.errors import BadRequest, StoreError
from chainfolio.storage.backup import (
    DATABASES,
    FORMAT,
    MANIFEST,
    BackupFile,
    Manifest,
    Progress,
    StorePaths,
    copy_file,
    sha256_of,
)
from chainfolio.storage.disk import sync, write_error
from chainfolio.storage.tail_schema import VERSION

SECRET: Final = "pepper"  # may be in the data folder already: it is kept apart from backups
UNFINISHED: Final = ".restoring"
_ANOTHER: Final = "restore another backup"


class _Format(msgspec.Struct, frozen=True):
    """The part of a manifest that every version has."""

    format: int


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a backup.

    Raises:
        BadRequest: The folder has no manifest, so it is no whole backup.
        StoreError: The manifest cannot be read, is of another version, or names paths outside of the backup.
    """
    path = folder / MANIFEST
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        message = f"{folder} has no {MANIFEST}: it is no whole backup"
        raise BadRequest("folder", message, remedy="name a folder that `chainfolio backup` wrote") from None
    try:
        version = msgspec.json.decode(content, type=_Format).format
        if version != FORMAT:
            message = f"{path} has format version {version}, this release reads version {FORMAT}"
            raise StoreError("backup", message, remedy="restore it with the release that made it")
        manifest = msgspec.json.decode(content, type=Manifest)
    except msgspec.MsgspecError as error:
        raise StoreError("backup", f"{path} is damaged: {error}", remedy=_ANOTHER) from error
    if manifest.tail != VERSION:
        message = f"the tail has format version {manifest.tail}, this release reads version {VERSION}"
        raise StoreError("backup", message, remedy=f"restore it with release {manifest.release}")
    _check_paths(folder, manifest)
    return manifest


def _check_paths(folder: Path, manifest: Manifest) -> None:
    """Raise StoreError if a path leaves the folder, is no path of a backup, or occurs twice."""
    seen: set[str] = set()
    for file in manifest.files:
        parts = PurePosixPath(file.path).parts
        is_known = file.path in {f"{name}.db" for name in DATABASES} or parts[:1] in (("lake",), ("settings",))
        is_plain = file.path == "/".join(parts) and ".." not in parts and "\0" not in file.path
        if not (is_known and is_plain) or file.path in seen:
            message = f"{MANIFEST} names {file.path!r}, which is no file of a backup"
            raise StoreError("backup", message, remedy=_ANOTHER)
        seen.add(file.path)
        if not (folder / file.path).resolve().is_relative_to(folder.resolve()):
            raise StoreError("backup", f"{file.path} is outside of {folder}", remedy=_ANOTHER)


@contextmanager
def restored(folder: Path, manifest: Manifest, places: StorePaths, on_progress: Progress) -> Iterator[StorePaths]:
    """Copy a backup to drafts of its stores, and rename them after the block.

    If a digest differs or the block raises, nothing is left behind. Files of settings are compared and not copied.

    Yields:
        The places of the copies, to check that the stores belong together.

    Raises:
        BadRequest: A store exists, or the data folder has other files.
        StoreError: A file is missing or altered, or cannot be written.
    """
    _check_is_free(places)
    staged = StorePaths(places.data, *(path.with_name(path.name + UNFINISHED) for path in _paths(places)))
    try:
        for path in _paths(staged):
            _delete(path)  # of a restore that was killed
        _copy(folder, manifest, staged, on_progress)
        yield staged
        for source, target in zip(_paths(staged), _paths(places), strict=True):
            if source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                source.rename(target)  # onto nothing, or onto an empty folder
                sync(target.parent)
    except OSError as error:
        raise write_error("backup", places.data, error) from error
    finally:
        for path in _paths(staged):
            _delete(path)


def _paths(places: StorePaths) -> tuple[Path, Path, Path]:
    return places.lake, places.tail, places.state


def _check_is_free(places: StorePaths) -> None:
    """Raise BadRequest if a store exists, or if the data folder has files of another origin.

    The secret and parts of an unfinished restore may be in the folder.
    """
    used = [path for path in (places.tail, places.state) if path.exists()]
    if places.lake.exists() and (not places.lake.is_dir() or any(places.lake.iterdir())):
        used.append(places.lake)
    if places.data.is_dir():
        ours = {SECRET, *(path.name for path in _paths(places) if path.parent == places.data)}
        names = (path.name for path in sorted(places.data.iterdir()))
        used += [places.data / name for name in names if name.removesuffix(UNFINISHED) not in ours]
    if used:
        remedy = "stop everything and move it away, or name another `data` in the settings"
        raise BadRequest("data", f"{used[0]} exists, and a backup is restored into an empty folder", remedy=remedy)


def _copy(folder: Path, manifest: Manifest, staged: StorePaths, on_progress: Progress) -> None:
    """Copy all files of the stores to `staged`, and compare the digest of each.

    Raises:
        StoreError: A file is missing or altered.
    """
    total, done = sum(file.bytes for file in manifest.files), 0
    for file in manifest.files:
        target = _target(file, staged)
        digest = _digest(folder / file.path, target)
        if digest != file.sha256:
            raise StoreError("backup", f"{file.path} was altered: its SHA-256 differs", remedy=_ANOTHER)
        done += file.bytes
        on_progress(done, total)


def _target(file: BackupFile, staged: StorePaths) -> Path | None:
    """Return where a file is copied; None for settings."""
    for name in DATABASES:
        if file.path == f"{name}.db":
            return staged.database(name)
    root, _, path = file.path.partition("/")
    return staged.lake / path if root == "lake" else None


def _digest(source: Path, target: Path | None) -> str:
    """Copy a file, or only read it, and return its SHA-256. Raises StoreError if it is missing."""
    if not source.is_file():
        raise StoreError("backup", f"{source} is missing", remedy=_ANOTHER)
    if target is None:
        return sha256_of(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    return copy_file(source, target)


def _delete(path: Path) -> None:
    """Delete a file with its logs, or a folder, if it exists."""
    if path.is_dir():
        shutil.rmtree(path)
    for each in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))):
        each.unlink(missing_ok=True)
