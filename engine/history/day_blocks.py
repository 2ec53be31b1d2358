"""Which block a past day of a chain is read at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Final

from chainfolio.block_search import block_before, blocks_before, first_served
from chainfolio.blocks import Block
from chainfolio.chains import Chain

KEPT_DAYS: Final = 10_000
SEARCHED: Final = 400  # days that are looked for together


def midnight_us(day: date) -> int:
    """00:00:00 UTC of a day, in microseconds since 1970."""
    return (day - date(1970, 1, 1)).days * 86_400_000_000


def day_of(at_us: int) -> date:
    """The day of a moment, in UTC."""
    return date(1970, 1, 1) + timedelta(microseconds=at_us)


def midnight(day: date) -> datetime:
    """00:00:00 UTC of a day."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def days_from(first: date, last: date, interval: str = "day") -> list[date]:
    """The days from one to another, both included, a day, a week or a month apart. A month has its last day where it
    has not so many."""
    if interval == "month":
        months = (last.year - first.year) * 12 + last.month - first.month
        days = [_months_after(first, count) for count in range(months + 1)]
        return [day for day in days if day <= last]
    step = {"day": 1, "week": 7}[interval]
    return [first + timedelta(days=count) for count in range(0, (last - first).days + 1, step)]


def _months_after(first: date, count: int) -> date:
    year, month = divmod(first.year * 12 + first.month - 1 + count, 12)
    last = (date(year + (month == 11), (month + 1) % 12 + 1, 1) - timedelta(days=1)).day if year < 9999 else 31
    return date(year, month + 1, min(first.day, last))


@dataclass(slots=True)
class Days:
    """Which block a day of a chain is read at; what is final is remembered."""

    _kept: dict[tuple[str, date], Block | None] = field(default_factory=dict)

    async def before(self, chain: Chain, day: date) -> Block | None:
        """The last block before the day begins (UTC); None where the chain began later. NodeBehind while the chain is
        not there yet: its newest block need not be the last one of that day."""
        if (chain.key, day) in self._kept:
            return self._kept[chain.key, day]
        found = await block_before(chain, midnight_us(day))
        self._keep(chain, day, found)
        return found

    async def final_before(self, chain: Chain, days: Iterable[date]) -> dict[date, Block | None]:
        """The same of several days, looked for together; those are absent whose block is not final yet."""
        wanted = sorted(set(days))
        unknown = iter([day for day in wanted if (chain.key, day) not in self._kept])
        found: dict[date, Block | None] = {}
        while some := list(islice(unknown, SEARCHED)):
            head = (await chain.heads()).latest
            there = [day for day in some if midnight_us(day) <= head.time_us]
            blocks = await blocks_before(
                head, map(midnight_us, there), chain.blocks, await first_served(chain), chain.key
            )
            found |= {day: blocks[midnight_us(day)] for day in there if _is_final(chain, blocks[midnight_us(day)])}
        for day, block in found.items():
            self._keep(chain, day, block)
        return {
            day: found[day] if day in found else self._kept[chain.key, day]
            for day in wanted
            if day in found or (chain.key, day) in self._kept
        }

    def _keep(self, chain: Chain, day: date, block: Block | None) -> None:
        if _is_final(chain, block):
            if len(self._kept) >= KEPT_DAYS:
                self._kept.clear()
            self._kept[chain.key, day] = block


def _is_final(chain: Chain, block: Block | None) -> bool:
    """Whether a block stays the last one before its day: what comes after it is final, too."""
    return block is None or chain.is_final(block.height + 1)
