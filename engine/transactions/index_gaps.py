"""Spans that are not indexed, and the times between which they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from chainfolio.blocks import Span
from chainfolio.chain_blocks import times_at
from chainfolio.chains import Chain
from chainfolio.errors import HistoryUnavailable, NotIndexed, UnsupportedMethod
from chainfolio.portfolio.activity import Activity

FAR_FUTURE_US: Final = 2**63


@dataclass(frozen=True, slots=True)
class IndexGap:
    """A span that is not indexed, and the times of its first and its last block."""

    chain: str
    dataset: str
    span: Span
    first_us: int
    last_us: int

    def error(self) -> NotIndexed:
        """Return the error for a page that needs this span."""
        return NotIndexed(self.chain, self.dataset, self.span.first, self.span.last)

    def is_clear(self, activity: Activity, newest_first: bool) -> bool:
        """Return True if no record of the gap could stand before an activity."""
        return activity.time_us > self.last_us if newest_first else activity.time_us < self.first_us


def bounds(span: Span, keys: Sequence[Activity]) -> tuple[int, int]:
    """Return the times (microseconds) between which a span lies, by the activities around it.

    Without an activity below, the first time is 0; without one above, the second is FAR_FUTURE_US.
    """
    below = [key.time_us for key in keys if key.height < span.first]
    above = [key.time_us for key in keys if key.height > span.last]
    return max(below, default=0) + bool(below), min(above, default=FAR_FUTURE_US) - bool(above)


async def end_times(chain: Chain, spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Read the times in microseconds of the first and the last block of each span.

    If no node has one of the blocks, every span gets (0, FAR_FUTURE_US). Raises SourceError if the chain fails
    otherwise.
    """
    try:
        times = await times_at(chain, {end for span in spans for end in (span.first, span.last)})
    except (HistoryUnavailable, UnsupportedMethod):
        return [(0, FAR_FUTURE_US) for _ in spans]
    return [(times[span.first], times[span.last]) for span in spans]
