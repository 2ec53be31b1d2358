"""What a price source is, how one is registered, and what it gives back: prices, and reasons for none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from chainfolio.assets import Asset
from chainfolio.blocks import Block
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

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Any, Any, Quotes]:
        """A plan that returns what is known of these assets, observed at or before `block`. It yields reads of the
        chain, or `HttpGet`, or both."""


# Given a section of `configs/prices.toml`, the chain's key and what to call the section in an error.
Factory = Callable[[Mapping[str, Any], str, str], PriceSource]


@dataclass(frozen=True, slots=True)
class PriceSection:
    """How a source is made of the section of `prices.toml` that has its name: what an entry point of
    `chainfolio.prices` names.

    `order` is its place: the lower are asked first. What was observed comes after what the operator fixed (0) and
    before what is only meant (100). `kinds` are the kinds of chain whose reads it yields; empty: it asks no chain. A
    section that names a chain of another kind by its key is an error.
    """

    build: Factory
    order: int = 50
    kinds: tuple[str, ...] = ()
