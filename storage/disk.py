"""What is done to files directly: forcing them to the disk, and holding them against other processes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from chainfolio.errors import Busy


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


@contextmanager
def held(path: Path, *, store: str, what: str, wait: bool = False) -> Iterator[None]:
    """Hold a file's lock; Busy names the process that has it. The system lets go of it however the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
            raise Busy(store, f"{what} is held by process {holder}", remedy="wait for it to end, or stop it") from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        # The file stays: who removes it could remove one that another process has just locked.
        os.close(handle)
