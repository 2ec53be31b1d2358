"""Which block a past day of a chain is read at."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Final

from chainfolio.blocks import Block
from chainfolio.chains import Chain

KEPT_DAYS: Final = 10_000


def midnight_us(day: date) -> int:
    """00:00:00 UTC of a day, in microseconds since 1970."""
    return (day - date(1970, 1, 1)).days * 86_400_000_000


@dataclass(slots=True)
class History:
    """Which block a day of a chain is read at; what is final is remembered."""

    _kept: dict[tuple[str, date], Block | None] = field(default_factory=dict)

    async def before(self, chain: Chain, day: date) -> Block | None:
        """The last block before the day begins (UTC); None where the chain began later. NodeBehind while the chain is
        not there yet: its newest block need not be the last one of that day."""
        if (chain.key, day) in self._kept:
            return self._kept[chain.key, day]
        found = await chain.block_at(midnight_us(day))
        if found is None or chain.is_final(found.height + 1):  # so what comes after it, and makes it the last, is too
            if len(self._kept) >= KEPT_DAYS:
                self._kept.clear()
            self._kept[chain.key, day] = found
        return found
