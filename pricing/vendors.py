"""What sources that ask a vendor over HTTP have in common: where the vendor is asked, how its JSON is read exactly, and
what disqualifies what it told."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.errors import BadSettings
from chainfolio.plans import Plan, Unknown
from chainfolio.reads import ReadResult
from pricing.fixed import canonical
from pricing.http_reads import BatchedRead, HttpGet
from pricing.quotes import Quotes, Refusal

log = logging.getLogger("chainfolio.prices")
T = TypeVar("T")
FUNGIBLE: Final = ("erc20", "token", "trc20")  # what vendors list by contract, as CAIP-19 names it
MIN_CONFIDENCE: Final = Decimal("0.9")
_NUMBER: Final = re.compile(r"-?[0-9]{1,60}(?:\.[0-9]{1,120})?(?:[eE][-+]?[0-9]{1,3})?\Z")


class Told(NamedTuple):
    """What a vendor said of one asset: when it saw the price, and how sure it is."""

    usd: Decimal
    time_s: int
    confidence: Decimal = Decimal(1)


class ToldOfMarket(NamedTuple):
    """The same of what markets make, and what these could pay at most, in USD."""

    usd: Decimal
    time_s: int
    depth_usd: Decimal
    confidence: Decimal = Decimal(1)


@dataclass(frozen=True, slots=True)
class Host:
    """Where a vendor is asked, and how often at most. What is secret is sent and shown nowhere."""

    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    per_s: float = 5.0
    secret_path: str = field(default="", repr=False)

    def get(self, path: str, *params: tuple[str, str]) -> HttpGet:
        """A read of a path below it."""
        return HttpGet(f"{self.url}{self.secret_path}{path}", params, self.headers, self.per_s)


@dataclass(frozen=True, slots=True)
class Off:
    """A source that needs what is not there: it knows nothing, and was said to be off."""

    name: str

    def knows(self, asset: Asset) -> bool:
        """No."""
        return False

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Any, Any, Quotes]:
        """Nothing."""
        yield from ()
        return Quotes()


@cache
def say_off(section: str, variable: str) -> None:
    """One line in the log of the process: the source is not asked for want of a key."""
    log.warning("[%s] is off: the environment variable %s is not set", section, variable)


def key_of(section: Mapping[str, Any], where: str, default: str, env: Mapping[str, str] = os.environ) -> str:
    """The key of a vendor, from the environment variable that `key_env` names; empty where it is not set."""
    name = section.get("key_env", default)
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise BadSettings(where, "key_env is no name of an environment variable", remedy=f'key_env = "{default}"')
    return env.get(name, "")


def checked(section: Mapping[str, Any], where: str, known: Collection[str]) -> None:
    """BadSettings for a key that the section does not have."""
    for key in section:
        if key not in known:
            raise BadSettings(where, f"unknown key {key}", remedy=f"known are {', '.join(sorted(known))}")


def base_url(section: Mapping[str, Any], where: str, default: str) -> str:
    """The address below which a vendor, or a mirror of it, is asked."""
    url = section.get("base_url", default)
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise BadSettings(where, "base_url is no http:// or https:// address", remedy=f'base_url = "{default}"')
    return str(url).rstrip("/")


def seconds(section: Mapping[str, Any], where: str, key: str, default: int) -> int:
    """A number of seconds above zero."""
    value = section.get(key, default)
    if type(value) is not int or not 1 <= value <= 366 * 86_400:
        raise BadSettings(where, f"{key} is {value!r}, not a whole number of seconds from 1 to a year")
    return value


def with_names(tree: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of a file of prices, those of vendors with what these call chains, coins and tokens; what a section
    says itself comes first."""
    found = dict(tree)
    vendors = {vendor for table in ("chains", "coins") for line in names[table].values() for vendor in line}
    for vendor in sorted(vendors & tree.keys()):
        own = tree[vendor]
        if isinstance(own, Mapping):
            known = {
                table: {key: line[vendor] for key, line in names[table].items() if vendor in line}
                for table in ("chains", "coins")
            }
            lines = own.get("coins", {})
            coins = {**known["coins"], **lines} if isinstance(lines, Mapping) else lines
            found[vendor] = {**names.get(vendor, {}), **own, "chains": known["chains"], "coins": coins}
    return found


def names_of(section: Mapping[str, Any], where: str, key: str = "coins") -> dict[Asset, str]:
    """The `asset = "the vendor's name"` lines of a subsection."""
    lines = section.get(key, {})
    if not isinstance(lines, Mapping) or not all(isinstance(name, str) and name for name in lines.values()):
        raise BadSettings(f"{where}.{key}", 'is not a section of lines asset = "name"')
    return {canonical(written, f"{where}.{key}"): name for written, name in lines.items()}


def contract_of(asset: Asset, chains: Mapping[str, str]) -> tuple[str, str] | None:
    """The name of an asset's chain and its contract, where vendors may list it by these."""
    listed = asset.kind in FUNGIBLE and not asset.token_id and asset.chain in chains
    return (chains[asset.chain], asset.reference) if listed else None


def decoded(body: bytes | msgspec.Raw, kind: type[T]) -> T:
    """JSON of a shape; ValueError says what is wrong with it."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None


def number(raw: msgspec.Raw | str) -> Decimal:
    """A JSON number, digit by digit; ValueError for text, for null, and for what no price has room for."""
    digits = raw if isinstance(raw, str) else bytes(raw).decode()
    if not _NUMBER.match(digits):
        raise ValueError(f"{digits[:40]} is no plain number")
    return Decimal(digits)


def fault(told: Told | ToldOfMarket, block: Block, max_age_s: int, least: Decimal = MIN_CONFIDENCE) -> str:
    """Why what was told is no price at a block; empty where it is one."""
    age_s = block.time_us // 1_000_000 - told.time_s
    if not told.usd > 0:
        return f"the price is not above zero: {told.usd:.40}" if told.usd else "the price is zero"
    if age_s < 0:
        return f"the price was seen {-age_s} s after the block"
    if age_s > max_age_s:
        return f"the price is stale: seen {age_s} s before the block, {max_age_s} s are allowed"
    if not 0 <= told.confidence <= 1:
        return f"the confidence is not between 0 and 1: {told.confidence}"
    if told.confidence < least:
        return f"the vendor is not sure of it: confidence {told.confidence}, {least} is the least"
    return ""


def quotes(source: str, outcomes: Iterable[Price | Refusal | None]) -> Quotes:
    """Outcomes as quotes of a source; None is an asset that the vendor does not know."""
    found = list(outcomes)
    return Quotes(
        tuple(each for each in found if isinstance(each, Price)),
        tuple(each for each in found if isinstance(each, Refusal)),
    )


def listed(asset: Asset, coins: Collection[Asset], chains: Mapping[str, str]) -> bool | None:
    """Whether a vendor knows an asset: that it names it is certain, that it lists a contract is not."""
    if asset in coins:
        return True
    return None if contract_of(asset, chains) else False


def told_of(source: str, batch: Any, keys: Mapping[Asset, Any], block: Block, max_age_s: int) -> Plan[Any, Any, Quotes]:
    """What a vendor says of some assets at a block, in one round: `keys` are what its batch calls them then."""
    if not keys:
        return Quotes()
    reads = {asset: BatchedRead(batch, key) for asset, key in keys.items()}
    told = yield list(reads.values())
    said = zip(reads.items(), told, strict=True)
    return quotes(source, (outcome(source, asset, read, each, block, max_age_s) for (asset, read), each in said))


def outcome(
    source: str,
    asset: Asset,
    read: BatchedRead,
    told: Told | ToldOfMarket | Unknown | None,
    block: Block,
    max_age_s: int,
) -> Price | Refusal | None:
    """The price that a vendor's answer is, or why it is none; None where the vendor does not know the asset."""
    if told is None:
        return None
    if isinstance(told, Unknown):
        return Refusal(asset, source, told.reason)
    wrong = fault(told, block, max_age_s)
    if wrong:
        return Refusal(asset, source, wrong)
    calls = (ReadResult(read, told),)
    depth_usd = told.depth_usd if isinstance(told, ToldOfMarket) else None
    return Price(asset, told.usd, source, told.time_s * 1_000_000, told.confidence, "", calls, depth_usd)
