"""Prices that Pyth stores in accounts on Solana, read together with the wallet and without a vendor.

The account of a feed has the address that Pyth's own program derives from the feed's id, and that program only replaces
a price by a newer one. Accounts of the receiver that others wrote are not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.errors import BadSettings
from chainfolio.plans import Unknown, read_all
from chainfolio.price_sources import PricePlan, PriceSection, Quotes, Refusal, Section, by_chain, parse_asset
from chainfolio.pricing.programs import KIND, MAX_CLOCK_SKEW_S, Record, account_read, derive_address, parse_address
from chainfolio.pricing.pyth import pyth_quote
from chainfolio.pricing.vendors import check_keys, collect_quotes, quote_fault, seconds
from chainfolio.reads import ContractRead, ReadResult

SOURCE: Final = "pyth_accounts"
MAX_AGE_S: Final = 120  # accounts are written once per minute, and when the price moves
FEED: Final = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True)
class PythAccounts:
    """Feeds by asset, as accounts of the program `receiver` at addresses of the program `push_oracle`."""

    receiver: str
    push_oracle: str
    shard: int
    feeds: Mapping[Asset, bytes]
    max_age_s: int = MAX_AGE_S
    name: str = SOURCE
    reads_chain_only: bool = True

    def knows(self, asset: Asset) -> bool:
        """Return True if the asset has a feed."""
        return asset in self.feeds

    def read(self, feed: bytes) -> ContractRead:
        """Return the read of the account of a feed."""
        address = derive_address(self.push_oracle, self.shard.to_bytes(2, "little"), feed)
        return account_read(self.receiver, "pyth_price", address)

    def prices(self, assets: Sequence[Asset], block: Block) -> PricePlan:
        """Return a price or a refusal for each asset with a feed, in one round."""
        priced = [asset for asset in assets if asset in self.feeds]
        if not priced:
            return Quotes()
        reads = [self.read(self.feeds[asset]) for asset in priced]
        accounts = yield from read_all(reads)
        return collect_quotes(self._outcome(*args, block) for args in zip(priced, reads, accounts, strict=True))

    def _outcome(self, asset: Asset, read: ContractRead, account: Record, block: Block) -> Price | Refusal:
        """Return the price; a refusal if the account is unread, another feed's, old, unsure or has no price."""
        if isinstance(account, Unknown):
            return Refusal(asset, SOURCE, account.reason)
        if account.feed != self.feeds[asset]:
            return Refusal(asset, SOURCE, "the account of the price is that of another feed")
        time_s = _observation_time(account.time_s, block)
        try:
            quote = pyth_quote(Decimal(account.price), Decimal(account.confidence), account.exponent, time_s)
        except ValueError as error:
            return Refusal(asset, SOURCE, f"Pyth's account has no price: {error}")
        if isinstance(quote, Unknown):
            return Refusal(asset, SOURCE, quote.reason)
        if fault := quote_fault(quote, block, self.max_age_s):
            return Refusal(asset, SOURCE, fault)
        calls = (ReadResult(read, account),)
        return Price(asset, quote.usd, SOURCE, quote.time_s * 1_000_000, quote.confidence, "", calls)


def _observation_time(time_s: int, block: Block) -> int:
    """Return the time of a price, at most that of the block if the price is only a little newer.

    Accounts are read shortly after the block, whose clock may be slow.
    """
    block_s = block.time_us // 1_000_000
    return block_s if block_s < time_s <= block_s + MAX_CLOCK_SKEW_S else time_s


def _build(section: Section, location: str) -> PythAccounts:
    """Build the source, an empty one without a section; raise BadSettings for invalid keys."""
    if not section:
        return PythAccounts("", "", 0, {})
    check_keys(section, location, ("receiver", "push_oracle", "shard", "max_age_s", "feeds"))
    shard, lines = section.get("shard", 0), section.get("feeds", {})
    if type(shard) is not int or not 0 <= shard < 2**16:
        raise BadSettings(location, f"shard is {shard!r:.40}, not a whole number below 65536")
    if not isinstance(lines, Mapping) or not all(isinstance(feed, str) and FEED.match(feed) for feed in lines.values()):
        fault = 'feeds is not a section of lines asset = "feed"'
        raise BadSettings(location, fault, remedy="64 hex digits in lower case")
    return PythAccounts(
        parse_address(section, "receiver", location),
        parse_address(section, "push_oracle", location),
        shard,
        {parse_asset(text, location): bytes.fromhex(feed) for text, feed in lines.items()},
        seconds(section, location, "max_age_s", MAX_AGE_S),
    )


SECTION = PriceSection(by_chain(_build), kinds=(KIND,))
