"""The contracts and accounts that an account dealt with, according to the chain's index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from chainfolio.assets import Asset

Key = TypeVar("Key")
Item = TypeVar("Item")
EventRow = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Interactions:
    """The transfers and events of an account, from which its protocols are derived.

    `tokens`: fungible tokens in its transfers. `received_ids`, `sent_ids`: numbers of collectibles, by collection.
    `exchanged_with`: assets by counterparty. `sent_to`: assets above zero that it sent, by recipient. `events` that
    name it, by filter of the dataset `events`, as rows of `account_events`; `covered` are the filters that are indexed
    completely, so that a missing event did not happen. `self_acquired`: tokens that it obtained in its own
    transactions; readers read these first.
    """

    tokens: frozenset[Asset] = frozenset()
    received_ids: Mapping[Asset, frozenset[int]] = field(default_factory=dict)
    exchanged_with: Mapping[str, frozenset[Asset]] = field(default_factory=dict)
    sent_to: Mapping[str, frozenset[Asset]] = field(default_factory=dict)
    events: Mapping[str, tuple[EventRow, ...]] = field(default_factory=dict)
    covered: frozenset[str] = frozenset()
    self_acquired: frozenset[Asset] = frozenset()
    sent_ids: Mapping[Asset, frozenset[int]] = field(default_factory=dict)

    def __or__(self, other: Interactions) -> Interactions:
        """Return the union of both."""
        return Interactions(
            self.tokens | other.tokens,
            _both(self.received_ids, other.received_ids),
            _both(self.exchanged_with, other.exchanged_with),
            _both(self.sent_to, other.sent_to),
            {each: (*self.events.get(each, ()), *other.events.get(each, ())) for each in {*self.events, *other.events}},
            self.covered | other.covered,
            self.self_acquired | other.self_acquired,
            _both(self.sent_ids, other.sent_ids),
        )


def _both(first: Mapping[Key, frozenset[Item]], second: Mapping[Key, frozenset[Item]]) -> dict[Key, frozenset[Item]]:
    empty: frozenset[Item] = frozenset()
    return {each: first.get(each, empty) | second.get(each, empty) for each in {*first, *second}}


def contract_of(filter_: str) -> str:
    """Return the contract in a filter of the dataset `events`: `contract/event`."""
    return filter_.partition("/")[0]
