"""A lock whose file cannot be opened or written is a typed error with a fix."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from chainfolio.errors import StorageFull, StoreError, TooManyFiles
from chainfolio.storage.disk import lock_file

LACKS = [
    (errno.EROFS, StoreError, "cannot be opened for writing: read-only file system"),
    (errno.EACCES, StoreError, "cannot be opened for writing: permission denied"),
    (errno.ENOSPC, StorageFull, "no space left"),
    (errno.EDQUOT, StorageFull, "no space left"),
    (errno.EMFILE, TooManyFiles, "may not open more files"),
]


@pytest.mark.parametrize("step", ["open", "pwrite"])
@pytest.mark.parametrize(("number", "kind", "reason"), LACKS, ids=lambda given: str(given))
def test_a_lock_that_cannot_be_taken_says_what_the_machine_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int, kind: type[StoreError], reason: str
) -> None:
    def lacking(*_: Any) -> int:
        raise OSError(number, os.strerror(number))

    path, before = tmp_path / "locks" / "a.lock", len(os.listdir("/proc/self/fd")) if os.path.exists("/proc") else 0
    with monkeypatch.context() as patch:
        patch.setattr(os, step, lacking)
        with pytest.raises(kind, match=reason) as caught, lock_file(path, store="tail", subject="chain a"):
            raise AssertionError("nobody holds it")
    assert type(caught.value) is kind
    assert caught.value.remedy
    with lock_file(path, store="tail", subject="chain a"):
        pass
    assert not before or len(os.listdir("/proc/self/fd")) == before, "no descriptor is left open"
