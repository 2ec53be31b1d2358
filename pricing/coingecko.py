"""Prices from CoinGecko: current prices in batches, past prices one coin per request.

The history has a step of one hour if a request spans at most ninety days.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.errors import BadSettings
from chainfolio.plans import Unknown
from chainfolio.price_sources import PricePlan, PriceSection, PriceSource, Section
from chainfolio.pricing.http_reads import HttpGet
from chainfolio.pricing.vendors import (
    DisabledSource,
    VendorHost,
    VendorQuote,
    api_key,
    base_url,
    check_keys,
    decode_json,
    is_listed,
    listed_contract,
    log_disabled,
    parse_number,
    read_quotes,
    seconds,
    vendor_chains,
    vendor_names,
)
from chainfolio.reads import ReadLabel

SOURCE: Final = "coingecko"
PLANS: Final = {  # address, header of the key, its environment variable, requests per second
    "demo": ("https://api.coingecko.com/api/v3", "x-cg-demo-api-key", "COINGECKO_DEMO_KEY", 0.5),
    "pro": ("https://pro-api.coingecko.com/api/v3", "x-cg-pro-api-key", "COINGECKO_PRO_KEY", 8.0),
}
MAX_AGE_S: Final = 2 * 3600
CURRENT_S: Final = 300  # current prices are used for times that are not older
MAX_SPAN_S: Final = 89 * 86_400  # of one request for the history: beyond it the step is a day
MAX_COINS: Final = 50

Key = tuple[str, str, int]  # a platform (empty for a coin by its id), an id or contract, and a time in seconds
MILLISECONDS: Final = 1000


class _CurrentPrice(msgspec.Struct):
    usd: msgspec.Raw
    last_updated_at: int = 0  # missing: older than any price may be


class _History(msgspec.Struct):
    prices: list[tuple[int, msgspec.Raw]]


@dataclass(frozen=True, slots=True)
class CoinBatch:
    """Prices of coins and contracts at given times."""

    host: VendorHost

    def requests(self, keys: Sequence[Key], now_s: int) -> Iterable[tuple[HttpGet | Unknown, Sequence[Key]]]:
        """Return one request per fifty current prices, and one per coin and span of its history.

        A time counts as current for CURRENT_S.
        """
        groups: dict[Key, list[Key]] = {}
        for key in sorted(keys):
            platform, name, time_s = key
            group = (platform, "", time_s) if time_s > now_s - CURRENT_S else (platform, name, 0)
            groups.setdefault(group, []).append(key)
        for (platform, name, _), group_keys in groups.items():
            if name:
                for span in _spans(group_keys):
                    yield self._history_request(platform, name, span), span
            else:
                for start in range(0, len(group_keys), MAX_COINS):
                    chunk = group_keys[start : start + MAX_COINS]
                    yield self._current_request(platform, chunk), chunk

    def _current_request(self, platform: str, keys: Sequence[Key]) -> HttpGet:
        """Return the request for current prices of some coins, or of contracts on a platform."""
        path = f"/simple/token_price/{platform}" if platform else "/simple/price"
        return self.host.get(
            path,
            ("contract_addresses" if platform else "ids", ",".join(name for _, name, _ in keys)),
            ("vs_currencies", "usd"),
            ("include_last_updated_at", "true"),
            ("precision", "full"),
        )

    def _history_request(self, platform: str, name: str, keys: Sequence[Key]) -> HttpGet:
        """Return the request for past prices of one coin, from MAX_AGE_S before the first time to the last."""
        return self.host.get(
            f"/coins/{platform}/contract/{name}/market_chart/range"
            if platform
            else f"/coins/{name}/market_chart/range",
            ("vs_currency", "usd"),
            ("from", str(keys[0][2] - MAX_AGE_S)),
            ("to", str(keys[-1][2])),
            ("precision", "full"),
        )

    def parse(self, body: bytes, keys: Sequence[Key]) -> Mapping[Key, VendorQuote | Unknown]:
        """Return the last price at or before each time, from current prices or from a history."""
        response = decode_json(body, dict[str, msgspec.Raw])
        if "prices" in response:
            return _quotes_of_history(decode_json(body, _History), keys)
        by_name = {name.lower(): raw for name, raw in response.items()}
        return {key: _current_quote(by_name[key[1].lower()]) for key in keys if key[1].lower() in by_name}

    def label(self, key: Key) -> ReadLabel:
        """Return the history request that would read this key alone."""
        return self._history_request(key[0], key[1], [key]).label


@dataclass(frozen=True, slots=True)
class CoinGecko:
    """The coins that have a name in `coins`, and the contracts of the chains in `chains`."""

    batch: CoinBatch
    chains: Mapping[str, str]
    coins: Mapping[Asset, str]
    max_age_s: int = MAX_AGE_S
    name: str = SOURCE

    def knows(self, asset: Asset) -> bool | None:
        """Return True for a named coin, None for a contract that may be listed, False otherwise."""
        return is_listed(asset, self.coins, self.chains)

    def prices(self, assets: Sequence[Asset], block: Block) -> PricePlan:
        """Return a price or a refusal for each asset that CoinGecko lists, in one round."""
        time_s = block.time_us // 1_000_000
        keys = {asset: (*name, time_s) for asset in assets if (name := self._platform_and_name(asset))}
        return (yield from read_quotes(SOURCE, self.batch, keys, block, self.max_age_s))

    def _platform_and_name(self, asset: Asset) -> tuple[str, str] | None:
        coin = self.coins.get(asset)
        return ("", coin) if coin else listed_contract(asset, self.chains)


def _spans(keys: Sequence[Key]) -> Iterator[list[Key]]:
    """Split the sorted keys of one coin into spans that one request answers with the finest step."""
    span: list[Key] = []
    for key in keys:
        if span and key[2] - span[0][2] > MAX_SPAN_S:
            yield span
            span = []
        span.append(key)
    yield span


def _current_quote(raw: msgspec.Raw) -> VendorQuote | Unknown:
    """Return the price and its time in an answer; Unknown if it has none."""
    try:
        current = decode_json(raw, _CurrentPrice)
        return VendorQuote(parse_number(current.usd), current.last_updated_at)
    except ValueError as error:
        return Unknown(f"CoinGecko's answer has no price: {error!s:.200}", "contract")


def _quotes_of_history(history: _History, keys: Sequence[Key]) -> dict[Key, VendorQuote | Unknown]:
    """Return the last price at or before each time.

    `Unknown` if the history begins later, nothing if it is empty.
    """
    points = sorted(history.prices, key=lambda point: point[0])
    times_ms = [time_ms for time_ms, _ in points]
    quotes: dict[Key, VendorQuote | Unknown] = {}
    for key in keys:
        count = bisect_right(times_ms, key[2] * MILLISECONDS + MILLISECONDS - 1)
        if count:
            time_ms, usd = points[count - 1]
            try:
                quotes[key] = VendorQuote(parse_number(usd), time_ms // MILLISECONDS)
            except ValueError as error:
                quotes[key] = Unknown(f"CoinGecko's history has no price: {error!s:.200}", "contract")
        elif points:
            quotes[key] = Unknown("CoinGecko's history begins after the block", "contract")
    return quotes


def _build(section: Section, chain: str, location: str) -> PriceSource:
    """Build the source; a disabled one, with a warning, if it has neither key nor URL.

    Raises:
        BadSettings: A key of the section is unknown, or a value is not valid.
    """
    check_keys(section, location, ("plan", "base_url", "key_env", "max_age_s", "chains", "coins"))
    plan = section.get("plan", "demo")
    if plan not in PLANS:
        raise BadSettings(location, f"plan is {plan!r}", remedy=f"one of {', '.join(PLANS)}")
    url, header, variable, max_rps = PLANS[plan]
    key = api_key(section, location, variable)
    host = VendorHost(base_url(section, location, url), ((header, key),) if key else (), max_rps)
    max_age_s = seconds(section, location, "max_age_s", MAX_AGE_S)
    source = CoinGecko(CoinBatch(host), vendor_chains(section, location), vendor_names(section, location), max_age_s)
    if not key and "base_url" not in section:
        log_disabled(SOURCE, section.get("key_env", variable))
        return DisabledSource(SOURCE)
    return source


SECTION = PriceSection(_build, order=82)
