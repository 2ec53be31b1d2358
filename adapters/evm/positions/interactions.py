"""What an account had to do with, by contract, as rules and decoders know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from chainfolio.assets import Asset
from chainfolio.interactions import EventRow, Interactions

COLLECTIBLE: Final = "erc721"  # the namespace of collections in which each number has one owner


class NamedEvent(NamedTuple):
    """An event that names an account: which topic does, from 1; the topics but the first; the data."""

    place: int
    topics: tuple[str, ...]
    data: bytes

    @classmethod
    def of(cls, row: EventRow) -> NamedEvent:
        """The event of a row of `account_events`."""
        topics = (row["topic1"], row["topic2"], row["topic3"])
        return cls(row["place"], tuple(topic for topic in topics if topic is not None), row["data"])


@dataclass(frozen=True, slots=True)
class ContractInteractions:
    """What an account met, by contract: fungible tokens; tokens of ERC-721 collections that came to it, by collection;
    with whom it exchanged which tokens (None: native coins), and which it sent to whom, more than nothing. The rest is
    as in `Interactions`."""

    tokens: frozenset[str] = frozenset()
    ids: Mapping[str, frozenset[int]] = field(default_factory=dict)
    exchanged: Mapping[str, frozenset[str | None]] = field(default_factory=dict)
    sent: Mapping[str, frozenset[str | None]] = field(default_factory=dict)
    events: Mapping[str, tuple[NamedEvent, ...]] = field(default_factory=dict)
    covered: frozenset[str] = frozenset()

    @classmethod
    def of(cls, interactions: Interactions) -> ContractInteractions:
        """The same by contract."""
        return cls(
            frozenset(token.reference for token in interactions.tokens),
            {each.reference: ids for each, ids in interactions.ids.items() if each.kind == COLLECTIBLE},
            {other: frozenset(map(_contract, assets)) for other, assets in interactions.exchanged.items()},
            {other: frozenset(map(_contract, assets)) for other, assets in interactions.sent.items()},
            {event: tuple(map(NamedEvent.of, rows)) for event, rows in interactions.events.items()},
            interactions.covered,
        )


def _contract(asset: Asset) -> str | None:
    """The contract of an asset; None for the native coin."""
    return None if asset.is_native else asset.reference
