"""Blocks of any chain: hashes, times, and searches over heights that may have no block."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

from chainfolio.blocks import Block, Span
from chainfolio.chains import Chain
from chainfolio.errors import HistoryUnavailable, NoBlock

LOOK_BACK = 16  # heights that are looked at for a block at first; each next piece has twice as many
MAX_SKIPPED = 4096  # heights without a block that one search believes in: half an hour of Solana
ReadBlocks = Callable[[Sequence[int]], Awaitable[Sequence[Block]]]


async def hash_at(chain: Chain, height: int) -> str:
    """Return the hash of the block at a height; an empty text if the height has none."""
    try:
        return (await chain.block(height)).hash
    except NoBlock:
        return ""


async def times_at(chain: Chain, heights: Collection[int]) -> dict[int, int]:
    """Return the time (microseconds) of the newest block at or below each height; 0 if there is none."""
    times = {block.height: block.time_us for block in await chain.blocks(sorted(heights))}
    for height in sorted(set(heights) - times.keys()):
        below = await newest_block_in(chain, Span(0, height))
        times[height] = below.time_us if below else 0
    return times


async def newest_block_in(chain: Chain, span: Span) -> Block | None:
    """Return the highest block of a span; None if no height of it has one, or the span is empty.

    Ever more heights are read at once, from the end on.

    Raises:
        HistoryUnavailable: More than MAX_SKIPPED heights have none.
    """
    blocks = limit_skipped(chain.key, chain.blocks)
    last, size = span.last, 1
    while last >= span.first:
        first = max(span.first, last - size + 1)
        if present := await blocks(range(first, last + 1)):
            return present[-1]
        last, size = first - 1, min(MAX_SKIPPED // 4, max(LOOK_BACK, 2 * size))
    return None


def limit_skipped(source: str, blocks: ReadBlocks, max_skipped: int = MAX_SKIPPED) -> ReadBlocks:
    """Return `blocks` for one search, limited to `max_skipped` heights without a block.

    Nodes without old storage report old heights as skipped. A search that believes them never ends.

    Raises:
        HistoryUnavailable: by the returned function, if more heights have no block.
    """
    skipped = 0

    async def read(heights: Sequence[int]) -> Sequence[Block]:
        """Read blocks; HistoryUnavailable if too many are missing by now."""
        nonlocal skipped
        present = await blocks(heights)
        skipped += len(heights) - len(present)
        if skipped > max_skipped:
            reason = (
                f"{skipped:,} heights from {heights[0]} on are said to have no block; nodes that lost blocks say so too"
            )
            raise HistoryUnavailable(source, heights[0], reason)
        return present

    return read
