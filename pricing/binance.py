"""Prices from Binance's markets in USDT: the last close before the block, times the price of USDT."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import msgspec

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.plans import Unknown, read_all
from chainfolio.price_sources import MAX_USD, MIN_USD, PricePlan, PriceSection, Quotes, Refusal, RelativePrice, Section
from chainfolio.pricing.http_reads import BatchedRead, HttpGet
from chainfolio.pricing.vendors import (
    VendorHost,
    VendorQuote,
    base_url,
    check_keys,
    decode_json,
    parse_number,
    quote_fault,
    seconds,
    vendor_names,
)
from chainfolio.reads import ReadLabel, ReadResult

SOURCE: Final = "binance"
URL: Final = "https://data-api.binance.vision"
HOST_RPS: Final = 10.0
MAX_AGE_S: Final = 300
MINUTE_S: Final = 60
MAX_CANDLES: Final = 1000  # in one answer
CLOSE, CLOSED_MS, TRADES = 4, 6, 8  # indexes of these fields in a candle

Key = tuple[str, int]  # a market, and a time in seconds
Candle = Sequence[msgspec.Raw]  # of one minute


@dataclass(frozen=True, slots=True)
class CandleBatch:
    """The candles of markets in the `span_s` seconds before a time."""

    host: VendorHost
    span_s: int = MAX_AGE_S

    def requests(self, keys: Sequence[Key], now_s: int) -> Iterable[tuple[HttpGet | Unknown, Sequence[Key]]]:
        """Return one request per market and thousand minutes."""
        for group in self._groups(sorted(keys)):
            yield self._request(group), group

    def _groups(self, keys: Sequence[Key]) -> Iterator[list[Key]]:
        """Split sorted keys into groups of one market each whose candles fit into one request."""
        max_span_s = (MAX_CANDLES - 1) * MINUTE_S - self.span_s
        group: list[Key] = []
        for key in keys:
            if group and (key[0] != group[0][0] or key[1] - group[0][1] > max_span_s):
                yield group
                group = []
            group.append(key)
        if group:
            yield group

    def _request(self, keys: Sequence[Key]) -> HttpGet:
        """Return the request for the candles of one market, from before the first time to the last."""
        return self.host.get(
            "/api/v3/klines",
            ("symbol", keys[0][0]),
            ("interval", "1m"),
            ("startTime", f"{keys[0][1] - self.span_s}000"),
            ("endTime", f"{keys[-1][1]}000"),
            ("limit", str(MAX_CANDLES)),
        )

    def parse(self, body: bytes, keys: Sequence[Key]) -> Mapping[Key, VendorQuote | Unknown]:
        """Return the close of the last minute with a trade before each time; nothing if there are no candles."""
        candles = decode_json(body, list[list[msgspec.Raw]])
        return {key: _last_close(candles, key[1]) for key in keys} if candles else {}

    def label(self, key: Key) -> ReadLabel:
        """Return the request that would read this key alone."""
        return self._request([key]).label


@dataclass(frozen=True, slots=True)
class Binance:
    """Markets in USDT. `usdt` is the token that stands for USDT on the chain; None if the chain has none."""

    batch: CandleBatch
    markets: Mapping[Asset, str]
    usdt: Asset | None
    max_age_s: int = MAX_AGE_S
    name: str = SOURCE

    def knows(self, asset: Asset) -> bool:
        """Return True if the asset has a market."""
        return asset in self.markets

    def prices(self, assets: Sequence[Asset], block: Block) -> PricePlan:
        """Return a price in USDT or a refusal for each asset with a market, in one round.

        Assets without a market are left out. All are refused if the chain has no known USDT.
        """
        traded = [asset for asset in assets if asset in self.markets]
        if not traded:
            return Quotes()
        if self.usdt is None:
            reason = "its market is in USDT, and no USDT of this chain is known"
            return Quotes(refused=tuple(Refusal(asset, SOURCE, reason) for asset in traded))
        time_s = block.time_us // 1_000_000
        reads = {asset: BatchedRead(self.batch, (self.markets[asset], time_s)) for asset in traded}
        results = yield from read_all(list(reads.values()))
        outcomes = [
            self._outcome(asset, self.usdt, read, quote, block)
            for (asset, read), quote in zip(reads.items(), results, strict=True)
            if quote is not None
        ]
        return Quotes(
            refused=tuple(outcome for outcome in outcomes if isinstance(outcome, Refusal)),
            relative=tuple(outcome for outcome in outcomes if isinstance(outcome, RelativePrice)),
        )

    def _outcome(
        self, asset: Asset, usdt: Asset, read: BatchedRead, quote: VendorQuote | Unknown, block: Block
    ) -> RelativePrice | Refusal:
        """Return the price in USDT; the refusal if the market has none, or an old or invalid one."""
        if isinstance(quote, Unknown):
            return Refusal(asset, SOURCE, quote.reason)
        if fault := quote_fault(quote, block, self.max_age_s):
            return Refusal(asset, SOURCE, fault)
        return RelativePrice(
            asset,
            ((usdt, Fraction(quote.usd)),),
            SOURCE,
            quote.time_s * 1_000_000,
            quote.confidence,
            f"market {self.markets[asset]}",
            (ReadResult(read, quote),),
        )


def _last_close(candles: Sequence[Candle], time_s: int) -> VendorQuote | Unknown:
    """Return the close of the last candle with a trade that ended before or at a time.

    Unknown if there is none, or if the answer is malformed.
    """
    try:
        closes = [
            (end_s, decode_json(candle[CLOSE], str))
            for candle in candles
            if (end_s := _end_s(candle)) <= time_s and decode_json(candle[TRADES], int)
        ]
        if not closes:
            first_s = min(map(_end_s, candles))
            return Unknown(
                f"there was no trade before the block; the first minute closed {first_s - time_s} s after the block"
            )
        end_s, usd = max(closes)
        price = parse_number(usd)
        if price > 0 and not MIN_USD <= price <= MAX_USD:
            raise ValueError(f"{price:.3E} is out of all proportion")
        return VendorQuote(price, end_s)
    except (ValueError, IndexError) as error:
        return Unknown(f"Binance's answer has no price: {error!s:.200}", "contract")


def _end_s(candle: Candle) -> int:
    """Return the end of a candle: the first second after it."""
    return decode_json(candle[CLOSED_MS], int) // 1000 + 1


def _build(section: Section, chain: str, location: str) -> Binance:
    """Build the source; raise BadSettings for an invalid key or value."""
    check_keys(section, location, ("base_url", "max_age_s", "usdt", "chains", "coins"))
    lines = section.get("usdt", {})  # chain = "asset"
    by_asset = {asset: key for key, asset in lines.items()} if isinstance(lines, Mapping) else lines
    usdt = {key: asset for asset, key in vendor_names({"usdt": by_asset}, location, "usdt").items()}
    max_age_s = seconds(section, location, "max_age_s", MAX_AGE_S)
    batch = CandleBatch(VendorHost(base_url(section, location, URL), max_rps=HOST_RPS), max_age_s)
    return Binance(batch, vendor_names(section, location), usdt.get(chain), max_age_s)


SECTION = PriceSection(_build, order=83)
