"""A process that commits to a lake in an object store: run as `s3_writer.py URI NUMBER COMMITS`.

It writes each batch of its stream twice, and each batch of the stream `shared`, which the others write too. It
prints how many of the shared batches it stored.
"""

from __future__ import annotations

import sys

import pyarrow as pa

from chainfolio.blocks import Span
from chainfolio.errors import StoreUnavailable
from chainfolio.storage.lake import Lake
from chainfolio.tables import BLOCKS
from tests.storage.appender import rows

ATTEMPTS = 20


def main(uri: str, number: int, commits: int) -> None:
    """Write, and print a number."""
    lake, stored = Lake(uri), 0
    for batch in range(commits):
        stream_rows = rows(Span(height := 1000 * number + batch, height))
        append(lake, stream_rows, f"process {number}", batch)
        assert not append(lake, stream_rows, f"process {number}", batch)
        stored += append(lake, rows(Span(batch, batch)), "shared", batch)
    print(stored)


def append(lake: Lake, content: pa.Table, stream: str, batch: int) -> bool:
    """Append, and again while the service is too busy to answer, as an indexer does."""
    for _ in range(ATTEMPTS):
        try:
            return lake.append(BLOCKS, content, stream=stream, batch=batch)
        except StoreUnavailable:
            continue
    raise AssertionError(f"no answer in {ATTEMPTS} attempts")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
