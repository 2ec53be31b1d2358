"""Recover from a reorganisation of final blocks: delete everything above the last common block.

Nothing is deleted because of one node if another still has our block, and at most `reorg_depth` blocks without the
operator. Deleted heights are not indexed any more, and are indexed again as usual.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from chainfolio.blocks import Block, Span
from chainfolio.capabilities import Capability, require_capability
from chainfolio.chain_blocks import hash_at
from chainfolio.errors import DeepReorg
from chainfolio.indexer.rewind import rewind
from chainfolio.supervisor import in_thread
from chainfolio.tables import BLOCKS

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail


async def recover_reorg(chain: Chain, lake: Lake, tail: Tail) -> int | None:
    """Delete blocks that are not on the chain any more. The caller holds the chain's lock.

    Returns:
        The lowest deleted height; None if our last final block is on the chain, or there is none.

    Raises:
        DeepReorg: More than `reorg_depth` blocks are gone, or block hashes are not stored: the operator must decide.
        Unavailable: Endpoints do not agree.
    """
    anchor = tail.anchor(chain.key)
    if anchor is None:
        return None
    theirs = await _theirs(chain, anchor)
    if theirs == anchor.hash:
        return None
    first = await _first_gone(chain, lake, tail, anchor, theirs)
    return await in_thread(partial(rewind, lake, tail, chain.key, first))


async def _theirs(chain: Chain, anchor: Block) -> str:
    """Return the chain's hash at the anchor's height; empty if it has no block.

    All endpoints must agree, if the chain can ask them one by one.
    """
    if Capability.CROSS_CHECK in chain.capabilities:
        return await require_capability(chain, Capability.CROSS_CHECK).agreed_hash(anchor)
    return await hash_at(chain, anchor.height)


async def _first_gone(chain: Chain, lake: Lake, tail: Tail, anchor: Block, theirs: str) -> int:
    """Return the lowest stored block that is not on the chain any more, by bisection.

    Raises DeepReorg if more than `reorg_depth` blocks are gone, or a needed hash is not stored.
    """
    depth = chain.settings.reorg_depth
    span = Span(max(0, anchor.height - depth), anchor.height)
    rows = await asyncio.to_thread(lake.window, BLOCKS, chain.key, span)
    heights, hashes, parents = (rows[name].to_pylist() for name in ("height", "hash", "parent"))
    low, high = -1, len(heights)  # blocks up to low are on the chain, blocks from high on are not
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
    reason = (
        f"more than reorg_depth ({depth}) blocks are gone" if deep else "the hashes of all its blocks were not kept"
    )
    error.remedy = f"it does not recover by itself, for {reason}: {error.remedy}"
    raise error
