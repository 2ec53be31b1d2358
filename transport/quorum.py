"""Several answers to the same questions, put to the vote question by question. Pure: no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
Key = Callable[[T], Hashable | None]


@dataclass(slots=True)
class Tally(Generic[T]):
    """What came of it. `items`: one answer a question; where `open` names a question, it may not be used.

    `against`: (voter, question, winner) for each voter who said other than the majority.
    `disputed`: the open questions to which different answers were given; to the other open ones too few said anything.
    """

    items: list[T]
    open: list[int] = field(default_factory=list)
    disputed: list[int] = field(default_factory=list)
    against: list[tuple[int, int, int]] = field(default_factory=list)


def count(answers: Sequence[Sequence[T]], key: Key[T], needed: int) -> Tally[T]:
    """Each question goes to the answer that at least `needed` voters gave and no other as often. A voter whose `key`
    is None abstains: where nobody says anything the abstention is the answer."""
    tally: Tally[T] = Tally([])
    for question, given in enumerate(zip(*answers, strict=True)):
        keys = [key(item) for item in given]
        ranked = Counter(each for each in keys if each is not None).most_common(2)
        if not ranked:
            tally.items.append(given[0])
            continue
        winner, votes = ranked[0]
        chosen = keys.index(winner)
        if votes >= needed and (len(ranked) == 1 or ranked[1][1] < votes):
            tally.items.append(given[chosen])
            wrong = [k for k, each in enumerate(keys) if each is not None and each != winner]
            tally.against += [(voter, question, chosen) for voter in wrong]
            continue
        abstained = [item for item, each in zip(given, keys, strict=True) if each is None]
        tally.items.append(abstained[0] if abstained else given[chosen])
        tally.open.append(question)
        if len(ranked) > 1:
            tally.disputed.append(question)
    return tally
