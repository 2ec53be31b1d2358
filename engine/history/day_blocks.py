"""The blocks at which past days of chains are read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Final

from chainfolio.block_search import block_before, blocks_before, first_served
from chainfolio.blocks import Block
from chainfolio.chains import Chain

MAX_DAYS: Final = 10_000
MAX_SEARCHED_DAYS: Final = 400  # in one search
_STEP_DAYS: Final = {"day": 1, "week": 7}


def midnight_us(day: date) -> int:
    """Return 00:00 UTC of a day, in microseconds since 1970."""
    return (day - date(1970, 1, 1)).days * 86_400_000_000


def day_of(at_us: int) -> date:
    """Return the UTC day of a time in microseconds."""
    return date(1970, 1, 1) + timedelta(microseconds=at_us)


def midnight(day: date) -> datetime:
    """Return 00:00 UTC of a day."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def days_from(first: date, last: date, interval: str = "day") -> list[date]:
    """Return the days from `first` to `last` inclusive, one day, week or month apart.

    A month without that day of the month has its last day instead.
    """
    count = day_count(first, last, interval)
    if interval == "month":
        return [_months_after(first, each) for each in range(count)]
    return [first + timedelta(days=each * _STEP_DAYS[interval]) for each in range(count)]


def day_count(first: date, last: date, interval: str = "day") -> int:
    """Return the number of days that `days_from` returns; 0 if `first` is after `last`."""
    if interval == "month":
        months = (last.year - first.year) * 12 + last.month - first.month
        return max(0, months if months >= 0 and _months_after(first, months) > last else months + 1)
    return max(0, (last - first).days // _STEP_DAYS[interval] + 1)


def _months_after(first: date, count: int) -> date:
    year, month = divmod(first.year * 12 + first.month - 1 + count, 12)
    last = (date(year + (month == 11), (month + 1) % 12 + 1, 1) - timedelta(days=1)).day if year < 9999 else 31
    return date(year, month + 1, min(first.day, last))


@dataclass(slots=True)
class DayBlocks:
    """Finds the block of each day; final ones are cached."""

    _cache: dict[tuple[str, date], Block | None] = field(default_factory=dict)

    async def before(self, chain: Chain, day: date) -> Block | None:
        """Return the last block before the day (UTC) begins; None if the chain began later.

        Final ones are cached.

        Raises:
            NodeBehind: The chain has not reached the day: its newest block may not be the last one before it.
            SourceError: The chain could not be read.
        """
        if (chain.key, day) in self._cache:
            return self._cache[chain.key, day]
        block = await block_before(chain, midnight_us(day))
        self._add_to_cache(chain, day, block)
        return block

    async def final_before(self, chain: Chain, days: Iterable[date]) -> dict[date, Block | None]:
        """Return and cache the last block before 00:00 UTC of each day.

        Days whose block is not final are absent. None for a day before the first block that the chain serves. Raises
        SourceError if the chain cannot be read.
        """
        sorted_days = sorted(set(days))
        # What is cached is copied first: a full cache is cleared while blocks are added.
        cached = {day: self._cache[chain.key, day] for day in sorted_days if (chain.key, day) in self._cache}
        unknown = iter([day for day in sorted_days if day not in cached])
        blocks_by_day: dict[date, Block | None] = {}
        while batch := list(islice(unknown, MAX_SEARCHED_DAYS)):
            head = (await chain.heads()).latest
            reached_days = [day for day in batch if midnight_us(day) <= head.time_us]
            blocks = await blocks_before(
                head, map(midnight_us, reached_days), chain.blocks, await first_served(chain), chain.key
            )
            blocks_by_day |= {
                day: blocks[midnight_us(day)] for day in reached_days if _is_final(chain, blocks[midnight_us(day)])
            }
        for day, block in blocks_by_day.items():
            self._add_to_cache(chain, day, block)
        return cached | blocks_by_day

    def _add_to_cache(self, chain: Chain, day: date, block: Block | None) -> None:
        if _is_final(chain, block):
            if len(self._cache) >= MAX_DAYS:
                self._cache.clear()
            self._cache[chain.key, day] = block


def _is_final(chain: Chain, block: Block | None) -> bool:
    """Return True if the block remains the last one before its day, because the next block is final."""
    return block is None or chain.is_final(block.height + 1)
