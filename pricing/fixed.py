"""Prices that the operator has fixed: facts by decree (`fixed`), and what is meant to be worth a fixed sum (`peg`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from chainfolio import amounts
from chainfolio.assets import Asset, asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.errors import BadRequest, BadSettings
from chainfolio.plans import Plan
from pricing.guards import MAX_USD
from pricing.quotes import PriceSection, PriceSource, Quotes

CERTAIN = Decimal(1)
PEG = "peg"


@dataclass(frozen=True, slots=True)
class Fixed:
    """A source that asks nobody: the same price at every block."""

    name: str
    usd: Mapping[Asset, Decimal]

    def knows(self, asset: Asset) -> bool:
        """Whether an asset has a fixed price."""
        return asset in self.usd

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Any, Any, Quotes]:
        """The fixed prices of those assets that have one, as of the block."""
        yield from ()
        known = [known for known in assets if known in self.usd]
        return Quotes(tuple(Price(known, self.usd[known], self.name, block.time_us, CERTAIN) for known in known))


def pegged(sources: Iterable[PriceSource]) -> frozenset[Asset]:
    """What the operator says is meant to be worth a fixed sum, whichever source prices it."""
    pegs = (source for source in sources if isinstance(source, Fixed) and source.name == PEG)
    return frozenset(asset for peg in pegs for asset in peg.usd)


def fixed(section: Mapping[str, Any], where: str, name: str = "fixed") -> Fixed:
    """The source behind `asset = "price"` lines; `where` is what a BadSettings calls them."""
    return Fixed(name, {canonical(written, where): _usd(price, written, where) for written, price in section.items()})


def canonical(written: str, where: str) -> Asset:
    """The asset of a settings line, written in the one form in which it can be compared."""
    try:
        read = asset(written)
    except BadRequest as error:
        raise BadSettings(where, error.reason, remedy=error.remedy) from None
    if str(read) != written:
        raise BadSettings(where, f"{written} is not in canonical form", remedy=f"write {read}")
    return read


def _usd(price: object, written: str, where: str) -> Decimal:
    if not isinstance(price, str):
        raise BadSettings(where, f"the price of {written} is not a string", remedy='write it in quotes: "1.00"')
    try:
        usd = amounts.parse(price)
    except ValueError as error:
        raise BadSettings(where, f"the price of {written} is {error}") from None
    if not 0 < usd <= MAX_USD:
        raise BadSettings(where, f"the price of {written} is {price}, not above 0 and at most {MAX_USD:f}")
    return usd


SECTION = PriceSection(lambda section, chain, where: fixed(section, where), order=0)
