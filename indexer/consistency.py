"""Check that the lake and the tail belong together.

One of them may have been deleted, or restored from an old backup. A batch's number is stored in the tail before a
commit has it, so the lake never has a batch that the tail does not know. Indexed ranges are stored in the tail only:
spans without rows leave nothing in the lake, so the lake cannot restore them, and an empty tail would fetch and store
all rows again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainfolio.errors import StoreError
from chainfolio.indexer.materialise import indexed_in_lake
from chainfolio.tables import BLOCKS, TABLES

if TYPE_CHECKING:
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

# Of a chain's streams those that every index has; the other worker processes never write without the first.
STREAMS = ("collect", "follow", "derive")


def newest_batch(lake: Lake, chain: str) -> int:
    """Return the highest batch number of a chain in the lake; -1 if there is none."""
    return max(lake.last(table, f"{chain}/{stream}") for table in TABLES.values() for stream in STREAMS)


def check(lake: Lake, tail: Tail, chain: str) -> None:
    """Check that lake and tail of a chain belong together. The caller holds the chain's lock.

    A lost lake is noticed if blocks are indexed, because each has a row; datasets of events may have none.

    Raises:
        StoreError: One of them was lost or replaced.
    """
    fallback = f"or index the chain again: chainfolio index {chain} --rewind 0"
    lake_batch, tail_batch = newest_batch(lake, chain), tail.newest_batch(chain)
    if lake_batch > tail_batch:
        raise StoreError(
            "tail",
            f"{chain}: the lake has batch {lake_batch}, {tail.address} knows of {tail_batch}: it is not the lake's",
            remedy=f"put back the tail that belongs to the lake, or copy it with `chainfolio move`, {fallback}",
        )
    if indexed_in_lake(tail, chain, "blocks") and not lake.count(BLOCKS, chain):
        raise StoreError(
            "lake",
            f"{chain}: {tail.address} says that blocks are indexed, {lake.uri} has none: it is not the tail's",
            remedy=f"put back the lake that belongs to the tail, {fallback}",
        )
