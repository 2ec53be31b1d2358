"""Prices from Pyth's Hermes.

Each has an interval: a narrow one is the price's confidence, a wide one is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import msgspec

from chainfolio import amounts
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.errors import BadSettings
from chainfolio.plans import Unknown
from chainfolio.price_sources import PricePlan, PriceSection, Section
from chainfolio.pricing.http_reads import HttpGet
from chainfolio.pricing.vendors import (
    VendorHost,
    VendorQuote,
    base_url,
    check_keys,
    decode_json,
    parse_number,
    read_quotes,
    seconds,
    vendor_names,
)
from chainfolio.reads import ReadLabel

SOURCE: Final = "pyth"
HERMES: Final = "https://hermes.pyth.network"
HOST_RPS: Final = 0.9  # the limit is ten requests in ten seconds
MAX_AGE_S: Final = 60
LEAD_S: Final = 5  # Hermes returns the first update at or after a time, and feeds are updated every second
MAX_FEEDS: Final = 50
MAX_EXPONENT: Final = 36
MAX_INTERVAL: Final = Decimal("0.01")  # half the interval, as a part of the price
PLACES: Final = Decimal("0.000001")

Key = tuple[str, int]  # a feed, and a time in seconds


class _FeedPrice(msgspec.Struct):
    price: str
    conf: str
    expo: int
    publish_time: int


class _FeedUpdate(msgspec.Struct):
    id: str
    price: msgspec.Raw


class _Response(msgspec.Struct):
    parsed: list[_FeedUpdate]


@dataclass(frozen=True, slots=True)
class UpdateBatch:
    """Updates of feeds at given times: one request has up to fifty feeds at one time."""

    host: VendorHost

    def requests(self, keys: Sequence[Key], now_s: int) -> Iterable[tuple[HttpGet | Unknown, Sequence[Key]]]:
        """Return one request per fifty feeds of a time."""
        by_time: dict[int, list[Key]] = {}
        for key in keys:
            by_time.setdefault(key[1], []).append(key)
        for group in by_time.values():
            for start in range(0, len(group), MAX_FEEDS):
                chunk = group[start : start + MAX_FEEDS]
                yield self._request(chunk), chunk

    def _request(self, keys: Sequence[Key]) -> HttpGet:
        feeds = (("ids[]", feed) for feed, _ in keys)
        options = ("parsed", "true"), ("ignore_invalid_price_ids", "true")
        return self.host.get(f"/v2/updates/price/{keys[0][1] - LEAD_S}", *feeds, *options)

    def parse(self, body: bytes, keys: Sequence[Key]) -> Mapping[Key, VendorQuote | Unknown]:
        """Return the update of each feed, without the feeds that Hermes does not know."""
        updates = {update.id.removeprefix("0x"): update.price for update in decode_json(body, _Response).parsed}
        return {key: _parse_update(updates[key[0]]) for key in keys if key[0] in updates}

    def label(self, key: Key) -> ReadLabel:
        """Return the request that would read this key alone."""
        return self._request([key]).label


@dataclass(frozen=True, slots=True)
class Pyth:
    """The feeds of some assets."""

    batch: UpdateBatch
    feeds: Mapping[Asset, str]
    max_age_s: int = MAX_AGE_S
    name: str = SOURCE

    def knows(self, asset: Asset) -> bool:
        """Return True if the asset has a feed."""
        return asset in self.feeds

    def prices(self, assets: Sequence[Asset], block: Block) -> PricePlan:
        """Return a price or a refusal for each asset with a feed, in one round."""
        time_s = block.time_us // 1_000_000
        keys = {asset: (self.feeds[asset], time_s) for asset in assets if asset in self.feeds}
        return (yield from read_quotes(SOURCE, self.batch, keys, block, self.max_age_s))


def _parse_update(raw: msgspec.Raw) -> VendorQuote | Unknown:
    """Return the quote of a feed's update; Unknown if it is malformed or its interval is too wide."""
    try:
        update = decode_json(raw, _FeedPrice)
        return pyth_quote(_whole_number(update.price), _whole_number(update.conf), update.expo, update.publish_time)
    except ValueError as error:
        return Unknown(f"Pyth's answer has no price: {error!s:.200}", "contract")


def pyth_quote(price: Decimal, half_interval: Decimal, exponent: int, time_s: int) -> VendorQuote | Unknown:
    """Return a quote whose confidence follows from the interval; `Unknown` if the interval is too wide.

    A price that is not above zero is returned with confidence 1.

    Args:
        price: The price, divided by 10^exponent.
        half_interval: Half the width of the interval, divided by 10^exponent.
        exponent: Usually negative.
        time_s: Time of the update.

    Raises:
        ValueError: The exponent is out of range.
    """
    if abs(exponent) > MAX_EXPONENT:
        raise ValueError(f"an exponent of {exponent}")
    usd, interval = amounts.EXACT.scaleb(price, exponent), amounts.EXACT.scaleb(half_interval, exponent)
    if usd > 0 and not 0 <= interval <= usd * MAX_INTERVAL:
        fault = f"{usd} ± {interval} USD, at most ± {MAX_INTERVAL:%} are allowed"
        return Unknown(f"Pyth is not sure of it: {fault}", "contract")
    uncertainty = (interval / usd).quantize(PLACES) if usd > 0 else Decimal(0)
    return VendorQuote(usd, time_s, 1 - uncertainty)


def _whole_number(text: str) -> Decimal:
    value = parse_number(text)
    if value != value.to_integral_value() or abs(value) > amounts.MAX_RAW:
        raise ValueError(f"{text:.40} is no whole number")
    return value


def _build(section: Section, chain: str, location: str) -> Pyth:
    """Build the source; raise BadSettings for a feed that is not 64 hex digits.

    It is raised for an unknown key of the section, too.
    """
    check_keys(section, location, ("base_url", "max_age_s", "chains", "coins"))
    feeds = {asset: feed.removeprefix("0x") for asset, feed in vendor_names(section, location).items()}
    for asset, feed in feeds.items():
        if len(feed) != 64 or set(feed) - set("0123456789abcdef"):
            fault = f"the feed of {asset} is not one"
            raise BadSettings(f"{location}.coins", fault, remedy="64 hex digits in lower case")
    host = VendorHost(base_url(section, location, HERMES), max_rps=HOST_RPS)
    return Pyth(UpdateBatch(host), feeds, seconds(section, location, "max_age_s", MAX_AGE_S))


SECTION = PriceSection(_build, order=84)
