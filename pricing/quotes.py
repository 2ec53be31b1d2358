"""What a price source gives back: prices, and for what it looked at and would not price, the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.calls import Read
from chainfolio.contracts import Price
from chainfolio.plans import Plan


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one source gave no price for an asset that it has facts about; `reason` is in a user's words."""

    asset: Asset
    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class Quotes:
    """At most one price an asset. An asset the source knows nothing of is in neither list."""

    prices: tuple[Price, ...] = ()
    refused: tuple[Refusal, ...] = ()


class PriceSource(Protocol):
    """One source of prices, asked for some assets at one block."""

    @property
    def name(self) -> str:
        """The word that answers show as the price's source."""

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Read, Any, Quotes]:
        """A plan that returns what is known of these assets, observed at or before `block`."""
