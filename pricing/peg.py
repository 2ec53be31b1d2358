"""Prices of what is meant to be worth a fixed sum. A peg is an opinion: it comes last, so that it hides no feed."""

from __future__ import annotations

from pricing.fixed import PEG, fixed
from pricing.quotes import PriceSection

SECTION = PriceSection(lambda section, chain, where: fixed(section, where, name=PEG), order=100)
