"""Majority vote over the answers of several endpoints, question by question. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
Key = Callable[[T], Hashable | None]


@dataclass(slots=True)
class Tally(Generic[T]):
    """Result of a vote.

    Attributes:
        items: One answer per question. The answer to an open question must not be used.
        open: Questions without a majority.
        disputed: Open questions with different answers; to the other open questions too few voters answered.
        against: (voter, question, winner) for each voter that contradicts a majority; all are indexes.
    """

    items: list[T]
    open: list[int] = field(default_factory=list)
    disputed: list[int] = field(default_factory=list)
    against: list[tuple[int, int, int]] = field(default_factory=list)


def count_votes(answers: Sequence[Sequence[T]], key: Key[T], quorum: int) -> Tally[T]:
    """Count votes: the winner has at least `quorum` votes, and more than any other answer.

    Args:
        answers: By voter, one answer per question.
        key: Equal answers have equal keys; None is an abstention. If all abstain, the first abstention is the answer.
        quorum: Minimum number of votes.
    """
    tally: Tally[T] = Tally([])
    for question, votes_cast in enumerate(zip(*answers, strict=True)):
        keys = [key(item) for item in votes_cast]
        ranked = Counter(each for each in keys if each is not None).most_common(2)
        if not ranked:
            tally.items.append(votes_cast[0])
            continue
        winner, votes = ranked[0]
        chosen = keys.index(winner)
        if votes >= quorum and (len(ranked) == 1 or ranked[1][1] < votes):
            tally.items.append(votes_cast[chosen])
            wrong = [k for k, each in enumerate(keys) if each is not None and each != winner]
            tally.against += [(voter, question, chosen) for voter in wrong]
            continue
        abstained = [item for item, each in zip(votes_cast, keys, strict=True) if each is None]
        tally.items.append(abstained[0] if abstained else votes_cast[chosen])
        tally.open.append(question)
        if len(ranked) > 1:
            tally.disputed.append(question)
    return tally
