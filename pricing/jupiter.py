"""Prices of Solana's tokens from Jupiter. It has current prices only: older blocks are refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    MarketQuote,
    VendorHost,
    VendorQuote,
    api_key,
    base_url,
    check_keys,
    decode_json,
    log_disabled,
    parse_number,
    read_quotes,
)
from chainfolio.reads import ReadLabel

SOURCE: Final = "jupiter"
URL: Final = "https://api.jup.ag"
VARIABLE: Final = "JUPITER_KEY"
SOLANA: Final = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
WRAPPED: Final = "So11111111111111111111111111111111111111112"
HOST_RPS: Final = 1.0
CURRENT_S: Final = 60  # current prices are used for blocks that are not older
MAX_MINTS: Final = 50
MIN_LIQUIDITY: Final = 10_000  # USD

Key = tuple[str, int]  # a mint, and a time in seconds


class _CurrentPrice(msgspec.Struct):
    usdPrice: msgspec.Raw
    liquidity: msgspec.Raw


@dataclass(frozen=True, slots=True)
class MintBatch:
    """Current prices of tokens. `min_liquidity_usd` is what the markets of a token must have."""

    host: VendorHost
    min_liquidity_usd: int = MIN_LIQUIDITY

    def requests(self, keys: Sequence[Key], now_s: int) -> Iterable[tuple[HttpGet | Unknown, Sequence[Key]]]:
        """Return one request per fifty tokens of a time; `Unknown` for times older than CURRENT_S."""
        by_time: dict[int, list[Key]] = {}
        past = []
        for key in keys:
            if key[1] > now_s - CURRENT_S:
                by_time.setdefault(key[1], []).append(key)
            else:
                past.append(key)
        if past:
            yield Unknown("Jupiter knows the prices of now alone, and the block is older"), past
        for group in by_time.values():
            for start in range(0, len(group), MAX_MINTS):
                chunk = group[start : start + MAX_MINTS]
                yield self.host.get("/price/v3", ("ids", ",".join(mint for mint, _ in chunk))), chunk

    def parse(self, body: bytes, keys: Sequence[Key]) -> Mapping[Key, VendorQuote | MarketQuote | Unknown]:
        """Return the price of each token, dated at its key: an answer names its slot, but no time."""
        response = decode_json(body, dict[str, msgspec.Raw])
        return {key: self._quote(response[key[0]], key) for key in keys if key[0] in response}

    def _quote(self, raw: msgspec.Raw, key: Key) -> VendorQuote | MarketQuote | Unknown:
        """Return a token's price with its markets' liquidity as depth; Unknown if malformed or too little.

        Anyone can open a market for a new token, so a holding is worth at most what the markets have. SOL has
        no depth, because it is also traded elsewhere.
        """
        try:
            current = decode_json(raw, _CurrentPrice)
            usd, liquidity = parse_number(current.usdPrice), parse_number(current.liquidity)
        except ValueError as error:
            return Unknown(f"Jupiter's answer has no price: {error!s:.200}", "contract")
        if liquidity < self.min_liquidity_usd:
            fault = f"its markets have {liquidity:f} USD, {self.min_liquidity_usd} are the least"
            return Unknown(f"Jupiter's price is not to be relied on: {fault}", "contract")
        return VendorQuote(usd, key[1]) if key[0] == WRAPPED else MarketQuote(usd, key[1], liquidity)

    def label(self, key: Key) -> ReadLabel:
        """Return the request that would read this key alone."""
        return "GET", f"{self.host.url}/price/v3", None, (f"ids={key[0]}",)


@dataclass(frozen=True, slots=True)
class Jupiter:
    """SOL and the tokens of Solana."""

    batch: MintBatch
    name: str = SOURCE

    def knows(self, asset: Asset) -> bool | None:
        """Return True for SOL, None for other tokens of Solana, False otherwise."""
        mint = _mint(asset)
        return True if mint == WRAPPED else None if mint else False

    def prices(self, assets: Sequence[Asset], block: Block) -> PricePlan:
        """Return a price or a refusal for each token that Jupiter lists, in one round."""
        time_s = block.time_us // 1_000_000
        keys = {asset: (mint, time_s) for asset in assets if (mint := _mint(asset))}
        return (yield from read_quotes(SOURCE, self.batch, keys, block, CURRENT_S))


def _mint(asset: Asset) -> str:
    """Return the mint of a fungible token of Solana, that of wrapped SOL for SOL; empty for other assets."""
    if asset.chain != SOLANA or asset.token_id:
        return ""
    return WRAPPED if asset.is_native else asset.reference if asset.kind == "token" else ""


def _build(section: Section, chain: str, location: str) -> PriceSource:
    """Build the source; a disabled one, with a warning, if it has neither key nor URL.

    Raises:
        BadSettings: A key of the section is unknown, or a value is not valid.
    """
    check_keys(section, location, ("base_url", "key_env", "min_liquidity_usd"))
    minimum = section.get("min_liquidity_usd", MIN_LIQUIDITY)
    if type(minimum) is not int or minimum < 0:
        raise BadSettings(location, f"min_liquidity_usd is {minimum!r}, not a whole number from 0")
    key = api_key(section, location, VARIABLE)
    if not key and "base_url" not in section:
        log_disabled(SOURCE, section.get("key_env", VARIABLE))
        return DisabledSource(SOURCE)
    host = VendorHost(base_url(section, location, URL), (("x-api-key", key),) if key else (), HOST_RPS)
    return Jupiter(MintBatch(host, minimum))


SECTION = PriceSection(_build, order=86)
