"""At which heights something of an account changed: a search over many intervals at once.

An interval is quiet where both of its ends say the same. The others are cut into as many parts as fit into one batch,
all accounts together, so that rounds grow with the logarithm of the chain. It is a proof where what is read never comes
back to what it was: nonces only rise, and between two transactions of its own the balance of an account without code
only rises, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

from chainfolio.blocks import Span

T = TypeVar("T")
Probe = tuple[str, int]  # an account and a height
Read = Callable[[Sequence[Probe]], Awaitable[Sequence[T]]]
Near = Callable[[str, T, T], Sequence[int]]  # by an account, and what it is at both ends of a span


def nothing_near(account: str, before: object, after: object) -> Sequence[int]:
    """Return no heights: nothing is known of where an account changed."""
    return ()


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """What an account was before and after a block that changed it."""

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
        """So many heights between its ends, as even as they go."""
        size = self.high - self.low
        return sorted({self.low + size * k // (count + 1) for k in range(1, count + 1)} - {self.low, self.high})


async def changes(
    read: Read[T],
    accounts: Sequence[str],
    span: Span,
    *,
    at_once: Callable[[], int],
    most: Callable[[], int],
    near: Near[T] = nothing_near,
) -> tuple[Span, list[Change[T]]]:
    """The blocks of a span that changed each account, in order. The span ends earlier where they are more than `most`
    says; `at_once` says how much is read in one round where there is no need for more. `near` names heights at which an
    account probably changed: they are read first, and the search is for what lies between them.

    What lies before block 1 is what the genesis block gave.
    """
    known: dict[Probe, T] = {}

    async def learn(probes: Sequence[Probe]) -> None:
        new = [each for each in probes if each not in known]
        if new:
            known.update(zip(new, await read(new), strict=True))

    low, last = max(0, span.first - 1), span.last
    await learn([(account, height) for height in dict.fromkeys((low, last)) for account in accounts])
    points: dict[str, list[int]] = {}
    for account in accounts:
        likely = near(account, known[account, low], known[account, last])
        beside = {at for height in likely for at in (height - 1, height) if low < at < last}
        points[account] = [low, *sorted(beside), last]
    await learn([(account, height) for account, heights in points.items() for height in heights])
    changed = sorted(
        _Interval(a, b, account)
        for account, heights in points.items()
        for a, b in pairwise(heights)
        if known[account, a] != known[account, b]
    )
    while True:
        if over := [each.low for each in changed[most() :] if each.low > low]:  # the rest is for the next window
            last = over[0]
            cut = [each for each in changed if each.low < last < each.high]
            await learn([(each.account, last) for each in cut])
            kept = [each if each.high <= last else _Interval(each.low, last, each.account) for each in changed]
            changed = [e for e in kept if e.low < last and known[e.account, e.low] != known[e.account, e.high]]
        wide = [each for each in changed if each.high - each.low > 1]
        if not wide:
            break
        parts = max(1, at_once() // len(wide))
        cuts = {each: each.cuts(parts) for each in wide}
        await learn([(each.account, height) for each, heights in cuts.items() for height in heights])
        smaller = [each for each in changed if each not in cuts]
        for each, heights in cuts.items():
            ends = [each.low, *heights, each.high]
            pairs = pairwise(ends)
            smaller += [
                _Interval(a, b, each.account) for a, b in pairs if known[each.account, a] != known[each.account, b]
            ]
        changed = sorted(smaller)
    found = [Change(e.account, e.high, known[e.account, e.low], known[e.account, e.high]) for e in changed]
    return Span(span.first, max(span.first, last)), sorted(found, key=lambda each: (each.height, each.account))
