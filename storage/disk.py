"""File operations of all stores: fsync, permissions, and locks between processes."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from chainfolio.errors import Locked, StorageFull, StoreError, TooManyFiles


def sync(path: Path) -> None:
    """Force a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_private(path: Path) -> None:
    """Remove the permissions of group and others from a file. A file of another owner is left unchanged."""
    mode = path.stat().st_mode
    if mode & 0o077:
        with suppress(PermissionError):
            path.chmod(mode & 0o700)


def write_error(store: str, path: Path, error: OSError) -> StoreError:
    """Return the StoreError for a file that cannot be written.

    TooManyFiles and StorageFull where they apply.
    """
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return TooManyFiles(store)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(store)
    remedy = "check its folder and its owner"
    return StoreError(store, f"{path} cannot be opened for writing: {(error.strerror or '').lower()}", remedy=remedy)


@contextmanager
def lock_file(path: Path, *, store: str, subject: str, wait: bool = False) -> Iterator[None]:
    """Lock a file, created if missing, for the duration of the block.

    The system releases the lock if the process dies.

    Args:
        store: The name of the store, for errors.
        subject: The locked thing, for errors.
        wait: Wait for the lock instead of raising Locked.

    Raises:
        Locked: Another process has the lock; the message names it.
        StoreError: The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise write_error(store, path, error) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            number = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
            message, holder = f"{subject} is held by process {number}", f"process {number}"
            raise Locked(store, message, remedy="wait for it to end, or stop it", holder=holder) from None
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            raise write_error(store, path, error) from error
        yield
    finally:
        # The file stays: removing it could remove the lock of another process.
        os.close(handle)
