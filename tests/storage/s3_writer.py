"""A process that commits to a lake in an object store: run as `s3_writer.py URI NUMBER COMMITS`.

It writes each batch of its own stream twice, and each batch of the stream `shared`, which the others write too. It
prints how many of the shared batches it stored.
"""

from __future__ import annotations

import sys

from chainfolio.blocks import Span
from chainfolio.storage.lake import Lake
from chainfolio.tables import BLOCKS
from tests.storage.appender import rows


def main(uri: str, number: int, commits: int) -> None:
    """Write, and print a number."""
    lake, stored = Lake(uri), 0
    for batch in range(commits):
        own = rows(Span(height := 1000 * number + batch, height))
        assert lake.append(BLOCKS, own, stream=f"process {number}", batch=batch)
        assert not lake.append(BLOCKS, own, stream=f"process {number}", batch=batch)
        stored += lake.append(BLOCKS, rows(Span(batch, batch)), stream="shared", batch=batch)
    print(stored)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
