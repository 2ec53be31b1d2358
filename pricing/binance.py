"""Prices from Binance's markets in USDT: the close of the last minute before the block, times what USDT is worth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import msgspec

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.plans import Plan, Unknown
from chainfolio.reads import ReadResult
from pricing.guards import MAX_USD, MIN_USD
from pricing.http_reads import BatchedRead, HttpGet
from pricing.quotes import PriceSection, Quotes, Refusal, Relative
from pricing.vendors import Host, Told, base_url, checked, decoded, fault, names_of, number, seconds

SOURCE: Final = "binance"
URL: Final = "https://data-api.binance.vision"
PER_S: Final = 10.0
MAX_AGE_S: Final = 300
MINUTE_S: Final = 60
MOST: Final = 1000  # minutes in one answer
CLOSE, CLOSED_MS, TRADES = 4, 6, 8  # where they stand in a minute

Key = tuple[str, int]  # a market, and a moment in seconds


@dataclass(frozen=True, slots=True)
class Minutes:
    """The minutes of markets, before moments."""

    host: Host
    back_s: int = MAX_AGE_S

    def gets(self, keys: Sequence[Key], now_s: int) -> Iterable[tuple[HttpGet | Unknown, Sequence[Key]]]:
        """One request for the moments of one market that lie within a thousand minutes."""
        for some in self._spans(sorted(keys)):
            yield self._get(some), some

    def _spans(self, keys: Sequence[Key]) -> Iterator[list[Key]]:
        room_s = (MOST - 1) * MINUTE_S - self.back_s
        part: list[Key] = []
        for key in keys:
            if part and (key[0] != part[0][0] or key[1] - part[0][1] > room_s):
                yield part
                part = []
            part.append(key)
        if part:
            yield part

    def _get(self, keys: Sequence[Key]) -> HttpGet:
        return self.host.get(
            "/api/v3/klines",
            ("symbol", keys[0][0]),
            ("interval", "1m"),
            ("startTime", f"{keys[0][1] - self.back_s}000"),
            ("endTime", f"{keys[-1][1]}000"),
            ("limit", str(MOST)),
        )

    def told(self, body: bytes, keys: Sequence[Key]) -> Mapping[Key, Told | Unknown]:
        """The close of the last minute before each moment in which somebody traded."""
        minutes = decoded(body, list[list[msgspec.Raw]])
        return {key: _last(minutes, key[1]) for key in keys} if minutes else {}

    def shown(self, key: Key) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """The request that would ask for this alone."""
        get = self._get([key])
        return "GET", get.url, None, tuple(f"{name}={value}" for name, value in get.params)


@dataclass(frozen=True, slots=True)
class Binance:
    """Markets in USDT. `usdt` is the token whose price stands for it on the chain; None: there is none."""

    batch: Minutes
    markets: Mapping[Asset, str]
    usdt: Asset | None
    max_age_s: int = MAX_AGE_S
    name: str = SOURCE

    def knows(self, asset: Asset) -> bool:
        """Whether an asset has a market."""
        return asset in self.markets

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Any, Any, Quotes]:
        """What each asset that has a market is worth in USDT, or the reason for none."""
        known = [asset for asset in assets if asset in self.markets]
        if not known:
            return Quotes()
        if self.usdt is None:
            reason = "its market is in USDT, and no USDT of this chain is known"
            return Quotes(refused=tuple(Refusal(asset, SOURCE, reason) for asset in known))
        moment = block.time_us // 1_000_000
        reads = {asset: BatchedRead(self.batch, (self.markets[asset], moment)) for asset in known}
        told = yield list(reads.values())
        found = [
            self._outcome(asset, read, said, block)
            for (asset, read), said in zip(reads.items(), told, strict=True)
            if said is not None
        ]
        return Quotes(
            refused=tuple(each for each in found if isinstance(each, Refusal)),
            relative=tuple(each for each in found if isinstance(each, Relative)),
        )

    def _outcome(self, asset: Asset, read: BatchedRead, said: Told | Unknown, block: Block) -> Relative | Refusal:
        wrong = said.reason if isinstance(said, Unknown) else fault(said, block, self.max_age_s)
        if isinstance(said, Unknown) or wrong:
            return Refusal(asset, SOURCE, wrong)
        assert self.usdt is not None, "nothing is asked without it"
        return Relative(
            asset, ((self.usdt, Fraction(said.usd)),), SOURCE, said.time_s * 1_000_000, said.confidence,
            f"market {self.markets[asset]}", (ReadResult(read, said),),
        )  # fmt: skip


def _last(minutes: Sequence[Sequence[msgspec.Raw]], moment: int) -> Told | Unknown:
    try:
        closed = [
            (time_s, decoded(minute[CLOSE], str))
            for minute in minutes
            if (time_s := _closed_s(minute)) <= moment and decoded(minute[TRADES], int)
        ]
        if not closed:
            later = min(map(_closed_s, minutes))
            return Unknown(
                f"nobody traded before the block; the first minute closed {later - moment} s after the block"
            )
        time_s, usd = max(closed)
        price = number(usd)
        if price > 0 and not MIN_USD <= price <= MAX_USD:
            raise ValueError(f"{price:.3E} is out of all proportion")
        return Told(price, time_s)
    except (ValueError, IndexError) as error:
        return Unknown(f"Binance's answer has no price: {error!s:.200}", "contract")


def _closed_s(minute: Sequence[msgspec.Raw]) -> int:
    """When a minute was over: the first second after it."""
    return decoded(minute[CLOSED_MS], int) // 1000 + 1


def _build(section: Mapping[str, Any], chain: str, where: str) -> Binance:
    checked(section, where, ("base_url", "max_age_s", "usdt", "chains", "coins"))
    usdt = {key: asset for asset, key in names_of({"usdt": _turned(section)}, where, "usdt").items()}
    max_age_s = seconds(section, where, "max_age_s", MAX_AGE_S)
    batch = Minutes(Host(base_url(section, where, URL), per_s=PER_S), max_age_s)
    return Binance(batch, names_of(section, where), usdt.get(chain), max_age_s)


def _turned(section: Mapping[str, Any]) -> Any:
    """The lines `chain = "asset"` the other way round."""
    lines = section.get("usdt", {})
    return {asset: chain for chain, asset in lines.items()} if isinstance(lines, Mapping) else lines


SECTION = PriceSection(_build, order=83)
