"""Versions of files, by which what was read of a file is kept until the file changes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Self


class FileVersion(NamedTuple):
    """A file as it is now."""

    path: Path
    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """Return the version of a file; OSError if there is none."""
        status = path.stat()
        return cls(path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
