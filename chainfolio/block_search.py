"""Search for the last block before a time, in few rounds, on chains whose blocks are ordered by time.

Heights may have no block. Several times are searched together and share the blocks that were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from chainfolio.blocks import Block
from chainfolio.capabilities import Capability, find_capability
from chainfolio.chain_blocks import MAX_SKIPPED, ReadBlocks, limit_skipped
from chainfolio.chains import Chain
from chainfolio.errors import HistoryUnavailable, NodeBehind
from chainfolio.plans import Rounds

EVEN: Final = 8  # evenly spaced probes per round, so that the span shrinks for any distribution of times
NEAR: Final = (0, 1, 8, 64, 512, 4096)  # distances from the height that even block times predict
EVEN_OF_MANY: Final = 1  # the same for each of several times
NEAR_OF_MANY: Final = (0, 1, 32)
SKIPPED_OF_EACH: Final = 16  # heights without a block, for each of several times
FORGOTTEN: Final = "no node has blocks that are so old any more"


async def first_served(chain: Chain) -> int:
    """Return the lowest height whose block can be read; 0 for chains whose nodes drop no blocks."""
    pruning_chain = find_capability(chain, Capability.OLDEST_BLOCK)
    return await pruning_chain.first_served() if pruning_chain is not None else 0


async def block_before(chain: Chain, moment_us: int) -> Block | None:
    """Return the last block of a chain before a time; None if the chain began later.

    Raises:
        NodeBehind: the newest block is older than the time, so another one may follow.
        HistoryUnavailable: no node has blocks that old, or too many heights have no block.
    """
    head = (await chain.heads()).latest
    if head.time_us < moment_us:
        raise NodeBehind(chain.key, f"its newest block, {head.height}, is from before the moment asked for")
    first = await first_served(chain)
    plan, blocks = last_before(head, moment_us, first=first), limit_skipped(chain.key, chain.blocks)
    try:
        heights = next(plan)
        while True:
            heights = plan.send(await blocks(heights))
    except StopIteration as stop:
        block: Block | None = stop.value
    if block is None and first:
        raise HistoryUnavailable(chain.key, first, FORGOTTEN)
    return block


async def blocks_before(
    head: Block,
    moments_us: Iterable[int],
    blocks: ReadBlocks,
    first: int = 0,
    source: str = "nodes",
) -> dict[int, Block | None]:
    """Return the last block before each time, below a head that is at or after all of them.

    None if the chain began later, or no node has an earlier block.

    Args:
        head: The newest block.
        moments_us: The times.
        blocks: Reads blocks by height.
        first: The lowest height that can be read.
        source: The name of the source in errors.

    Raises:
        HistoryUnavailable: too many heights are reported to have no block.
    """
    results: dict[int, Block | None] = {}
    plans = {each: last_before(head, each, EVEN_OF_MANY, NEAR_OF_MANY, first) for each in set(moments_us)}
    blocks_by_height: dict[int, Block] = {}
    blocks = limit_skipped(source, blocks, MAX_SKIPPED + SKIPPED_OF_EACH * len(plans))
    requests: dict[int, Sequence[int]] = {}
    _advance(plans, None, requests, results)
    while requests:
        heights = sorted({height for each in requests.values() for height in each} - blocks_by_height.keys())
        blocks_by_height |= {block.height: block for block in (await blocks(heights) if heights else [])}
        requests = {}
        _advance(plans, sorted(blocks_by_height.values(), key=_height), requests, results)
    return results


def _advance(
    plans: dict[int, Rounds[int, Block, Block | None]],
    blocks: Sequence[Block] | None,
    requests: dict[int, Sequence[int]],
    results: dict[int, Block | None],
) -> None:
    """Send blocks to every plan; store its next heights, or its result."""
    for moment_us, plan in list(plans.items()):
        try:
            requests[moment_us] = next(plan) if blocks is None else plan.send(blocks)
        except StopIteration as stop:
            results[moment_us] = stop.value
            del plans[moment_us]


def last_before(
    head: Block, moment_us: int, even: int = EVEN, distances: Sequence[int] = NEAR, first: int = 0
) -> Rounds[int, Block, Block | None]:
    """Find the last block before a time, as a plan that yields heights and is sent the blocks at them.

    More blocks than requested may be sent; absent ones mean heights without a block. The result is None if no block
    from `first` on is earlier, or only one of time 0.

    Args:
        head: A block at or after the time; this is asserted.
        moment_us: The time.
        even: How many heights of a round divide the span.
        distances: How far from the likely height others lie.
        first: The lowest height that can be read.
    """
    assert moment_us <= head.time_us, "the head is at or after the moment"
    low, high = None, head
    empty: set[int] = set()
    heights: Sequence[int] = [height for height in (first, first + 1) if height < head.height]
    probe_count = even
    while heights:
        blocks = yield heights
        present = {block.height for block in blocks} & set(heights)
        empty |= set(heights) - present
        before = (*([low] if low else []), *(block for block in blocks if block.time_us < moment_us))
        low = max(before, key=_height, default=None)
        high = min((high, *(block for block in blocks if block.time_us >= moment_us)), key=_height)
        probe_count = even if present else 2 * probe_count  # more and more, to get through a long run without blocks
        heights = _probes(low or first, high, moment_us, empty, probe_count, distances)
    # Some chains date their genesis 1970; such a chain began with its first real block.
    return low if low is not None and low.time_us else None


def _height(block: Block) -> int:
    return block.height


def _probes(
    low: Block | int, high: Block, moment_us: int, empty: set[int], probe_count: int, distances: Sequence[int]
) -> Sequence[int]:
    """Return unread heights between two blocks, or from a height on.

    They divide the span evenly and surround the likely height; the next unread heights if there are none of these.
    """
    first, last = low if isinstance(low, int) else low.height + 1, high.height - 1
    span, likely = high.height - first + 1, (first + last) // 2
    if isinstance(low, Block):
        likely = low.height + span * (moment_us - low.time_us) // max(1, high.time_us - low.time_us)
    around = [likely + sign * step for step in distances for sign in (1, -1)]
    evenly = [first - 1 + span * part // (probe_count + 1) for part in range(1, probe_count + 1)]
    probes = {height for height in (*around, *evenly) if first <= height <= last} - empty
    if not probes:
        unread = (height for height in range(first, last + 1) if height not in empty)
        probes = {height for height, _ in zip(unread, range(probe_count), strict=False)}
    return sorted(probes)
