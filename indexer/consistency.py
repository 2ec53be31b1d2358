"""Whether the lake and the tail still belong together: either may have been deleted, or put back from an old backup.

The number of a batch is written to the tail before any commit carries it, so the lake never names one that the tail
does not know. What is covered stands in the tail alone: spans without rows leave nothing in the lake, so it cannot be
made again from there, and a tail that begins anew would fetch and keep every row twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainfolio.errors import StoreError
from chainfolio.tables import BLOCKS, TABLES
from indexer.materialise import indexed_in_lake

if TYPE_CHECKING:
    from storage.lake import Lake
    from storage.tail import Tail

# Of a chain's streams those that every index has; the other worker processes never write without the first.
STREAMS = ("collect", "follow", "derive")


def newest_batch(lake: Lake, chain: str) -> int:
    """The highest number of a chain's batches in the lake; -1 where there is none."""
    return max(lake.last(table, f"{chain}/{stream}") for table in TABLES.values() for stream in STREAMS)


def check(lake: Lake, tail: Tail, chain: str) -> None:
    """StoreError where one of the two was lost. The caller holds the chain's lock.

    A lost lake shows where blocks are indexed, for each of them has a row; of events alone there may be none.
    """
    again = f"or index the chain again: chainfolio index {chain} --rewind 0"
    found, known = newest_batch(lake, chain), tail.newest_batch(chain)
    if found > known:
        raise StoreError(
            "tail", f"{chain}: the lake has batch {found}, {tail.path} knows of {known}: it is not the lake's",
            remedy=f"put back the file that belongs to the lake, {again}",
        )  # fmt: skip
    if indexed_in_lake(tail, chain, "blocks") and not lake.count(lake.as_written(BLOCKS), chain):
        raise StoreError(
            "lake", f"{chain}: {tail.path} says that blocks are indexed, {lake.uri} has none: it is not the tail's",
            remedy=f"put back the lake that belongs to the tail, {again}",
        )  # fmt: skip
