"""Shared parts of sources that read a vendor over HTTP: settings, exact JSON, checks of quotes."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.errors import BadSettings
from chainfolio.plans import Unknown, read_all
from chainfolio.price_sources import PricePlan, Quotes, Refusal, Section, parse_asset
from chainfolio.pricing.http_reads import Batch, BatchedRead, HttpGet
from chainfolio.reads import ReadResult

log = logging.getLogger("chainfolio.prices")
T = TypeVar("T")
FUNGIBLE: Final = ("erc20", "token", "trc20")  # CAIP-19 kinds of assets that vendors list by contract
MIN_CONFIDENCE: Final = Decimal("0.9")
_CHAIN: Final = re.compile(r"[-a-z0-9]{3,8}:[-_a-zA-Z0-9]{1,32}\Z")  # CAIP-2
_NUMBER: Final = re.compile(r"-?[0-9]{1,60}(?:\.[0-9]{1,120})?(?:[eE][-+]?[0-9]{1,3})?\Z")


class VendorQuote(NamedTuple):
    """A vendor's price of one asset: when the vendor observed it, and its confidence (0 to 1)."""

    usd: Decimal
    time_s: int
    confidence: Decimal = Decimal(1)


class MarketQuote(NamedTuple):
    """A vendor's price that comes from markets; `depth_usd` is the most that these could pay, in USD."""

    usd: Decimal
    time_s: int
    depth_usd: Decimal
    confidence: Decimal = Decimal(1)


@dataclass(frozen=True, slots=True)
class VendorHost:
    """The address of a vendor, and the largest rate of requests.

    Headers and the secret path are shown nowhere.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    max_rps: float = 5.0
    secret_path: str = field(default="", repr=False)

    def get(self, path: str, *params: tuple[str, str]) -> HttpGet:
        """Return the read of a path below the address."""
        return HttpGet(f"{self.url}{self.secret_path}{path}", params, self.headers, self.max_rps)


@dataclass(frozen=True, slots=True)
class DisabledSource:
    """A source whose key is missing: it knows no asset."""

    name: str

    def knows(self, asset: Asset) -> bool:
        """Return False."""
        return False

    def prices(self, assets: Sequence[Asset], block: Block) -> PricePlan:
        """Return no quotes."""
        yield from ()
        return Quotes()


@cache
def log_disabled(section: str, variable: str) -> None:
    """Log once per process that a source is off because its key is not set."""
    log.warning("[%s] is off: the environment variable %s is not set", section, variable)


def api_key(section: Section, location: str, default: str, env: Mapping[str, str] = os.environ) -> str:
    """Return the key of a vendor from the environment variable that `key_env` names.

    Empty if it is not set.

    Raises:
        BadSettings: `key_env` is not the name of a variable.
    """
    name = section.get("key_env", default)
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise BadSettings(location, "key_env is no name of an environment variable", remedy=f'key_env = "{default}"')
    return env.get(name, "")


def check_keys(section: Section, location: str, allowed: Collection[str]) -> None:
    """Raise BadSettings if the section has a key that is not allowed."""
    for key in section:
        if key not in allowed:
            raise BadSettings(location, f"unknown key {key}", remedy=f"known are {', '.join(sorted(allowed))}")


def base_url(section: Section, location: str, default: str) -> str:
    """Return the base address of a vendor or of its mirror; raise BadSettings if it is no HTTP address."""
    url = section.get("base_url", default)
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise BadSettings(location, "base_url is no http:// or https:// address", remedy=f'base_url = "{default}"')
    return str(url).rstrip("/")


def seconds(section: Section, location: str, key: str, default: int) -> int:
    """Return a setting in seconds, from 1 to a year; raise BadSettings if it is out of range."""
    value = section.get(key, default)
    if type(value) is not int or not 1 <= value <= 366 * 86_400:
        raise BadSettings(location, f"{key} is {value!r}, not a whole number of seconds from 1 to a year")
    return value


def add_vendor_names(tree: Section, names: Section) -> dict[str, object]:
    """Return the file of prices with the vendors' names of chains and coins added to their sections.

    Args:
        tree: The file of prices. Its own chains, coins and options take precedence.
        names: The tables `chains` and `coins`, each of lines `key = {vendor = name}`, and one table per vendor.
    """
    merged = dict(tree)
    vendors = {vendor for table in ("chains", "coins") for line in names[table].values() for vendor in line}
    for vendor in sorted(vendors & tree.keys()):
        section = tree[vendor]
        if isinstance(section, Mapping):
            tables = {table: _with_defaults(section, table, names[table], vendor) for table in ("chains", "coins")}
            merged[vendor] = {**names.get(vendor, {}), **section, **tables}
    return merged


def _with_defaults(section: Section, table: str, names: Section, vendor: str) -> object:
    """Return a table of a section with a vendor's names for the keys that it lacks.

    A value that is no table is returned unchanged: the source refuses it.
    """
    lines = section.get(table, {})
    defaults = {key: line[vendor] for key, line in names.items() if vendor in line}
    return {**defaults, **lines} if isinstance(lines, Mapping) else lines


def vendor_chains(section: Section, location: str) -> dict[str, str]:
    """Return a vendor's names of chains, by CAIP-2.

    Raises:
        BadSettings: A line of the table `chains` is no name of a chain.
    """
    lines = section.get("chains", {})
    if not isinstance(lines, Mapping) or not all(
        _CHAIN.match(key) and isinstance(name, str) and name for key, name in lines.items()
    ):
        raise BadSettings(f"{location}.chains", 'is not a section of lines CAIP-2 = "name"')
    return dict(lines)


def vendor_names(section: Section, location: str, key: str = "coins") -> dict[Asset, str]:
    """Return the lines `asset = "the vendor's name"` of a subsection; raise BadSettings for other lines."""
    lines = section.get(key, {})
    if not isinstance(lines, Mapping) or not all(isinstance(name, str) and name for name in lines.values()):
        raise BadSettings(f"{location}.{key}", 'is not a section of lines asset = "name"')
    return {parse_asset(text, f"{location}.{key}"): name for text, name in lines.items()}


def listed_contract(asset: Asset, chains: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the vendor's name of the asset's chain, and the contract.

    None if vendors list no such assets.
    """
    can_be_listed = asset.kind in FUNGIBLE and not asset.token_id and asset.chain in chains
    return (chains[asset.chain], asset.reference) if can_be_listed else None


def decode_json(body: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Decode JSON into a type; raise ValueError if it does not match."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None


def parse_number(raw: msgspec.Raw | str) -> Decimal:
    """Parse a JSON number exactly.

    Raise ValueError for text, for null, and for more digits than a price may have.
    """
    digits = raw if isinstance(raw, str) else bytes(raw).decode()
    if not _NUMBER.match(digits):
        raise ValueError(f"{digits[:40]} is no plain number")
    return Decimal(digits)


def quote_fault(quote: VendorQuote | MarketQuote, block: Block, max_age_s: int) -> str:
    """Return the reason why a quote cannot be used at a block; empty if it can.

    It cannot if it is not above zero, from after the block, older than `max_age_s` or below MIN_CONFIDENCE.
    """
    age_s = block.time_us // 1_000_000 - quote.time_s
    if not quote.usd > 0:
        return f"the price is not above zero: {quote.usd:.40}" if quote.usd else "the price is zero"
    if age_s < 0:
        return f"the price was seen {-age_s} s after the block"
    if age_s > max_age_s:
        return f"the price is stale: seen {age_s} s before the block, {max_age_s} s are allowed"
    if not 0 <= quote.confidence <= 1:
        return f"the confidence is not between 0 and 1: {quote.confidence}"
    if quote.confidence < MIN_CONFIDENCE:
        return f"the vendor is not sure of it: confidence {quote.confidence}, {MIN_CONFIDENCE} is the least"
    return ""


def collect_quotes(outcomes: Iterable[Price | Refusal | None]) -> Quotes:
    """Sort outcomes into prices and refusals; None, an asset that the vendor does not know, is left out."""
    outcomes = list(outcomes)
    return Quotes(
        tuple(outcome for outcome in outcomes if isinstance(outcome, Price)),
        tuple(outcome for outcome in outcomes if isinstance(outcome, Refusal)),
    )


def is_listed(asset: Asset, coins: Collection[Asset], chains: Mapping[str, str]) -> bool | None:
    """Return True if the vendor has a name for the asset, None if it may list it, False otherwise."""
    if asset in coins:
        return True
    return None if listed_contract(asset, chains) else False


def read_quotes(source: str, batch: Batch, keys: Mapping[Asset, Hashable], block: Block, max_age_s: int) -> PricePlan:
    """Read the quotes of some assets at a block in one round.

    Args:
        source: Name of the source.
        batch: The vendor's batch.
        keys: The batch's keys by asset.
        block: Quotes are as of this block.
        max_age_s: Largest age of a quote at the block.
    """
    if not keys:
        return Quotes()
    reads = {asset: BatchedRead(batch, key) for asset, key in keys.items()}
    results = yield from read_all(list(reads.values()))
    pairs = zip(reads.items(), results, strict=True)
    return collect_quotes(to_price(source, asset, read, quote, block, max_age_s) for (asset, read), quote in pairs)


def to_price(
    source: str,
    asset: Asset,
    read: BatchedRead,
    quote: VendorQuote | MarketQuote | Unknown | None,
    block: Block,
    max_age_s: int,
) -> Price | Refusal | None:
    """Turn the result of a read into a price or a refusal; None if the vendor does not know the asset.

    A quote that is zero, from after the block, older than `max_age_s` or of low confidence is refused.
    """
    if quote is None:
        return None
    if isinstance(quote, Unknown):
        return Refusal(asset, source, quote.reason)
    fault = quote_fault(quote, block, max_age_s)
    if fault:
        return Refusal(asset, source, fault)
    calls = (ReadResult(read, quote),)
    depth_usd = quote.depth_usd if isinstance(quote, MarketQuote) else None
    return Price(asset, quote.usd, source, quote.time_s * 1_000_000, quote.confidence, "", calls, depth_usd)
