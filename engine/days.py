"""The last block before an instant, on any chain, in a handful of requests: what a past day is read at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Final

from chainfolio.blocks import Block
from chainfolio.errors import NodeBehind
from chainfolio.plans import Plan

if TYPE_CHECKING:
    from adapters.evm.chain import EvmChain

EVEN: Final = 8  # probes a round that cut the span evenly, so that it shrinks whatever the times are like
NEAR: Final = (0, 1, 8, 64, 512, 4096)  # distances from where the instant would be if time were even
KEPT_DAYS: Final = 10_000


def midnight_us(day: date) -> int:
    """00:00:00 UTC of a day, in microseconds since 1970."""
    return (day - date(1970, 1, 1)).days * 86_400_000_000


@dataclass(slots=True)
class History:
    """Which block a day of a chain is read at; what is final is remembered."""

    _kept: dict[tuple[str, date], Block | None] = field(default_factory=dict)

    async def before(self, chain: EvmChain, day: date) -> Block | None:
        """The last block before the day begins (UTC); None where the chain began later. NodeBehind while the chain is
        not there yet: its newest block need not be the last one of that day."""
        if (chain.key, day) in self._kept:
            return self._kept[chain.key, day]
        heads = await chain.heads()
        if heads.latest.time_us < midnight_us(day):
            raise NodeBehind(chain.key, f"its newest block, {heads.latest.height}, is from before {day}")
        plan = last_before(heads.latest, midnight_us(day))
        try:
            heights = next(plan)
            while True:
                heights = plan.send(await chain.blocks(heights))
        except StopIteration as stop:
            found: Block | None = stop.value
        if found is None or found.height < heads.finalized:  # so the block after it, which says it is the last, is too
            if len(self._kept) >= KEPT_DAYS:
                self._kept.clear()
            self._kept[chain.key, day] = found
        return found


def last_before(head: Block, instant_us: int) -> Plan[int, Block, Block | None]:
    """The highest block older than an instant, below a head that is not; None where even the first one is not."""
    assert instant_us <= head.time_us, "the head is at or after the instant"
    if head.height == 0:
        return None
    low, first = yield [0, 1]
    # Some chains date their genesis 1970; such a chain began with its first real block.
    if (low.time_us or first.time_us) >= instant_us:
        return None
    low, high = (first if first.time_us < instant_us else low), head
    while high.height - low.height > 1:
        probes = _probes(low, high, instant_us)
        for block in (yield probes):
            if block.time_us < instant_us:
                low = max(low, block, key=_height)
            else:
                high = min(high, block, key=_height)
    return low


def _height(block: Block) -> int:
    return block.height


def _probes(low: Block, high: Block, instant_us: int) -> Sequence[int]:
    """Heights strictly between two blocks: some that cut the span evenly, more around the likely place."""
    span, time_us = high.height - low.height, max(1, high.time_us - low.time_us)
    likely = low.height + span * (instant_us - low.time_us) // time_us
    near = [likely + way * step for step in NEAR for way in (1, -1)]
    even = [low.height + span * part // (EVEN + 1) for part in range(1, EVEN + 1)]
    return sorted({height for height in (*near, *even) if low.height < height < high.height} or {low.height + 1})
