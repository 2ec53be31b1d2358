"""The logs that name accounts: which questions find them, which blooms allow them, which answers are about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adapters.evm.columns import Mask
from adapters.evm.datasets.dataset import topic_of
from adapters.evm.integrity import blooms, may_hold
from adapters.evm.logs import Logs
from adapters.evm.node import Header
from chainfolio.errors import BadAnswer

PLACES = (1, 2, 3)  # the topics that can name an account: the first says which event it is


@dataclass(frozen=True, slots=True)
class Naming:
    """One question for logs: those that name any of some accounts in one topic. `events`: of these alone; none: of all,
    which some nodes refuse."""

    accounts: tuple[str, ...]
    place: int
    events: tuple[str, ...] = ()

    def filter(self) -> dict[str, Any]:
        """The filter object of `eth_getLogs`, without its span."""
        before: list[Any] = [list(self.events) if self.events else None, *[None] * (self.place - 1)]
        return {"topics": [*before, [topic_of(each) for each in self.accounts]]}

    def check(self, source: str, logs: Logs) -> Logs:
        """Logs that answer this question; BadAnswer where one does not: a node that ignores a filter hides others."""
        if not names(logs, self.accounts, (self.place,)).all():
            raise BadAnswer(source, "logs that name other accounts than were asked for: the node ignores the filter")
        return logs


def questions(accounts: Sequence[str], events: Sequence[str] = ()) -> list[Naming]:
    """What finds every log that names some accounts."""
    return [Naming(tuple(accounts), place, tuple(events)) for place in PLACES]


def names(logs: Logs, accounts: Sequence[str], places: Sequence[int] = PLACES) -> Mask:
    """Which logs name one of some accounts in one of some topics."""
    wanted = np.array([topic_of(each).encode() for each in accounts], "S66")
    mask = np.zeros(len(logs), np.bool_)
    for place in places:
        topic = np.ascontiguousarray(logs.topics[place])
        mask |= (logs.topic_count > place) & np.isin(topic.view("S66").ravel(), wanted)
    return mask


def promised(headers: Sequence[Header], accounts: Sequence[str]) -> list[Header]:
    """The blocks whose blooms allow a log that names one of some accounts."""
    if not headers:
        return []
    rows, mask = blooms(headers), np.zeros(len(headers), np.bool_)
    for account in accounts:
        mask |= may_hold(rows, topic_of(account))
    return [header for header, may in zip(headers, mask, strict=True) if may]
