"""Vendors as subjects of the conformance tests of price sources.

A vendor is a `Subject` in `test_conformance.py`, which says how its answers are written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chainfolio.assets import Asset
from chainfolio.price_sources import PriceSource
from tests.pricing.vendor_server import NOW_S


@dataclass(frozen=True)
class Subject:
    """A vendor, its price source and its answers.

    `write` returns its answer to a request for `asset`, from the price as JSON has it and the time of the price in
    seconds. `unknown` is its answer if it does not know the asset.
    """

    name: str
    build: Callable[[str], PriceSource]  # of the address at which it is asked
    asset: Asset
    write: Callable[[str, int], str]
    unknown: str
    stale_s: int  # older than that is no price
    number: Callable[[str], str] = str  # how the vendor writes a number: some write it as text
    text: Callable[[str], str] = '"{}"'.format  # what it never writes instead
    says_when: bool = True
    base_source: PriceSource | None = None  # what prices the assets in which it answers
    now_s: int = NOW_S  # when it is asked about the block

    def sources(self, url: str) -> list[PriceSource]:
        """The source, with what it rests upon."""
        return [*([self.base_source] if self.base_source else []), self.build(url)]


BAD_PRICES = ("-1", "0", "1e40", "1e-40", "null", "[]", "{}", "true", "1" * 500, "1e999999999")
BAD_BODIES = {
    "empty": b"",
    "html": b"<html><body>Just a moment...</body></html>",
    "another shape": b"[[[]]]",
    "null": b"null",
    "a number": b"17",
    "not UTF-8": b'{"\xff\xfe',
    "nested": b"[" * 100_000,
    "huge": b" " * 70_000,
}
