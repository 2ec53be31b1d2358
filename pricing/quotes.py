"""What a price source is, how one is registered, and what it gives back: prices, and reasons for none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, Protocol

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.errors import BadSettings
from chainfolio.plans import Plan
from chainfolio.reads import ReadResult


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one source gave no price for an asset that it has facts about; `reason` is in a user's words. `is_unread`: a
    feed that the settings name could not be read, so an answer without the price is partial."""

    asset: Asset
    source: str
    reason: str
    is_unread: bool = False


@dataclass(frozen=True, slots=True)
class Relative:
    """What one unit of an asset is worth in other assets: the sum of amount times asset over `parts`, exactly.

    One part: a market (its quote asset) or a share of a vault. Several: a liquidity token, a basket. `depth` is how
    much of which asset a market could pay for all that is sold to it; None: this is no market.
    """

    asset: Asset
    parts: tuple[tuple[Asset, Fraction], ...]
    source: str
    time_us: int
    confidence: Decimal
    detail: str = ""
    calls: tuple[ReadResult, ...] = field(default=(), compare=False)
    depth: tuple[Asset, Fraction] | None = None

    @property
    def needs(self) -> tuple[Asset, ...]:
        """The other assets whose prices it follows from, each once."""
        depth = () if self.depth is None or self.depth[0] == self.asset else (self.depth[0],)
        return tuple(dict.fromkeys((*(part for part, _ in self.parts), *depth)))


@dataclass(frozen=True, slots=True)
class Quotes:
    """At most one price, or one relative price, an asset. An asset the source knows nothing of is in no list."""

    prices: tuple[Price, ...] = ()
    refused: tuple[Refusal, ...] = ()
    relative: tuple[Relative, ...] = ()


class PriceSource(Protocol):
    """One source of prices, asked for some assets at one block.

    One that can say `knows(asset)` without asking anybody is not asked for what it does not know, and is a second
    opinion on what another such source is asked for; None: it may know it. One whose `reads_chain_only` is true is
    asked together with other such sources before or after it.
    """

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


def by_chain(build: Callable[[Mapping[str, Any], str], PriceSource]) -> Factory:
    """The factory of a source whose section has a section for each chain, which `build` reads; its place is the second
    argument. One without a section for a chain is built of an empty one."""

    def of_chain(section: Mapping[str, Any], chain: str, where: str) -> PriceSource:
        own = section.get(chain, {})
        if not isinstance(own, Mapping):
            raise BadSettings(f"{where}.{chain}", "is not a section")
        return build(own, f"{where}.{chain}")

    return of_chain
