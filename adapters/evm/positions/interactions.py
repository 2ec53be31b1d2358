"""The interactions of an account by contract, as rules and decoders use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from chainfolio.assets import Asset
from chainfolio.interactions import EventRow, Interactions

COLLECTIBLE: Final = "erc721"  # the namespace of collections in which each number has one owner


class NamedEvent(NamedTuple):
    """An event that names an account in topic number `place`, from 1; `topics` exclude the first."""

    place: int
    topics: tuple[str, ...]
    data: bytes

    @classmethod
    def of(cls, row: EventRow) -> NamedEvent:
        """Return the event of a row of `account_events`."""
        topics = (row["topic1"], row["topic2"], row["topic3"])
        return cls(row["place"], tuple(topic for topic in topics if topic is not None), row["data"])


@dataclass(frozen=True, slots=True)
class ContractInteractions:
    """The interactions of an account by contract; fields are as in `Interactions`.

    `tokens` are fungible; `ids` are received tokens of ERC-721 collections, by collection; `exchanged` and `sent` are
    tokens (None: native coins) by counterparty, more than zero of each sent one. `self_acquired` are contracts of
    unlisted tokens and collections that the account obtained in its own transactions.
    """

    tokens: frozenset[str] = frozenset()
    ids: Mapping[str, frozenset[int]] = field(default_factory=dict)
    exchanged: Mapping[str, frozenset[str | None]] = field(default_factory=dict)
    sent: Mapping[str, frozenset[str | None]] = field(default_factory=dict)
    events: Mapping[str, tuple[NamedEvent, ...]] = field(default_factory=dict)
    covered: frozenset[str] = frozenset()
    self_acquired: frozenset[str] = frozenset()

    @classmethod
    def of(cls, interactions: Interactions) -> ContractInteractions:
        """Return the interactions by contract instead of by asset; ids only of ERC-721 collections."""
        return cls(
            frozenset(token.reference for token in interactions.tokens),
            {asset.reference: ids for asset, ids in interactions.received_ids.items() if asset.kind == COLLECTIBLE},
            {party: frozenset(map(_contract, assets)) for party, assets in interactions.exchanged_with.items()},
            {party: frozenset(map(_contract, assets)) for party, assets in interactions.sent_to.items()},
            {event: tuple(map(NamedEvent.of, rows)) for event, rows in interactions.events.items()},
            interactions.covered,
            frozenset(asset.reference for asset in interactions.self_acquired),
        )


def _contract(asset: Asset) -> str | None:
    """Return the contract of an asset; None for the native coin."""
    return None if asset.is_native else asset.reference
