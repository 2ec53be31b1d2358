"""The interface of price sources: the protocol, its registration, and the quotes of a source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, Protocol, TypeAlias

from chainfolio.assets import Asset, asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.errors import BadRequest, BadSettings
from chainfolio.plans import Plan
from chainfolio.reads import ReadResult

MAX_USD: Final = Decimal(10**12)  # limits of a price
MIN_USD: Final = Decimal("1E-18")


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why one source has no price for an asset that it knows.

    Attributes:
        reason: Shown to users.
        is_unread: A feed that the settings name could not be read, so an answer without the price is partial.
    """

    asset: Asset
    source: str
    reason: str
    is_unread: bool = False


@dataclass(frozen=True, slots=True)
class RelativePrice:
    """The value of one unit of an asset in other assets: the exact sum of amount times asset over `parts`.

    One part: a market (its quote asset) or a share of a vault. Several parts: a liquidity token, or a basket.

    Attributes:
        depth: The asset that a market pays for this one, and the most it could pay. None: it is no market.
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
    def dependencies(self) -> tuple[Asset, ...]:
        """The other assets whose prices are needed to compute this one in USD, without duplicates."""
        depth = () if self.depth is None or self.depth[0] == self.asset else (self.depth[0],)
        return tuple(dict.fromkeys((*(part for part, _ in self.parts), *depth)))


@dataclass(frozen=True, slots=True)
class Quotes:
    """At most one price, or one relative price, per asset.

    An asset that the source does not know is in no list.
    """

    prices: tuple[Price, ...] = ()
    refused: tuple[Refusal, ...] = ()
    relative: tuple[RelativePrice, ...] = ()


PricePlan: TypeAlias = Plan[Quotes]  # yields reads of the chain, or HTTP reads, or both
Section: TypeAlias = Mapping[str, Any]  # one table of `configs/prices.toml`


class PriceSource(Protocol):
    """A source of prices, which is read for some assets at one block.

    Two members are optional. `knows(asset)` tells without a read whether the source has a price: it is not read for an
    asset that it does not know (False), is the second opinion for one that it knows (True), and may be read for others
    (None). A source with `reads_chain_only = True` is read in the same requests as its neighbours of that kind.
    """

    @property
    def name(self) -> str:
        """The name that answers show as the source of a price."""

    def prices(self, assets: Sequence[Asset], block: Block) -> PricePlan:
        """Return a plan of the quotes for these assets, observed at or before `block`."""


# Arguments: a section of `configs/prices.toml`, the chain's key, and the section's name in error messages.
SourceFactory = Callable[[Section, str, str], PriceSource]


@dataclass(frozen=True, slots=True)
class PriceSection:
    """The target of an entry point in `chainfolio.prices`: builds a source from the section of its name.

    Attributes:
        build: Makes the source of one chain.
        order: Sources with lower numbers are read first. Prices that the operator fixed have 0, pegs have 100.
        kinds: Kinds of chains whose reads the source yields; empty if it reads no chain. A section that names a chain
            of another kind is an error.
    """

    build: SourceFactory
    order: int = 50
    kinds: tuple[str, ...] = ()


def by_chain(build: Callable[[Section, str], PriceSource]) -> SourceFactory:
    """Return the factory of a source whose section has one table per chain.

    Args:
        build: Makes the source from the chain's table (empty if there is none) and the table's name in error messages.

    The factory raises BadSettings if the chain's table is no table.
    """

    def build_for_chain(section: Section, chain: str, location: str) -> PriceSource:
        """Build the source from the table of the chain; raise BadSettings if that is no table."""
        chain_section = section.get(chain, {})
        if not isinstance(chain_section, Mapping):
            raise BadSettings(f"{location}.{chain}", "is not a section")
        return build(chain_section, f"{location}.{chain}")

    return build_for_chain


def parse_asset(text: str, location: str) -> Asset:
    """Parse an asset of the settings; raise BadSettings if it is none or not in its canonical form."""
    try:
        parsed = asset(text)
    except BadRequest as error:
        raise BadSettings(location, error.reason, remedy=error.remedy) from None
    if str(parsed) != text:
        raise BadSettings(location, f"{text} is not in canonical form", remedy=f"write {parsed}")
    return parsed
