"""Spans in windows: a few pieces of the width that an endpoint takes, all in one batch.

A window ends before the first piece that was refused, or whose answer may have been cut off by a limit that nobody told
of; the pieces after it are smaller. What a node's rule is, is remembered; a dense stretch is forgotten again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence, Sized
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer, SourceError, TooMuch
from transport.endpoint import Endpoint

PIECES = 10  # pieces of a window
MOST = 200_000  # results of a window
DENSE_CUT, GROW_AFTER = 8, 4
# An answer of so many results may have been cut off: where that is a round number, or as many as another one had.
SUSPECT = 1_000

T = TypeVar("T", bound=Sized)
Ask = Callable[[Sequence[Span]], Awaitable[Sequence[Sequence[T | SourceError]]]]


@dataclass(slots=True)
class _Dense:
    """How many blocks an endpoint takes at once where there is much in them, and how large its answers were."""

    size: int | None = None
    calm: int = 0
    counts: set[int] = field(default_factory=set)


class Windows(Generic[T]):
    """Reads windows of one kind of question. `cap` is the name under which a rule of an endpoint is remembered."""

    def __init__(self, cap: str, what: str) -> None:
        self.cap, self.what = cap, what
        self._dense: dict[str, _Dense] = {}

    async def read(self, endpoint: Endpoint, span: Span, ask: Ask[T]) -> tuple[Span, list[list[T]]]:
        """The answers about the next pieces of a span, as far as every question about a piece was answered."""
        dense = self._dense.setdefault(endpoint.name, _Dense())
        while True:
            size = self.size(endpoint, span)
            pieces = list(Span(span.first, min(span.last, span.first + PIECES * size - 1)).cut(size))
            found: list[list[T]] = []
            for piece, answers in zip(pieces, await ask(pieces), strict=True):
                refusal = _refusal(answers) or self._cut_off(endpoint, piece, _whole(answers), found)
                if isinstance(refusal, TooMuch):
                    self._shrink(endpoint, piece, refusal)
                    break
                if refusal is not None:
                    raise refusal
                found.append(_whole(answers))
            else:
                dense.calm += 1
                if dense.size is not None and dense.calm >= GROW_AFTER:
                    dense.size, dense.calm = dense.size * 2, 0
            if found:
                return Span(span.first, pieces[len(found) - 1].last), found

    def size(self, endpoint: Endpoint, span: Span) -> int:
        """How many blocks of a span go into one piece."""
        dense = self._dense.get(endpoint.name, _Dense()).size or len(span)
        return max(1, min(len(span), endpoint.capabilities.get(self.cap, len(span)), dense))

    def _cut_off(
        self, endpoint: Endpoint, piece: Span, answers: Sequence[T], found: Sequence[Sequence[T]]
    ) -> TooMuch | None:
        """A refusal in place of an answer that a silent limit may have cut off, or that is more than is kept at once;
        what one block gives is believed."""
        if len(piece) == 1:
            return None
        counts = self._dense[endpoint.name].counts
        for count in map(len, answers):
            if count >= SUSPECT:
                if count % SUSPECT == 0 or count & (count - 1) == 0 or count in counts:
                    reason = f"just {count:,} {self.what}: the answer may have been cut off"
                    return TooMuch(endpoint.name, reason, dense=True)
                counts.add(count)
        if sum(len(each) for several in (*found, answers) for each in several) > MOST:
            return TooMuch(endpoint.name, f"more than {MOST:,} {self.what} at once", dense=True)
        return None

    def _shrink(self, endpoint: Endpoint, piece: Span, refusal: TooMuch) -> None:
        """Ask for strictly less from now on."""
        endpoint.errors.note(refusal)
        if len(piece) == 1:
            raise BadAnswer(
                endpoint.name, f"refuses the {self.what} of the single block {piece.first}: {refusal.reason}",
                remedy="use an endpoint with higher limits, or watch fewer accounts",
            )  # fmt: skip
        size = -(-len(piece) // (DENSE_CUT if refusal.dense else 2))
        if refusal.max_span is not None:
            size = min(refusal.max_span, len(piece) - 1)
        if refusal.dense:
            self._dense[endpoint.name].size, self._dense[endpoint.name].calm = size, 0
        else:
            endpoint.learn(self.cap, size)


def _refusal(answers: Sequence[T | SourceError]) -> SourceError | None:
    """What keeps a piece from being whole: what is no question of size first."""
    refusals = [each for each in answers if isinstance(each, SourceError)]
    return next((each for each in refusals if not isinstance(each, TooMuch)), refusals[0] if refusals else None)


def _whole(answers: Sequence[T | SourceError]) -> list[T]:
    return [each for each in answers if not isinstance(each, SourceError)]
