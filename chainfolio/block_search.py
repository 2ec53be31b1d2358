"""The last block before a moment, in a handful of rounds, on any chain whose blocks are in the order of their times.

Heights may have gaps: a height without a block is one that was looked at, and nothing else is known of it. Several
moments are looked for together: what one of them learns, all of them know, so each needs a few probes only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from chainfolio.blocks import Block
from chainfolio.chains import MAX_SKIPPED, Chain, ForgetsBlocks, ReadBlocks, few_skipped
from chainfolio.errors import HistoryUnavailable, NodeBehind
from chainfolio.plans import Plan

EVEN: Final = 8  # probes a round that cut the span evenly, so that it shrinks whatever the times are like
NEAR: Final = (0, 1, 8, 64, 512, 4096)  # distances from where the moment would be if time were even
EVEN_OF_MANY: Final = 1  # the same of each moment, where several are looked for
NEAR_OF_MANY: Final = (0, 1, 32)
SKIPPED_OF_EACH: Final = 16  # heights without a block that may be met for each of many moments
FORGOTTEN: Final = "no node has blocks that are so old any more"


async def first_served(chain: Chain) -> int:
    """The lowest height whose block can be read."""
    return await chain.first_served() if isinstance(chain, ForgetsBlocks) else 0


async def block_before(chain: Chain, moment_us: int) -> Block | None:
    """The last block of a chain before a moment; None where the chain began later. NodeBehind where its newest block
    is from before the moment: another one may follow. HistoryUnavailable where no node has a block so old, and where
    nodes say of too many heights that they have none."""
    head = (await chain.heads()).latest
    if head.time_us < moment_us:
        raise NodeBehind(chain.key, f"its newest block, {head.height}, is from before the moment asked for")
    first = await first_served(chain)
    plan, blocks = last_before(head, moment_us, first=first), few_skipped(chain.key, chain.blocks)
    try:
        heights = next(plan)
        while True:
            heights = plan.send(await blocks(heights))
    except StopIteration as stop:
        found: Block | None = stop.value
    if found is None and first:
        raise HistoryUnavailable(chain.key, first, FORGOTTEN)
    return found


async def blocks_before(
    head: Block,
    moments_us: Iterable[int],
    blocks: ReadBlocks,
    first: int = 0,
    source: str = "nodes",
) -> dict[int, Block | None]:
    """The last block before each of several moments, below a head that is before none of them. None where the chain
    began later, or where nobody has a block from before: `first` is the lowest height that can be read.

    Raises:
        HistoryUnavailable: of `source`, if too many heights are said to have no block.
    """
    found: dict[int, Block | None] = {}
    plans = {moment: last_before(head, moment, EVEN_OF_MANY, NEAR_OF_MANY, first) for moment in set(moments_us)}
    seen: dict[int, Block] = {}
    blocks = few_skipped(source, blocks, MAX_SKIPPED + SKIPPED_OF_EACH * len(plans))
    wanted: dict[int, Sequence[int]] = {}
    _advance(plans, None, wanted, found)
    while wanted:
        heights = sorted({height for each in wanted.values() for height in each} - seen.keys())
        seen |= {block.height: block for block in (await blocks(heights) if heights else [])}
        wanted = {}
        _advance(plans, sorted(seen.values(), key=_height), wanted, found)
    return found


def _advance(
    plans: dict[int, Plan[int, Block, Block | None]],
    known: Sequence[Block] | None,
    wanted: dict[int, Sequence[int]],
    found: dict[int, Block | None],
) -> None:
    """Tell every plan what is known, and note what it asks next or has found."""
    for moment, plan in list(plans.items()):
        try:
            wanted[moment] = next(plan) if known is None else plan.send(known)
        except StopIteration as stop:
            found[moment] = stop.value
            del plans[moment]


def last_before(
    head: Block, moment_us: int, even: int = EVEN, near: Sequence[int] = NEAR, first: int = 0
) -> Plan[int, Block, Block | None]:
    """As a plan: a round yields heights, and is sent the blocks that there are at them, perhaps with others."""
    assert moment_us <= head.time_us, "the head is at or after the moment"
    low, high = None, head
    empty: set[int] = set()
    heights: Sequence[int] = [height for height in (first, first + 1) if height < head.height]
    few = even
    while heights:
        found = yield heights
        there = {block.height for block in found} & set(heights)
        empty |= set(heights) - there
        before = (*([low] if low else []), *(block for block in found if block.time_us < moment_us))
        low = max(before, key=_height, default=None)
        high = min((high, *(block for block in found if block.time_us >= moment_us)), key=_height)
        few = even if there else 2 * few  # a long run without blocks is looked through in ever larger pieces
        heights = _probes(low or first, high, moment_us, empty, few, near)
    # Some chains date their genesis 1970; such a chain began with its first real block.
    return low if low is not None and low.time_us else None


def _height(block: Block) -> int:
    return block.height


def _probes(
    low: Block | int, high: Block, moment_us: int, empty: set[int], few: int, near: Sequence[int]
) -> Sequence[int]:
    """Heights strictly between two blocks, or from a height on, that were not looked at: some that cut the span evenly,
    more around the likely place, and the next ones where those are empty."""
    first, last = low if isinstance(low, int) else low.height + 1, high.height - 1
    span, likely = high.height - first + 1, (first + last) // 2
    if isinstance(low, Block):
        likely = low.height + span * (moment_us - low.time_us) // max(1, high.time_us - low.time_us)
    around = [likely + way * step for step in near for way in (1, -1)]
    evenly = [first - 1 + span * part // (few + 1) for part in range(1, few + 1)]
    wanted = {height for height in (*around, *evenly) if first <= height <= last} - empty
    if not wanted:
        left = (height for height in range(first, last + 1) if height not in empty)
        wanted = {height for height, _ in zip(left, range(few), strict=False)}
    return sorted(wanted)
