"""Read a span in windows: up to ten pieces of the size that an endpoint accepts, all in one batch.

A window ends before the first piece that was refused, or whose answer an unannounced limit may have cut off; later
pieces are smaller. A limit on the number of blocks is remembered for good, a limit on results only for a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence, Sized
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer, ResponseTooLarge, SourceError
from chainfolio.transport.endpoint import Endpoint

MAX_PIECES = 10  # of a window
MAX_RESULTS = 200_000  # of a window
DENSE_DIVISOR, GROW_AFTER = 8, 4
# Answers of at least this size may have been cut off: if their size is a round number, or that of a recent answer.
# Limits recur soon; among more answers, equal sizes are chance.
MIN_SUSPECT_SIZE, RECENT_ANSWERS = 1_000, 64

T = TypeVar("T", bound=Sized)
ReadPieces = Callable[[Sequence[Span]], Awaitable[Sequence[Sequence[T | SourceError]]]]


@dataclass(slots=True)
class _Density:
    """Size of pieces that an endpoint accepts where there are many results, and its last large sizes.

    `size` is None while no answer was too large; `success_count` counts windows since the last one that was.
    `answer_sizes` has the numbers of results of its last large answers.
    """

    size: int | None = None
    success_count: int = 0
    answer_sizes: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT_ANSWERS))


class Windows(Generic[T]):
    """Reads windows of one kind of question.

    Args:
        capability: The name under which an endpoint's limit on blocks is remembered.
        noun: The results in messages: "logs".
    """

    def __init__(self, capability: str, noun: str) -> None:
        self.capability, self.noun = capability, noun
        self._densities: dict[str, _Density] = {}

    async def read(self, endpoint: Endpoint, span: Span, read_pieces: ReadPieces[T]) -> tuple[Span, list[list[T]]]:
        """Read the next window of a span.

        Args:
            endpoint: The endpoint that `read_pieces` asks.
            span: The blocks to read; the window starts with the first of them.
            read_pieces: Returns, for each piece, the answers to its questions.

        Returns:
            The window of at most MAX_PIECES pieces, which ends before the first refused one, and their answers.

        Raises:
            BadAnswer: The endpoint refuses even a single block.
            SourceError: A question failed for another reason than its size.
        """
        density = self._densities.setdefault(endpoint.name, _Density())
        while True:
            size = self.piece_size(endpoint, span)
            pieces = list(Span(span.first, min(span.last, span.first + MAX_PIECES * size - 1)).cut(size))
            results: list[list[T]] = []
            for piece, answers in zip(pieces, await read_pieces(pieces), strict=True):
                refusal = _refusal(answers) or self._truncation(endpoint, piece, _successes(answers), results)
                if isinstance(refusal, ResponseTooLarge):
                    self._shrink(endpoint, piece, refusal)
                    break
                if refusal is not None:
                    raise refusal
                results.append(_successes(answers))
            else:
                density.success_count += 1
                if density.size is not None and density.success_count >= GROW_AFTER:
                    density.size, density.success_count = density.size * 2, 0
            if results:
                return Span(span.first, pieces[len(results) - 1].last), results

    def piece_size(self, endpoint: Endpoint, span: Span) -> int:
        """Return how many blocks of a span go into one piece, at least 1."""
        dense_size = self._densities.get(endpoint.name, _Density()).size or len(span)
        return max(1, min(len(span), endpoint.capabilities.get(self.capability, len(span)), dense_size))

    def _truncation(
        self, endpoint: Endpoint, piece: Span, answers: Sequence[T], results: Sequence[Sequence[T]]
    ) -> ResponseTooLarge | None:
        """Return an error for an answer that may be cut off, or for a window with too many results; else None.

        An answer of at least MIN_SUSPECT_SIZE results is suspect if its size is round, or that of one of the last
        RECENT_ANSWERS. Sizes are remembered. A single block is never suspect.
        """
        if len(piece) == 1:
            return None
        sizes = self._densities[endpoint.name].answer_sizes
        for size in map(len, answers):
            if size >= MIN_SUSPECT_SIZE:
                is_repeated = size in sizes
                sizes.append(size)
                if size % MIN_SUSPECT_SIZE == 0 or size & (size - 1) == 0 or is_repeated:
                    reason = f"just {size:,} {self.noun}: the answer may have been cut off"
                    return ResponseTooLarge(endpoint.name, reason, dense=True)
        if sum(len(each) for result in (*results, answers) for each in result) > MAX_RESULTS:
            return ResponseTooLarge(endpoint.name, f"more than {MAX_RESULTS:,} {self.noun} at once", dense=True)
        return None

    def _shrink(self, endpoint: Endpoint, piece: Span, refusal: ResponseTooLarge) -> None:
        """Make the next pieces strictly smaller; raise BadAnswer if the piece was a single block.

        A refusal by the number of results counts for the next pieces alone. Any other one becomes the remembered limit.
        """
        endpoint.errors.note(refusal)
        if len(piece) == 1:
            raise BadAnswer(
                endpoint.name,
                f"refuses the {self.noun} of the single block {piece.first}: {refusal.reason}",
                remedy="use an endpoint with higher limits, or watch fewer accounts",
            )
        size = -(-len(piece) // (DENSE_DIVISOR if refusal.dense else 2))
        if refusal.max_span is not None:
            size = min(refusal.max_span, len(piece) - 1)
        if refusal.dense:
            density = self._densities[endpoint.name]
            density.size, density.success_count = size, 0
        else:
            endpoint.learn(self.capability, size)


def _refusal(answers: Sequence[T | SourceError]) -> SourceError | None:
    """Return an error, first one that is not about the size of an answer; None without errors."""
    errors = [each for each in answers if isinstance(each, SourceError)]
    return next((each for each in errors if not isinstance(each, ResponseTooLarge)), errors[0] if errors else None)


def _successes(answers: Sequence[T | SourceError]) -> list[T]:
    return [each for each in answers if not isinstance(each, SourceError)]
