"""Stores in a process that may open no more files: they name the limit, and lose nothing."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chainfolio.errors import TooManyFiles
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.tables import TRANSFERS
from tests.storage.conftest import Maker


@contextmanager
def no_more_files() -> Iterator[None]:
    """This process may open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_stores_that_can_open_no_file_name_the_limit_and_not_their_folder(tmp_path: Path, make_rows: Maker) -> None:
    rows = make_rows(TRANSFERS, "a", range(3))
    lake = Lake(str(tmp_path / "lake"))
    lake.append(TRANSFERS, rows, stream="a/transfers", batch=1)
    Tail(tmp_path / "tail.db").close()
    with no_more_files():
        with pytest.raises(TooManyFiles, match="may not open more files"):
            Tail(tmp_path / "tail.db")
        for reader in (lake, Lake(lake.uri)):
            with pytest.raises(TooManyFiles, match="may not open more files"):
                reader.scan(TRANSFERS).collect()
        with pytest.raises(TooManyFiles, match="may not open more files"):
            lake.append(TRANSFERS, rows, stream="a/transfers", batch=2)
    assert lake.scan(TRANSFERS).collect().height == rows.num_rows
