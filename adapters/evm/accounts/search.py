"""Search many intervals at once for the heights at which a value of an account changed.

An interval with equal values at both ends is skipped. The others are cut into as many parts as fit into one batch, for
all accounts together, so the number of rounds grows with the logarithm of the chain's length. The search is complete
if values never return to an earlier one: nonces only rise, and so does the balance of an account
without code between two transactions that it sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

from chainfolio.blocks import Span

T = TypeVar("T")
Probe = tuple[str, int]  # an account and a height
ReadValues = Callable[[Sequence[Probe]], Awaitable[Sequence[T]]]
LikelyHeights = Callable[[str, T, T], Sequence[int]]  # by an account and its values at both ends of a span


def no_likely_heights(account: str, before: object, after: object) -> Sequence[int]:
    """Return no heights, for searches without hints."""
    return ()


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """The value of an account before and after a block that changed it."""

    account: str
    height: int
    before: T
    after: T


@dataclass(frozen=True, slots=True, order=True)
class _Interval:
    low: int
    high: int
    account: str

    def cuts(self, count: int) -> list[int]:
        """Return up to `count` evenly spaced heights between both ends."""
        size = self.high - self.low
        return sorted({self.low + size * k // (count + 1) for k in range(1, count + 1)} - {self.low, self.high})


class _Values(Generic[T]):
    """Values by account and height; each probe is read once."""

    def __init__(self, read: ReadValues[T]) -> None:
        self._read = read
        self._values: dict[Probe, T] = {}

    def __getitem__(self, probe: Probe) -> T:
        return self._values[probe]

    async def load(self, probes: Sequence[Probe]) -> None:
        """Read the probes that were not read before."""
        new = [each for each in probes if each not in self._values]
        if new:
            self._values.update(zip(new, await self._read(new), strict=True))

    def changed(self, account: str, heights: Sequence[int]) -> list[_Interval]:
        """Return the intervals between consecutive heights whose values differ."""
        return [_Interval(a, b, account) for a, b in pairwise(heights) if self[account, a] != self[account, b]]

    def changes(self, intervals: Sequence[_Interval]) -> list[Change[T]]:
        """Return the changes in intervals of one block, in the order of the chain."""
        changes = [
            Change(each.account, each.high, self[each.account, each.low], self[each.account, each.high])
            for each in intervals
        ]
        return sorted(changes, key=lambda change: (change.height, change.account))


async def find_changes(
    read: ReadValues[T],
    accounts: Sequence[str],
    span: Span,
    *,
    batch_size: Callable[[], int],
    max_changes: Callable[[], int],
    likely_heights: LikelyHeights[T] = no_likely_heights,
) -> tuple[Span, list[Change[T]]]:
    """Find the blocks of a span that changed each account, compared with the state before the span.

    Changes between two equal values that were read are not noticed.

    Args:
        read: Returns the values of probes, in order.
        accounts: The accounts to search.
        span: The blocks to search; before block 1 lies the genesis block.
        batch_size: How many probes one round should have, asked anew each round.
        max_changes: How many changes to search for, asked anew each round; the result may have a few more.
        likely_heights: Heights at which an account probably changed; they are read first.

    Returns:
        The searched span, which ends earlier if there are more changes than `max_changes`, and its changes in order.
    """
    values = _Values(read)
    low, last = max(0, span.first - 1), span.last
    await values.load([(account, height) for height in dict.fromkeys((low, last)) for account in accounts])
    points = {account: _points(values, account, low, last, likely_heights) for account in accounts}
    await values.load([(account, height) for account, heights in points.items() for height in heights])
    changed = sorted(each for account, heights in points.items() for each in values.changed(account, heights))
    while True:
        if excess := [each.low for each in changed[max_changes() :] if each.low > low]:  # left to the next window
            last = excess[0]
            await values.load([(each.account, last) for each in changed if each.low < last < each.high])
            ends = {each: [each.low, min(each.high, last)] for each in changed if each.low < last}
            changed = _changed_intervals(values, ends)
        wide = [each for each in changed if each.high - each.low > 1]
        if not wide:
            break
        count = max(1, batch_size() // len(wide))
        cuts = {each: each.cuts(count) for each in wide}
        await values.load([(each.account, height) for each, heights in cuts.items() for height in heights])
        narrow = [each for each in changed if each not in cuts]
        parts = {each: [each.low, *heights, each.high] for each, heights in cuts.items()}
        changed = sorted([*narrow, *_changed_intervals(values, parts)])
    return Span(span.first, max(span.first, last)), values.changes(changed)


def _points(values: _Values[T], account: str, low: int, last: int, likely_heights: LikelyHeights[T]) -> list[int]:
    """Return both ends of a search, and the heights next to likely changes between them."""
    likely = likely_heights(account, values[account, low], values[account, last])
    neighbours = {at for height in likely for at in (height - 1, height) if low < at < last}
    return [low, *sorted(neighbours), last]


def _changed_intervals(values: _Values[T], heights: Mapping[_Interval, Sequence[int]]) -> list[_Interval]:
    return [part for each, points in heights.items() for part in values.changed(each.account, points)]
