"""Prices that the operator sets: fixed prices (`fixed`), and pegs to a fixed sum of USD (`peg`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from chainfolio import amounts
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.errors import BadSettings
from chainfolio.price_sources import MAX_USD, PricePlan, PriceSection, PriceSource, Quotes, Section, parse_asset

CERTAIN = Decimal(1)
PEG = "peg"


@dataclass(frozen=True, slots=True)
class FixedPrices:
    """A source without reads: it has the same prices at every block."""

    name: str
    usd: Mapping[Asset, Decimal]

    def knows(self, asset: Asset) -> bool:
        """Return True if the asset has a fixed price."""
        return asset in self.usd

    def prices(self, assets: Sequence[Asset], block: Block) -> PricePlan:
        """Return the fixed prices of these assets, dated at the block; assets without one are left out."""
        yield from ()
        return Quotes(
            tuple(
                Price(asset, self.usd[asset], self.name, block.time_us, CERTAIN)
                for asset in assets
                if asset in self.usd
            )
        )


def pegged_assets(sources: Iterable[PriceSource]) -> frozenset[Asset]:
    """Return the assets that the operator pegs to a fixed sum, whichever source prices them."""
    pegs = (source for source in sources if isinstance(source, FixedPrices) and source.name == PEG)
    return frozenset(asset for peg in pegs for asset in peg.usd)


def build_fixed(section: Section, location: str, name: str = "fixed") -> FixedPrices:
    """Build the source from lines `asset = "price"`.

    Raise BadSettings, which names `location`, for a wrong line.
    """
    prices = {parse_asset(text, location): _parse_usd(price, text, location) for text, price in section.items()}
    return FixedPrices(name, prices)


def _parse_usd(price: object, asset_text: str, location: str) -> Decimal:
    """Return a fixed price; raise BadSettings if it is no string of a number above 0 and up to MAX_USD."""
    if not isinstance(price, str):
        raise BadSettings(location, f"the price of {asset_text} is not a string", remedy='write it in quotes: "1.00"')
    try:
        usd = amounts.parse(price)
    except ValueError as error:
        raise BadSettings(location, f"the price of {asset_text} is {error}") from None
    if not 0 < usd <= MAX_USD:
        raise BadSettings(location, f"the price of {asset_text} is {price}, not above 0 and at most {MAX_USD:f}")
    return usd


SECTION = PriceSection(lambda section, chain, location: build_fixed(section, location), order=0)
