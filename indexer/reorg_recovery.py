"""A chain that left its final past: the last block both still share is found, and what lies above it is forgotten.

Nothing is forgotten on one node's word where another one still has our block, nor more than `reorg_depth` blocks
without the operator. What was forgotten is no longer covered, and is indexed again like all that is missing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chainfolio.blocks import Block, Span
from chainfolio.chains import Capability, hash_at, having
from chainfolio.errors import DeepReorg
from chainfolio.tables import BLOCKS
from indexer.rewind import rewind

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from storage.lake import Lake
    from storage.tail import Tail


async def recover_reorg(chain: Chain, lake: Lake, tail: Tail) -> int | None:
    """Forget what is no longer on the chain, from which height on; None where our last final block is on it after all.

    The caller holds the chain's lock. DeepReorg where that is deeper than `reorg_depth`, or the hashes of blocks were
    not kept, so that the operator has to say from where; Unavailable while endpoints do not agree that it is gone.
    """
    anchor = tail.anchor(chain.key)
    if anchor is None:
        return None
    theirs = await _theirs(chain, anchor)
    if theirs == anchor.hash:
        return None
    first = await _first_gone(chain, lake, tail, anchor, theirs)
    return await asyncio.to_thread(rewind, lake, tail, chain.key, first)


async def _theirs(chain: Chain, anchor: Block) -> str:
    """The hash that the chain has at the anchor's height, by all endpoints where they can be asked one by one; empty
    where it has no block there any more."""
    if Capability.CROSS_CHECK in chain.capabilities:
        return await having(chain, Capability.CROSS_CHECK).agreed_hash(anchor)
    return await hash_at(chain, anchor.height)


async def _first_gone(chain: Chain, lake: Lake, tail: Tail, anchor: Block, theirs: str) -> int:
    """The lowest stored block that is no longer on the chain, by bisection: below it all are, above it none is."""
    depth = chain.settings.reorg_depth
    span = Span(max(0, anchor.height - depth), anchor.height)
    rows = await asyncio.to_thread(lake.window, BLOCKS, chain.key, span)
    heights, hashes, parents = (rows[name].to_pylist() for name in ("height", "hash", "parent"))
    low, high = -1, len(heights)  # all up to low are shared, all from high on are gone
    while high - low > 1:
        middle = (low + high) // 2
        if await hash_at(chain, heights[middle]) == hashes[middle]:
            low = middle
        else:
            high = middle
    if low >= 0 and high < len(heights) and parents[high] == hashes[low]:
        return int(heights[high])
    error = DeepReorg(chain.key, anchor.height, anchor.hash, theirs)
    deep = low < 0 and tail.indexed_ranges(chain.key, BLOCKS.name).covers(span)
    why = f"more than reorg_depth ({depth}) blocks are gone" if deep else "the hashes of all its blocks were not kept"
    error.remedy = f"it does not recover by itself, for {why}: {error.remedy}"
    raise error
