"""Blocks and spans of blocks: integer heights, both ends included; times in UTC microseconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from chainfolio.errors import Reorged

AHEAD_S = 900  # a block that is dated so far ahead of our clock is not believed to be of now


@dataclass(frozen=True, slots=True)
class Block:
    """The part of a block that all chains share: height, hashes and time."""

    height: int
    hash: str
    parent: str
    time_us: int

    @property
    def time(self) -> datetime:
        """The block's time in UTC."""
        return datetime.fromtimestamp(self.time_us // 1_000_000, UTC).replace(microsecond=self.time_us % 1_000_000)


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Heights from `first` to `last`, both included."""

    first: int
    last: int

    def __post_init__(self) -> None:
        assert 0 <= self.first <= self.last, f"not a span: {self.first}..{self.last}"

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __contains__(self, height: int) -> bool:
        return self.first <= height <= self.last

    def cut(self, size: int) -> Iterator[Span]:
        """Yield this span in pieces of at most `size` blocks, in order."""
        for first in range(self.first, self.last + 1, size):
            yield Span(first, min(first + size - 1, self.last))


class Spans:
    """A set of heights kept as disjoint, ordered, maximal spans."""

    __slots__ = ("_spans",)

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        """Sort the spans and merge those that overlap or touch."""
        merged: list[Span] = []
        for span in sorted(iter(spans)):  # not of `spans`: Python would make room for as many as `len` says
            if merged and span.first <= merged[-1].last + 1:
                merged[-1] = Span(merged[-1].first, max(merged[-1].last, span.last))
            else:
                merged.append(span)
        self._spans = tuple(merged)

    @classmethod
    def of(cls, heights: Iterable[int]) -> Spans:
        """Return the set of some heights, in any order."""
        return cls(Span(height, height) for height in heights)

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)

    def __len__(self) -> int:
        """The number of heights in the set."""
        return sum(len(span) for span in self._spans)

    def __bool__(self) -> bool:
        return bool(self._spans)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spans) and self._spans == other._spans

    def __hash__(self) -> int:
        return hash(self._spans)

    def __repr__(self) -> str:
        return f"Spans({', '.join(f'{s.first}..{s.last}' for s in self._spans)})"

    def __contains__(self, height: int) -> bool:
        return any(height in span for span in self._spans)

    def __or__(self, spans: Iterable[Span]) -> Spans:
        return Spans((*self._spans, *iter(spans)))

    def __and__(self, spans: Iterable[Span]) -> Spans:
        """Return the heights that both sets have; empty if there are none."""
        return Spans(
            Span(max(a.first, b.first), min(a.last, b.last))
            for b in spans
            for a in self._spans
            if max(a.first, b.first) <= min(a.last, b.last)
        )

    def __sub__(self, cuts: Iterable[Span]) -> Spans:
        spans = list(self._spans)
        for cut in cuts:
            spans = [piece for span in spans for piece in _without(span, cut)]
        return Spans(spans)

    def covers(self, span: Span) -> bool:
        """Return True if every height of `span` is in the set."""
        return any(have.first <= span.first and span.last <= have.last for have in self._spans)


def _without(span: Span, cut: Span) -> Iterator[Span]:
    """Yield the parts of a span outside another one: none, one or two."""
    if cut.last < span.first or span.last < cut.first:
        yield span
        return
    if span.first < cut.first:
        yield Span(span.first, cut.first - 1)
    if cut.last < span.last:
        yield Span(cut.last + 1, span.last)


def ahead_of_clock(time_us: int, now_us: int) -> str:
    """Return a sentence if the newest block is more than AHEAD_S in the future; else an empty text."""
    ahead_s = (time_us - now_us) // 1_000_000
    if ahead_s <= AHEAD_S:
        return ""
    return f"the newest block is dated {ahead_s:,} s ahead of this machine's clock: one of the two is wrong"


def check_links(chain: str, blocks: Sequence[Block], before: Block | None) -> None:
    """Check that each block follows the one before it, and the first one `before`.

    Raises:
        Reorged: A block does not.
    """
    last = before
    for each in blocks:
        if last is not None and each.parent != last.hash:
            raise Reorged(chain, last.height, last.hash)
        last = each
