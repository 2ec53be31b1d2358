"""Prices from CoinGecko, by its demo or its paid service: the newest in batches, those of the past one coin at a time.

Its history has a step of an hour up to ninety days, and one request gives all of them for one coin.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.errors import BadSettings
from chainfolio.plans import Plan, Unknown
from pricing.http_reads import HttpGet
from pricing.quotes import PriceSection, PriceSource, Quotes
from pricing.vendors import (
    Host,
    Off,
    Told,
    base_url,
    checked,
    contract_of,
    decoded,
    key_of,
    listed,
    names_of,
    number,
    say_off,
    seconds,
    told_of,
)

SOURCE: Final = "coingecko"
PLANS: Final = {
    "demo": ("https://api.coingecko.com/api/v3", "x-cg-demo-api-key", "COINGECKO_DEMO_KEY", 0.5),
    "pro": ("https://pro-api.coingecko.com/api/v3", "x-cg-pro-api-key", "COINGECKO_PRO_KEY", 8.0),
}
MAX_AGE_S: Final = 2 * 3600
NOW_S: Final = 300  # a moment that is not older is answered by the newest prices
SPAN_S: Final = 89 * 86_400  # of one request for the past: beyond it the step is a day
MAX_COINS: Final = 50

Key = tuple[str, str, int]  # a platform (empty: a coin by its id), an id or contract, and a moment in seconds
MILLISECONDS: Final = 1000


class _Now(msgspec.Struct):
    usd: msgspec.Raw
    last_updated_at: int = 0  # not said: older than any price may be


class _Past(msgspec.Struct):
    prices: list[tuple[int, msgspec.Raw]]


@dataclass(frozen=True, slots=True)
class Listed:
    """What is listed, at moments."""

    host: Host

    def gets(self, keys: Sequence[Key], now_s: int) -> Iterable[tuple[HttpGet | Unknown, Sequence[Key]]]:
        """Fifty at a time of what is asked for now; of what is past a coin at a time."""
        groups: dict[tuple[str, str, int], list[Key]] = {}
        for key in sorted(keys):
            platform, name, moment = key
            groups.setdefault((platform, "", moment) if moment > now_s - NOW_S else (platform, name, 0), []).append(key)
        for (platform, name, _), several in groups.items():
            if name:
                for span in _spans(several):
                    yield self._past(platform, name, span), span
            else:
                left = iter(several)
                while some := list(islice(left, MAX_COINS)):
                    yield self._now(platform, some), some

    def _now(self, platform: str, keys: Sequence[Key]) -> HttpGet:
        path = f"/simple/token_price/{platform}" if platform else "/simple/price"
        return self.host.get(
            path,
            ("contract_addresses" if platform else "ids", ",".join(name for _, name, _ in keys)),
            ("vs_currencies", "usd"),
            ("include_last_updated_at", "true"),
            ("precision", "full"),
        )

    def _past(self, platform: str, name: str, keys: Sequence[Key]) -> HttpGet:
        return self.host.get(
            f"/coins/{platform}/contract/{name}/market_chart/range"
            if platform
            else f"/coins/{name}/market_chart/range",
            ("vs_currency", "usd"),
            ("from", str(keys[0][2] - MAX_AGE_S)),
            ("to", str(keys[-1][2])),
            ("precision", "full"),
        )

    def told(self, body: bytes, keys: Sequence[Key]) -> Mapping[Key, Told | Unknown]:
        """The last price at or before each moment."""
        answer = decoded(body, dict[str, msgspec.Raw])
        if "prices" in answer:
            return _of_history(decoded(body, _Past), keys)
        lines = {name.lower(): raw for name, raw in answer.items()}
        return {key: _seen(lines[key[1].lower()]) for key in keys if key[1].lower() in lines}

    def shown(self, key: Key) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """The request that would ask for this alone, once it is past."""
        get = self._past(key[0], key[1], [key])
        return "GET", get.url, None, tuple(f"{name}={value}" for name, value in get.params)


@dataclass(frozen=True, slots=True)
class CoinGecko:
    """All that is listed, of the chains that it knows."""

    batch: Listed
    chains: Mapping[str, str]
    coins: Mapping[Asset, str]
    max_age_s: int = MAX_AGE_S
    name: str = SOURCE

    def knows(self, asset: Asset) -> bool | None:
        """Whether CoinGecko lists an asset: sure of coins that have a name here."""
        return listed(asset, self.coins, self.chains)

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Any, Any, Quotes]:
        """A price, or the reason for none, for each asset that CoinGecko lists."""
        moment = block.time_us // 1_000_000
        keys = {asset: (*place, moment) for asset in assets if (place := self._place(asset))}
        return (yield from told_of(SOURCE, self.batch, keys, block, self.max_age_s))

    def _place(self, asset: Asset) -> tuple[str, str] | None:
        coin = self.coins.get(asset)
        return ("", coin) if coin else contract_of(asset, self.chains)


def _spans(keys: Sequence[Key]) -> Iterator[list[Key]]:
    """The moments of one coin, in their order, in parts that one request gives the finest step of."""
    part: list[Key] = []
    for key in keys:
        if part and key[2] - part[0][2] > SPAN_S:
            yield part
            part = []
        part.append(key)
    yield part


def _seen(raw: msgspec.Raw) -> Told | Unknown:
    try:
        seen = decoded(raw, _Now)
        return Told(number(seen.usd), seen.last_updated_at)
    except ValueError as error:
        return Unknown(f"CoinGecko's answer has no price: {error!s:.200}", "contract")


def _of_history(past: _Past, keys: Sequence[Key]) -> dict[Key, Told | Unknown]:
    steps = sorted(past.prices, key=lambda step: step[0])
    times = [time_ms for time_ms, _ in steps]
    found: dict[Key, Told | Unknown] = {}
    for key in keys:
        at = bisect_right(times, key[2] * MILLISECONDS + MILLISECONDS - 1)
        if at:
            time_ms, usd = steps[at - 1]
            try:
                found[key] = Told(number(usd), time_ms // MILLISECONDS)
            except ValueError as error:
                found[key] = Unknown(f"CoinGecko's history has no price: {error!s:.200}", "contract")
        elif steps:
            found[key] = Unknown("CoinGecko's history begins after the block", "contract")
    return found


def _build(section: Mapping[str, Any], chain: str, where: str) -> PriceSource:
    checked(section, where, ("plan", "base_url", "key_env", "max_age_s", "chains", "coins"))
    plan = section.get("plan", "demo")
    if plan not in PLANS:
        raise BadSettings(where, f"plan is {plan!r}", remedy=f"one of {', '.join(PLANS)}")
    url, header, variable, per_s = PLANS[plan]
    key = key_of(section, where, variable)
    host = Host(base_url(section, where, url), ((header, key),) if key else (), per_s)
    max_age_s = seconds(section, where, "max_age_s", MAX_AGE_S)
    source = CoinGecko(Listed(host), section.get("chains", {}), names_of(section, where), max_age_s)
    if not key and "base_url" not in section:
        say_off(SOURCE, section.get("key_env", variable))
        return Off(SOURCE)
    return source


SECTION = PriceSection(_build, order=82)
