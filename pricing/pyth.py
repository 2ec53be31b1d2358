"""Prices from Pyth's Hermes, each with an interval: a wide one is no price, a narrow one is its confidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import msgspec

from chainfolio import amounts
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.errors import BadSettings
from chainfolio.plans import Plan, Unknown
from pricing.http_reads import HttpGet
from pricing.quotes import PriceSection, Quotes
from pricing.vendors import Host, Told, base_url, checked, decoded, names_of, number, seconds, told_of

SOURCE: Final = "pyth"
HERMES: Final = "https://hermes.pyth.network"
PER_S: Final = 0.9  # ten in ten seconds, with room
MAX_AGE_S: Final = 60
BEFORE_S: Final = 5  # it gives the first update from a moment on, and feeds are updated every second
MAX_FEEDS: Final = 50
MAX_EXPONENT: Final = 36
WIDEST: Final = Decimal("0.01")  # of the price: half the interval
PLACES: Final = Decimal("0.000001")

Key = tuple[str, int]  # a feed, and a moment in seconds


class _Price(msgspec.Struct):
    price: str
    conf: str
    expo: int
    publish_time: int


class _Parsed(msgspec.Struct):
    id: str
    price: msgspec.Raw


class _Answer(msgspec.Struct):
    parsed: list[_Parsed]


@dataclass(frozen=True, slots=True)
class Updates:
    """Updates of feeds, at moments: all feeds of a moment in one request."""

    host: Host

    def gets(self, keys: Sequence[Key], now_s: int) -> Iterable[tuple[HttpGet | Unknown, Sequence[Key]]]:
        """One request for every fifty feeds of a moment."""
        moments: dict[int, list[Key]] = {}
        for key in keys:
            moments.setdefault(key[1], []).append(key)
        for several in moments.values():
            for at in range(0, len(several), MAX_FEEDS):
                some = several[at : at + MAX_FEEDS]
                yield self._get(some), some

    def _get(self, keys: Sequence[Key]) -> HttpGet:
        feeds = (("ids[]", feed) for feed, _ in keys)
        known = ("parsed", "true"), ("ignore_invalid_price_ids", "true")
        return self.host.get(f"/v2/updates/price/{keys[0][1] - BEFORE_S}", *feeds, *known)

    def told(self, body: bytes, keys: Sequence[Key]) -> Mapping[Key, Told | Unknown]:
        """The update of each feed."""
        seen = {each.id.removeprefix("0x"): each.price for each in decoded(body, _Answer).parsed}
        return {key: _seen(seen[key[0]]) for key in keys if key[0] in seen}

    def shown(self, key: Key) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """The request that would ask for this alone."""
        get = self._get([key])
        return "GET", get.url, None, tuple(f"{name}={value}" for name, value in get.params)


@dataclass(frozen=True, slots=True)
class Pyth:
    """The feeds of some assets."""

    batch: Updates
    feeds: Mapping[Asset, str]
    max_age_s: int = MAX_AGE_S
    name: str = SOURCE

    def knows(self, asset: Asset) -> bool:
        """Whether an asset has a feed."""
        return asset in self.feeds

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Any, Any, Quotes]:
        """A price, or the reason for none, for each asset that has a feed."""
        moment = block.time_us // 1_000_000
        keys = {asset: (self.feeds[asset], moment) for asset in assets if asset in self.feeds}
        return (yield from told_of(SOURCE, self.batch, keys, block, self.max_age_s))


def _seen(raw: msgspec.Raw) -> Told | Unknown:
    """What Hermes says of a feed."""
    try:
        said = decoded(raw, _Price)
        return told(_whole(said.price), _whole(said.conf), said.expo, said.publish_time)
    except ValueError as error:
        return Unknown(f"Pyth's answer has no price: {error!s:.200}", "contract")


def told(price: Decimal, half: Decimal, exponent: int, time_s: int) -> Told | Unknown:
    """A price and the half of its interval, both times 10^exponent; unknown where the interval is too wide to be a
    price. ValueError for an exponent that no price has."""
    if abs(exponent) > MAX_EXPONENT:
        raise ValueError(f"an exponent of {exponent}")
    usd, interval = amounts.EXACT.scaleb(price, exponent), amounts.EXACT.scaleb(half, exponent)
    if usd > 0 and not 0 <= interval <= usd * WIDEST:
        return Unknown(f"Pyth is not sure of it: {usd} ± {interval} USD, at most ± {WIDEST:%} are allowed", "contract")
    unsure = (interval / usd).quantize(PLACES) if usd > 0 else Decimal(0)
    return Told(usd, time_s, 1 - unsure)


def _whole(written: str) -> Decimal:
    value = number(written)
    if value != value.to_integral_value() or abs(value) > amounts.MAX_RAW:
        raise ValueError(f"{written:.40} is no whole number")
    return value


def _build(section: Mapping[str, Any], chain: str, where: str) -> Pyth:
    checked(section, where, ("base_url", "max_age_s", "chains", "coins"))
    feeds = {asset: feed.removeprefix("0x") for asset, feed in names_of(section, where).items()}
    for asset, feed in feeds.items():
        if len(feed) != 64 or set(feed) - set("0123456789abcdef"):
            raise BadSettings(f"{where}.coins", f"the feed of {asset} is not one", remedy="64 hex digits in lower case")
    host = Host(base_url(section, where, HERMES), per_s=PER_S)
    return Pyth(Updates(host), feeds, seconds(section, where, "max_age_s", MAX_AGE_S))


SECTION = PriceSection(_build, order=84)
