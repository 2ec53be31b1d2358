"""A chain that left its final past: the last block both still share is found, and what lies above it is forgotten.

Nothing is forgotten on one node's word where another one still has our block, nor more than `reorg_depth` blocks
without the operator. What was forgotten is no longer covered, and is indexed again like all that is missing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from chainfolio.blocks import Block, Span
from chainfolio.errors import DeepReorg, Unavailable
from chainfolio.tables import BLOCKS
from indexer.collect import rewind

if TYPE_CHECKING:
    from adapters.evm.chain import EvmChain
    from storage.lake import Lake
    from storage.tail import Tail


async def recover_reorg(chain: EvmChain, lake: Lake, tail: Tail) -> int | None:
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
    first = await _first_gone(chain, lake, anchor, theirs)
    return await asyncio.to_thread(rewind, lake, tail, chain.key, first)


async def _theirs(chain: EvmChain, anchor: Block) -> str:
    """The hash that all endpoints have at the anchor's height; where more of them still have ours, the others lie."""
    told = await chain.node.hashes(anchor.height)
    votes = Counter(told.values())
    if votes[anchor.hash] * 2 > len(told):
        for endpoint, block_hash in told.items():
            if block_hash != anchor.hash:
                asked = f"the hash of block {anchor.height}, which was final"
                truth = f"{anchor.hash} by what was indexed, and by a majority"
                chain.node.quarantine(endpoint, asked, block_hash, truth)
        return anchor.hash
    if len(votes) != 1 or len(told) < chain.node.quorum:
        split = ", ".join(f"{endpoint.name} has {told[endpoint]}" for endpoint in told) or "nobody answers"
        raise Unavailable(chain.key, f"endpoints do not agree about final block {anchor.height}: {split}")
    return next(iter(votes))


async def _first_gone(chain: EvmChain, lake: Lake, anchor: Block, theirs: str) -> int:
    """The lowest stored block that is no longer on the chain, by bisection: below it all are, above it none is."""
    depth = chain.settings.reorg_depth
    span = Span(max(0, anchor.height - depth), anchor.height)
    rows = await asyncio.to_thread(lake.window, BLOCKS, chain.key, span)
    heights, hashes = rows["height"].to_pylist(), rows["hash"].to_pylist()
    low, high = -1, len(heights)  # all up to low are shared, all from high on are gone
    while high - low > 1:
        middle = (low + high) // 2
        if (await chain.block(heights[middle])).hash == hashes[middle]:
            low = middle
        else:
            high = middle
    if low >= 0 and high < len(heights) and heights[high] == heights[low] + 1:
        return int(heights[high])
    error = DeepReorg(chain.key, anchor.height, anchor.hash, theirs)
    deep = low < 0 and heights[:1] == [span.first]
    why = f"more than reorg_depth ({depth}) blocks are gone" if deep else "the hashes of all its blocks were not kept"
    error.remedy = f"it does not recover by itself, for {why}: {error.remedy}"
    raise error
