"""What is done to files directly: forcing them to the disk, and holding them against other processes."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from chainfolio.errors import Busy, StorageFull, StoreError, TooManyFiles


def sync(path: Path) -> None:
    """Force a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def private(path: Path) -> None:
    """Take a file from everybody but its owner; one of another owner stays as that one has it."""
    mode = path.stat().st_mode
    if mode & 0o077:
        with suppress(PermissionError):
            path.chmod(mode & 0o700)


def refusal(store: str, path: Path, error: OSError) -> StoreError:
    """Why a file of a store cannot be written, with the cure."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return TooManyFiles(store)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(store)
    remedy = "check its folder and its owner"
    return StoreError(store, f"{path} cannot be opened for writing: {(error.strerror or '').lower()}", remedy=remedy)


@contextmanager
def held(path: Path, *, store: str, what: str, wait: bool = False) -> Iterator[None]:
    """Hold a file's lock; Busy names the process that has it. The system lets go of it however the process dies."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise refusal(store, path, error) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
            raise Busy(store, f"{what} is held by process {holder}", remedy="wait for it to end, or stop it") from None
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            raise refusal(store, path, error) from error
        yield
    finally:
        # The file stays: who removes it could remove one that another process has just locked.
        os.close(handle)
