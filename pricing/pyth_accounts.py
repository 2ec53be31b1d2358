"""Prices that Pyth keeps in accounts on Solana, read with the wallet: no vendor is asked.

The account of a feed is the one that Pyth's own program derives from the feed's number and replaces by newer prices
only. What anybody else wrote into an account of the receiver is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.errors import BadSettings
from chainfolio.plans import Plan, Unknown
from chainfolio.reads import Read, ReadResult
from pricing.fixed import canonical
from pricing.programs import AHEAD_S, KIND, account, address_of, derived
from pricing.pyth import told
from pricing.quotes import PriceSection, Quotes, Refusal, by_chain
from pricing.vendors import Told, checked, fault, quotes, seconds

SOURCE: Final = "pyth_accounts"
MAX_AGE_S: Final = 120  # they are written once a minute, and when the price moves
FEED: Final = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True)
class PythAccounts:
    """The feeds of some assets, as accounts of the `receiver` at addresses of the `push_oracle`."""

    receiver: str
    push_oracle: str
    shard: int
    feeds: Mapping[Asset, bytes]
    max_age_s: int = MAX_AGE_S
    name: str = SOURCE
    reads_chain_only: bool = True

    def knows(self, asset: Asset) -> bool:
        """Whether an asset has a feed."""
        return asset in self.feeds

    def read(self, feed: bytes) -> Read:
        """The account of a feed."""
        at = derived(self.push_oracle, self.shard.to_bytes(2, "little"), feed)
        return account(self.receiver, "pyth_price", at)

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Any, Any, Quotes]:
        """A price, or the reason for none, for each asset that has a feed."""
        known = [each for each in assets if each in self.feeds]
        if not known:
            return Quotes()
        reads = [self.read(self.feeds[each]) for each in known]
        said = yield reads
        return quotes(SOURCE, (self._outcome(*each, block) for each in zip(known, reads, said, strict=True)))

    def _outcome(self, asset: Asset, read: Read, said: Any, block: Block) -> Price | Refusal:
        if isinstance(said, Unknown):
            return Refusal(asset, SOURCE, said.reason)
        if said.feed != self.feeds[asset]:
            return Refusal(asset, SOURCE, "the account of the price is that of another feed")
        try:
            seen = told(Decimal(said.price), Decimal(said.interval), said.exponent, _time(said.time_s, block))
        except ValueError as error:
            return Refusal(asset, SOURCE, f"Pyth's account has no price: {error}")
        if isinstance(seen, Unknown):
            return Refusal(asset, SOURCE, seen.reason)
        return self._price(asset, seen, ReadResult(read, said), block)

    def _price(self, asset: Asset, seen: Told, call: ReadResult, block: Block) -> Price | Refusal:
        if wrong := fault(seen, block, self.max_age_s):
            return Refusal(asset, SOURCE, wrong)
        return Price(asset, seen.usd, SOURCE, seen.time_s * 1_000_000, seen.confidence, "", (call,))


def _time(seen_s: int, block: Block) -> int:
    """When a price was seen. Accounts are read a little after the block, whose clock may be slow: a price that is a
    little newer is of the block."""
    block_s = block.time_us // 1_000_000
    return block_s if block_s < seen_s <= block_s + AHEAD_S else seen_s


def _build(section: Mapping[str, Any], where: str) -> PythAccounts:
    if not section:
        return PythAccounts("", "", 0, {})
    checked(section, where, ("receiver", "push_oracle", "shard", "max_age_s", "feeds"))
    shard, lines = section.get("shard", 0), section.get("feeds", {})
    if type(shard) is not int or not 0 <= shard < 2**16:
        raise BadSettings(where, f"shard is {shard!r:.40}, not a whole number below 65536")
    if not isinstance(lines, Mapping) or not all(isinstance(each, str) and FEED.match(each) for each in lines.values()):
        raise BadSettings(where, 'feeds is not a section of lines asset = "feed"', remedy="64 hex digits in lower case")
    feeds = {canonical(written, where): bytes.fromhex(feed) for written, feed in lines.items()}
    max_age_s = seconds(section, where, "max_age_s", MAX_AGE_S)
    return PythAccounts(
        address_of(section, "receiver", where), address_of(section, "push_oracle", where), shard, feeds, max_age_s
    )


SECTION = PriceSection(by_chain(_build), kinds=(KIND,))
