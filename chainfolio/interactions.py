"""What an account had to do with, as far as its chain's index tells."""

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
    """What an account met in its transfers: fungible tokens; the numbers of collectibles that came to it, by
    collection, and of those that left it; with whom it exchanged which assets, and which it sent to whom, more than
    nothing.

    `events` that name it, by filter of the dataset of this name, as rows of `account_events`; `covered` are the filters
    that are indexed whole, so that an event which is not there was not written. `own` are the tokens that the account
    came by in an act of its own: readers look at them before all others.
    """

    tokens: frozenset[Asset] = frozenset()
    ids: Mapping[Asset, frozenset[int]] = field(default_factory=dict)
    exchanged: Mapping[str, frozenset[Asset]] = field(default_factory=dict)
    sent: Mapping[str, frozenset[Asset]] = field(default_factory=dict)
    events: Mapping[str, tuple[EventRow, ...]] = field(default_factory=dict)
    covered: frozenset[str] = frozenset()
    own: frozenset[Asset] = frozenset()
    left_ids: Mapping[Asset, frozenset[int]] = field(default_factory=dict)

    def __or__(self, other: Interactions) -> Interactions:
        """What is in either."""
        return Interactions(
            self.tokens | other.tokens,
            _both(self.ids, other.ids),
            _both(self.exchanged, other.exchanged),
            _both(self.sent, other.sent),
            {each: (*self.events.get(each, ()), *other.events.get(each, ())) for each in {*self.events, *other.events}},
            self.covered | other.covered,
            self.own | other.own,
            _both(self.left_ids, other.left_ids),
        )


def _both(one: Mapping[Key, frozenset[Item]], other: Mapping[Key, frozenset[Item]]) -> dict[Key, frozenset[Item]]:
    nothing: frozenset[Item] = frozenset()
    return {each: one.get(each, nothing) | other.get(each, nothing) for each in {*one, *other}}


def contract_of(filter_: str) -> str:
    """The contract that a filter of the dataset `events` names: `contract/event`."""
    return filter_.partition("/")[0]
