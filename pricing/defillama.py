"""Prices from DefiLlama, of tokens by chain and contract and of coins by their CoinGecko ids, at the block's time.

It gives what it saw nearest to a moment, so an answer may come from after it: then it is asked for moments before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.plans import Plan, Unknown
from pricing.http_reads import BatchedRead, HttpGet
from pricing.quotes import PriceSection, Quotes
from pricing.vendors import (
    Host,
    Told,
    base_url,
    checked,
    contract_of,
    decoded,
    key_of,
    listed,
    names_of,
    number,
    outcome,
    quotes,
    seconds,
)

SOURCE: Final = "defillama"
FREE: Final = "https://coins.llama.fi"
PRO: Final = "https://pro-api.llama.fi"
PER_S: Final = 5.0
MAX_AGE_S: Final = 6 * 3600  # as far as the vendor looks
BEFORE_S: Final = (300, 1200, 3600)  # what it saw last before a moment is nearest to one of these
MAX_COINS: Final = 100  # in one address
MAX_QUERY: Final = 4000  # characters, before they are escaped

Key = tuple[str, int]  # a coin, and a moment in seconds


class _Seen(msgspec.Struct):
    price: msgspec.Raw
    timestamp: int
    confidence: msgspec.Raw


class _Coin(msgspec.Struct):
    prices: list[_Seen]


class _Answer(msgspec.Struct):
    coins: dict[str, msgspec.Raw]


@dataclass(frozen=True, slots=True)
class Coins:
    """Coins at moments: many coins at one moment, or some coins at many, in one request."""

    host: Host

    def gets(self, keys: Sequence[Key], now_s: int) -> Iterable[tuple[HttpGet | Unknown, Sequence[Key]]]:
        """One request for every hundred coins of a moment, or for as many moments as an address has room for."""
        moments: dict[int, list[Key]] = {}
        for key in keys:
            moments.setdefault(key[1], []).append(key)
        single = [some for several in moments.values() for some in _chunks(several)]
        several = list(_filled(keys))
        if len(single) <= len(several):
            return [(self._at(some), some) for some in single]
        return [(self._batch(some), some) for some in several]

    def _at(self, keys: Sequence[Key]) -> HttpGet:
        return self.host.get(f"/prices/historical/{keys[0][1]}/{','.join(coin for coin, _ in keys)}")

    def _batch(self, keys: Sequence[Key]) -> HttpGet:
        return self.host.get("/batchHistorical", ("coins", json.dumps(_moments(keys), separators=(",", ":"))))

    def told(self, body: bytes, keys: Sequence[Key]) -> Mapping[Key, Told | Unknown]:
        """What was seen nearest to each moment."""
        answer = decoded(body, _Answer).coins
        coins = {coin.lower() if coin.partition(":")[2].startswith("0x") else coin: raw for coin, raw in answer.items()}
        seen = {coin: _seen(coins[coin]) for coin in _moments(keys) if coin in coins}
        return {key: found for key in keys if (found := _nearest(seen.get(key[0], ()), key[1])) is not None}

    def shown(self, key: Key) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """The request that would ask for this alone."""
        return "GET", f"{self.host.url}/prices/historical/{key[1]}/{key[0]}", None, ()


@dataclass(frozen=True, slots=True)
class DefiLlama:
    """All tokens of the chains that it knows."""

    batch: Coins
    chains: Mapping[str, str]
    coins: Mapping[Asset, str]
    max_age_s: int = MAX_AGE_S
    name: str = SOURCE

    def knows(self, asset: Asset) -> bool | None:
        """Whether DefiLlama knows an asset: sure of coins that have a name here."""
        return listed(asset, self.coins, self.chains)

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Any, Any, Quotes]:
        """A price, or the reason for none, for each asset that DefiLlama knows."""
        named = {asset: coin for asset in assets if (coin := self._coin(asset))}
        if not named:
            return Quotes()
        moment = block.time_us // 1_000_000
        reads = {asset: BatchedRead(self.batch, (coin, moment)) for asset, coin in named.items()}
        told = dict(zip(named, (yield list(reads.values())), strict=True))
        late = [asset for asset, said in told.items() if isinstance(said, Told) and said.time_s > moment]
        if late:
            before = [BatchedRead(self.batch, (named[asset], moment - by)) for asset in late for by in BEFORE_S]
            answers = yield before
            for at, asset in enumerate(late):
                own = slice(at * len(BEFORE_S), (at + 1) * len(BEFORE_S))
                usable = [
                    (said, read)
                    for said, read in zip(answers[own], before[own], strict=True)
                    if isinstance(said, Told) and said.time_s <= moment
                ]
                if usable:
                    told[asset], reads[asset] = max(usable, key=lambda pair: pair[0].time_s)
        return quotes(
            SOURCE,
            (outcome(SOURCE, asset, reads[asset], said, block, self.max_age_s) for asset, said in told.items()),
        )

    def _coin(self, asset: Asset) -> str:
        """What DefiLlama calls an asset; empty where it has no name for it. Its names of coins are CoinGecko's."""
        if coin := self.coins.get(asset):
            return coin if ":" in coin else f"coingecko:{coin}"
        return ":".join(contract_of(asset, self.chains) or ())


def _chunks(keys: Sequence[Key]) -> Iterator[list[Key]]:
    left = iter(keys)
    while some := list(islice(left, MAX_COINS)):
        yield some


def _filled(keys: Sequence[Key]) -> Iterator[list[Key]]:
    """Keys in parts, each of which one address has room for; a coin is written once in a part."""
    part: list[Key] = []
    room, last = MAX_QUERY, ""
    for key in sorted(keys):
        needs = len(str(key[1])) + 1 + (0 if key[0] == last else len(key[0]) + 6)
        if needs > room and part:
            yield part
            part, room, needs = [], MAX_QUERY, len(str(key[1])) + len(key[0]) + 7
        part.append(key)
        room, last = room - needs, key[0]
    if part:
        yield part


def _moments(keys: Sequence[Key]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for coin, moment in keys:
        found.setdefault(coin, []).append(moment)
    return found


def _seen(raw: msgspec.Raw) -> list[Told] | Unknown:
    """All that an answer says of one coin."""
    try:
        shape = decoded(raw, dict[str, msgspec.Raw])
        several = decoded(raw, _Coin).prices if "prices" in shape else [decoded(raw, _Seen)]
        return [Told(number(each.price), each.timestamp, number(each.confidence)) for each in several]
    except ValueError as error:
        return Unknown(f"DefiLlama's answer has no price: {error!s:.200}", "contract")


def _nearest(seen: Sequence[Told] | Unknown, moment: int) -> Told | Unknown | None:
    if isinstance(seen, Unknown):
        return seen
    return min(seen, key=lambda each: (abs(each.time_s - moment), each.time_s), default=None)


def _build(section: Mapping[str, Any], chain: str, where: str) -> DefiLlama:
    checked(section, where, ("base_url", "key_env", "max_age_s", "chains", "coins"))
    key = key_of(section, where, "DEFILLAMA_KEY") if "base_url" not in section else ""
    host = Host(base_url(section, where, PRO if key else FREE), per_s=PER_S, secret_path=f"/{key}/coins" if key else "")
    max_age_s = seconds(section, where, "max_age_s", MAX_AGE_S)
    return DefiLlama(Coins(host), section.get("chains", {}), names_of(section, where), max_age_s)


SECTION = PriceSection(_build, order=80)
