"""Find logs that name accounts: the log filters that request them, and the blooms that allow them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chainfolio.adapters.evm.columns import Mask
from chainfolio.adapters.evm.datasets.dataset import topic_of
from chainfolio.adapters.evm.integrity import blooms, may_hold
from chainfolio.adapters.evm.logs import Logs
from chainfolio.adapters.evm.node import Header
from chainfolio.errors import BadAnswer

ACCOUNT_TOPICS = (1, 2, 3)  # positions of topics that can name an account; topic 0 is the event


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """Request for the logs that name any of some accounts in one topic.

    Attributes:
        accounts: Addresses in lower case.
        position: The topic that names an account, from 1 to 3.
        events: The events to ask for; empty for all events, which some nodes refuse.
    """

    accounts: tuple[str, ...]
    position: int
    events: tuple[str, ...] = ()

    def params(self) -> dict[str, list[list[str] | None]]:
        """Return the filter object of `eth_getLogs` without a block range."""
        event = list(self.events) if self.events else None
        accounts = [topic_of(each) for each in self.accounts]
        return {"topics": [event, *[None] * (self.position - 1), accounts]}

    def check(self, source: str, logs: Logs) -> Logs:
        """Return the logs if all match this filter: a node that ignores filters could hide other logs.

        Raises:
            BadAnswer: A log does not name one of the accounts.
        """
        if not names_account(logs, self.accounts, (self.position,)).all():
            raise BadAnswer(source, "logs that name other accounts than were asked for: the node ignores the filter")
        return logs


def topic_filters(accounts: Sequence[str], events: Sequence[str] = ()) -> list[TopicFilter]:
    """Return the filters that together find every log that names an account."""
    return [TopicFilter(tuple(accounts), position, tuple(events)) for position in ACCOUNT_TOPICS]


def names_account(logs: Logs, accounts: Sequence[str], positions: Sequence[int] = ACCOUNT_TOPICS) -> Mask:
    """Return a mask of the logs that name one of the accounts in one of the topics."""
    account_topics = np.array([topic_of(each).encode() for each in accounts], "S66")
    mask = np.zeros(len(logs), np.bool_)
    for position in positions:
        topic = np.ascontiguousarray(logs.topics[position])
        mask |= (logs.topic_count > position) & np.isin(topic.view("S66").ravel(), account_topics)
    return mask


def headers_with_bloom(headers: Sequence[Header], accounts: Sequence[str]) -> list[Header]:
    """Return the headers whose blooms allow a log that names one of the accounts."""
    if not headers:
        return []
    rows, mask = blooms(headers), np.zeros(len(headers), np.bool_)
    for account in accounts:
        mask |= may_hold(rows, topic_of(account))
    return [header for header, is_allowed in zip(headers, mask, strict=True) if is_allowed]
