"""Prices from DefiLlama at the block's time: tokens by their contracts, coins by their CoinGecko ids.

DefiLlama returns the observation that is nearest to a time, which may be a later one. In that case earlier times are
requested in a second round.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.plans import Unknown, read_all
from chainfolio.price_sources import PricePlan, PriceSection, Quotes, Section
from chainfolio.pricing.http_reads import BatchedRead, HttpGet
from chainfolio.pricing.vendors import (
    VendorHost,
    VendorQuote,
    api_key,
    base_url,
    check_keys,
    collect_quotes,
    decode_json,
    is_listed,
    listed_contract,
    parse_number,
    seconds,
    to_price,
    vendor_chains,
    vendor_names,
)
from chainfolio.reads import ReadLabel

SOURCE: Final = "defillama"
FREE_URL: Final = "https://coins.llama.fi"
PRO_URL: Final = "https://pro-api.llama.fi"
HOST_RPS: Final = 5.0
MAX_AGE_S: Final = 6 * 3600  # the vendor searches no further
EARLIER_S: Final = (300, 1200, 3600)  # the last observation before a time is nearest to one of these times before it
MAX_COINS: Final = 100  # in one address
MAX_QUERY: Final = 4000  # characters, before they are escaped

Key = tuple[str, int]  # a coin, and a time in seconds


class _Observation(msgspec.Struct):
    price: msgspec.Raw
    timestamp: int
    confidence: msgspec.Raw


class _Coin(msgspec.Struct):
    prices: list[_Observation]


class _Response(msgspec.Struct):
    coins: dict[str, msgspec.Raw]


@dataclass(frozen=True, slots=True)
class CoinBatch:
    """Prices of coins at given times. One request has many coins at one time, or some coins at many times."""

    host: VendorHost

    def requests(self, keys: Sequence[Key], now_s: int) -> Iterable[tuple[HttpGet | Unknown, Sequence[Key]]]:
        """Return requests for a hundred coins at one time, or for as many times as fit: whichever are fewer."""
        by_time: dict[int, list[Key]] = {}
        for key in keys:
            by_time.setdefault(key[1], []).append(key)
        single = [chunk for group in by_time.values() for chunk in _chunks(group)]
        combined = list(_fill_queries(keys))
        if len(single) <= len(combined):
            return [(self._single_request(chunk), chunk) for chunk in single]
        return [(self._combined_request(chunk), chunk) for chunk in combined]

    def _single_request(self, keys: Sequence[Key]) -> HttpGet:
        return self.host.get(f"/prices/historical/{keys[0][1]}/{','.join(coin for coin, _ in keys)}")

    def _combined_request(self, keys: Sequence[Key]) -> HttpGet:
        return self.host.get("/batchHistorical", ("coins", json.dumps(_times_by_coin(keys), separators=(",", ":"))))

    def parse(self, body: bytes, keys: Sequence[Key]) -> Mapping[Key, VendorQuote | Unknown]:
        """Return the observation nearest to each time; Unknown for malformed data of a coin.

        Keys without an observation are left out.
        """
        coins = {
            coin.lower() if coin.partition(":")[2].startswith("0x") else coin: raw
            for coin, raw in decode_json(body, _Response).coins.items()
        }
        by_coin = {coin: _parse_coin(coins[coin]) for coin in _times_by_coin(keys) if coin in coins}
        return {key: quote for key in keys if (quote := _nearest(by_coin.get(key[0], ()), key[1])) is not None}

    def label(self, key: Key) -> ReadLabel:
        """Return the request that would read this key alone, without the secret path."""
        return "GET", f"{self.host.url}/prices/historical/{key[1]}/{key[0]}", None, ()


@dataclass(frozen=True, slots=True)
class DefiLlama:
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
        """Return a price or a refusal for each asset that DefiLlama knows, in one or two rounds.

        If the nearest price is from after the block, earlier times are asked for. Other assets are left out.
        """
        coins = {asset: coin for asset in assets if (coin := self._coin(asset))}
        if not coins:
            return Quotes()
        time_s = block.time_us // 1_000_000
        reads = {asset: BatchedRead(self.batch, (coin, time_s)) for asset, coin in coins.items()}
        quotes = dict(zip(coins, (yield from read_all(list(reads.values()))), strict=True))
        late = [asset for asset, quote in quotes.items() if isinstance(quote, VendorQuote) and quote.time_s > time_s]
        if late:
            earlier_reads = [BatchedRead(self.batch, (coins[asset], time_s - by)) for asset in late for by in EARLIER_S]
            results = yield from read_all(earlier_reads)
            for i, asset in enumerate(late):
                part = slice(i * len(EARLIER_S), (i + 1) * len(EARLIER_S))
                usable = [
                    (quote, read)
                    for quote, read in zip(results[part], earlier_reads[part], strict=True)
                    if isinstance(quote, VendorQuote) and quote.time_s <= time_s
                ]
                if usable:
                    quotes[asset], reads[asset] = max(usable, key=lambda pair: pair[0].time_s)
        return collect_quotes(
            to_price(SOURCE, asset, reads[asset], quote, block, self.max_age_s) for asset, quote in quotes.items()
        )

    def _coin(self, asset: Asset) -> str:
        """Return DefiLlama's name of an asset, which is a CoinGecko id for coins; empty if it has none."""
        if coin := self.coins.get(asset):
            return coin if ":" in coin else f"coingecko:{coin}"
        return ":".join(listed_contract(asset, self.chains) or ())


def _chunks(keys: Sequence[Key]) -> Iterator[Sequence[Key]]:
    for start in range(0, len(keys), MAX_COINS):
        yield keys[start : start + MAX_COINS]


def _fill_queries(keys: Sequence[Key]) -> Iterator[list[Key]]:
    """Split keys into groups that fit into one address each, which has every coin once with its times."""
    group: list[Key] = []
    free, last_coin = MAX_QUERY, ""
    for key in sorted(keys):
        length = len(str(key[1])) + 1 + (0 if key[0] == last_coin else len(key[0]) + 6)
        if length > free and group:
            yield group
            group, free, length = [], MAX_QUERY, len(str(key[1])) + len(key[0]) + 7
        group.append(key)
        free, last_coin = free - length, key[0]
    if group:
        yield group


def _times_by_coin(keys: Sequence[Key]) -> dict[str, list[int]]:
    times: dict[str, list[int]] = {}
    for coin, time_s in keys:
        times.setdefault(coin, []).append(time_s)
    return times


def _parse_coin(raw: msgspec.Raw) -> list[VendorQuote] | Unknown:
    """Return all observations of one coin, unchecked (a price may be zero); Unknown if any is malformed."""
    try:
        shape = decode_json(raw, dict[str, msgspec.Raw])
        observations = decode_json(raw, _Coin).prices if "prices" in shape else [decode_json(raw, _Observation)]
        return [VendorQuote(parse_number(o.price), o.timestamp, parse_number(o.confidence)) for o in observations]
    except ValueError as error:
        return Unknown(f"DefiLlama's answer has no price: {error!s:.200}", "contract")


def _nearest(quotes: Sequence[VendorQuote] | Unknown, time_s: int) -> VendorQuote | Unknown | None:
    """Return the quote nearest to a time, the earlier one of two; None without any, Unknown as given."""
    if isinstance(quotes, Unknown):
        return quotes
    return min(quotes, key=lambda quote: (abs(quote.time_s - time_s), quote.time_s), default=None)


def _build(section: Section, chain: str, location: str) -> DefiLlama:
    """Make the source from its section: the paid address if there is a key; BadSettings if malformed."""
    check_keys(section, location, ("base_url", "key_env", "max_age_s", "chains", "coins"))
    key = api_key(section, location, "DEFILLAMA_KEY") if "base_url" not in section else ""
    url = base_url(section, location, PRO_URL if key else FREE_URL)
    host = VendorHost(url, max_rps=HOST_RPS, secret_path=f"/{key}/coins" if key else "")
    max_age_s = seconds(section, location, "max_age_s", MAX_AGE_S)
    return DefiLlama(CoinBatch(host), vendor_chains(section, location), vendor_names(section, location), max_age_s)


SECTION = PriceSection(_build, order=80)
