"""The last block before a moment, in a handful of rounds, on any chain whose blocks are in the order of their times.

Heights may have gaps: a height without a block is one that was looked at, and nothing else is known of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from chainfolio.blocks import Block
from chainfolio.plans import Plan

EVEN: Final = 8  # probes a round that cut the span evenly, so that it shrinks whatever the times are like
NEAR: Final = (0, 1, 8, 64, 512, 4096)  # distances from where the moment would be if time were even


async def block_before(
    head: Block, moment_us: int, blocks: Callable[[Sequence[int]], Awaitable[Sequence[Block]]]
) -> Block | None:
    """The last block before a moment, below a head that is not; None where the chain began later."""
    plan = last_before(head, moment_us)
    try:
        heights = next(plan)
        while True:
            heights = plan.send(await blocks(heights))
    except StopIteration as stop:
        found: Block | None = stop.value
    return found


def last_before(head: Block, moment_us: int) -> Plan[int, Block, Block | None]:
    """As a plan: a round yields heights, and is sent the blocks that there are at them."""
    assert moment_us <= head.time_us, "the head is at or after the moment"
    low, high = None, head
    empty: set[int] = set()
    heights: Sequence[int] = [height for height in (0, 1) if height < head.height]
    few = EVEN
    while heights:
        found = yield heights
        empty |= set(heights) - {block.height for block in found}
        before = (*([low] if low else []), *(block for block in found if block.time_us < moment_us))
        low = max(before, key=_height, default=None)
        high = min((high, *(block for block in found if block.time_us >= moment_us)), key=_height)
        few = EVEN if found else 2 * few  # a long run without blocks is looked through in ever larger pieces
        heights = _probes(low, high, moment_us, empty, few)
    # Some chains date their genesis 1970; such a chain began with its first real block.
    return low if low is not None and low.time_us else None


def _height(block: Block) -> int:
    return block.height


def _probes(low: Block | None, high: Block, moment_us: int, empty: set[int], few: int) -> Sequence[int]:
    """Heights strictly between two blocks that were not looked at: some that cut the span evenly, more around the
    likely place, and the next ones where those are empty."""
    first, last = (low.height if low else -1) + 1, high.height - 1
    span, likely = high.height - first + 1, (first + last) // 2
    if low is not None:
        likely = low.height + span * (moment_us - low.time_us) // max(1, high.time_us - low.time_us)
    near = [likely + way * step for step in NEAR for way in (1, -1)]
    even = [first - 1 + span * part // (few + 1) for part in range(1, few + 1)]
    wanted = {height for height in (*near, *even) if first <= height <= last} - empty
    if not wanted:
        left = (height for height in range(first, last + 1) if height not in empty)
        wanted = {height for height, _ in zip(left, range(few), strict=False)}
    return sorted(wanted)
