"""Prices from Jupiter, of Solana's tokens. It has no past: what is asked of an older block is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
    ToldOfMarket,
    base_url,
    checked,
    decoded,
    key_of,
    number,
    say_off,
    told_of,
)

SOURCE: Final = "jupiter"
URL: Final = "https://api.jup.ag"
VARIABLE: Final = "JUPITER_KEY"
SOLANA: Final = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
WRAPPED: Final = "So11111111111111111111111111111111111111112"
PER_S: Final = 1.0
NOW_S: Final = 60  # a block that is not older is now
MAX_MINTS: Final = 50
MIN_LIQUIDITY: Final = 10_000  # USD

Key = tuple[str, int]  # a mint, and a moment in seconds


class _Seen(msgspec.Struct):
    usdPrice: msgspec.Raw
    liquidity: msgspec.Raw


@dataclass(frozen=True, slots=True)
class Mints:
    """Tokens now."""

    host: Host
    least_usd: int = MIN_LIQUIDITY

    def gets(self, keys: Sequence[Key], now_s: int) -> Iterable[tuple[HttpGet | Unknown, Sequence[Key]]]:
        """One request for every fifty tokens of a moment; none for a moment that is past."""
        now: dict[int, list[Key]] = {}
        past = []
        for key in keys:
            if key[1] > now_s - NOW_S:
                now.setdefault(key[1], []).append(key)
            else:
                past.append(key)
        if past:
            yield Unknown("Jupiter knows the prices of now alone, and the block is older"), past
        for several in now.values():
            for at in range(0, len(several), MAX_MINTS):
                some = several[at : at + MAX_MINTS]
                yield self.host.get("/price/v3", ("ids", ",".join(mint for mint, _ in some))), some

    def told(self, body: bytes, keys: Sequence[Key]) -> Mapping[Key, Told | ToldOfMarket | Unknown]:
        """The price of each token, which is of the moment: the answer says of which block, and not when."""
        answer = decoded(body, dict[str, msgspec.Raw])
        return {key: self._seen(answer[key[0]], key) for key in keys if key[0] in answer}

    def _seen(self, raw: msgspec.Raw, key: Key) -> Told | ToldOfMarket | Unknown:
        """Anybody can open a market for a token of their own, so all of a token is worth no more than its markets have:
        but for the coin, whose markets are not only there."""
        try:
            seen = decoded(raw, _Seen)
            usd, liquidity = number(seen.usdPrice), number(seen.liquidity)
        except ValueError as error:
            return Unknown(f"Jupiter's answer has no price: {error!s:.200}", "contract")
        if liquidity < self.least_usd:
            thin = f"its markets have {liquidity:f} USD, {self.least_usd} are the least"
            return Unknown(f"Jupiter's price is not to be relied on: {thin}", "contract")
        return Told(usd, key[1]) if key[0] == WRAPPED else ToldOfMarket(usd, key[1], liquidity)

    def shown(self, key: Key) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """The request that would ask for this alone."""
        return "GET", f"{self.host.url}/price/v3", None, (f"ids={key[0]}",)


@dataclass(frozen=True, slots=True)
class Jupiter:
    """All tokens of Solana that it trusts."""

    batch: Mints
    name: str = SOURCE

    def knows(self, asset: Asset) -> bool | None:
        """Whether Jupiter trusts an asset: sure of the native coin."""
        mint = _mint(asset)
        return True if mint == WRAPPED else None if mint else False

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Any, Any, Quotes]:
        """A price, or the reason for none, for each token that Jupiter trusts."""
        moment = block.time_us // 1_000_000
        keys = {asset: (mint, moment) for asset in assets if (mint := _mint(asset))}
        return (yield from told_of(SOURCE, self.batch, keys, block, NOW_S))


def _mint(asset: Asset) -> str:
    if asset.chain != SOLANA or asset.token_id:
        return ""
    return WRAPPED if asset.is_native else asset.reference if asset.kind == "token" else ""


def _build(section: Mapping[str, Any], chain: str, where: str) -> PriceSource:
    checked(section, where, ("base_url", "key_env", "min_liquidity_usd"))
    least = section.get("min_liquidity_usd", MIN_LIQUIDITY)
    if type(least) is not int or least < 0:
        raise BadSettings(where, f"min_liquidity_usd is {least!r}, not a whole number from 0")
    key = key_of(section, where, VARIABLE)
    if not key and "base_url" not in section:
        say_off(SOURCE, section.get("key_env", VARIABLE))
        return Off(SOURCE)
    host = Host(base_url(section, where, URL), (("x-api-key", key),) if key else (), PER_S)
    return Jupiter(Mints(host, least))


SECTION = PriceSection(_build, order=86)
