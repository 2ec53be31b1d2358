"""Prices of assets that are pegged to a fixed sum.

A peg is an opinion: it comes last, so that it hides no feed.
"""

from __future__ import annotations

from chainfolio.price_sources import PriceSection
from chainfolio.pricing.fixed import PEG, build_fixed

SECTION = PriceSection(lambda section, chain, location: build_fixed(section, location, name=PEG), order=100)
