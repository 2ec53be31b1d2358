"""Prices from Chainlink feeds, read at the same block as the balances: one round, two reads per feed.

On a chain with a sequencer its uptime feed is read in the same round. While the sequencer is down, and for some time
after that, feeds are not updated although the market moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from chainfolio.adapters.evm.prices.feed_rounds import FeedRound, is_unread, read_fault, round_fault
from chainfolio.adapters.evm.prices.section import KIND, parse_contract
from chainfolio.adapters.evm.reads import DECIMALS, Call
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.errors import BadSettings
from chainfolio.plans import Unknown, read_all
from chainfolio.price_sources import PricePlan, PriceSection, Quotes, Refusal, Section, by_chain, parse_asset
from chainfolio.reads import ContractRead, ReadResult

SOURCE: Final = "chainlink"
LATEST: Final = "latestRoundData()(uint80,int256,uint256,uint256,uint80)"
SEQUENCER: Final = "sequencer"
MAX_DECIMALS: Final = 36
CERTAIN: Final = Decimal(1)


@dataclass(frozen=True, slots=True)
class Feed:
    """A feed "X / USD" with its settings. `heartbeat_s` is the longest time between two updates."""

    asset: Asset
    feed: str
    decimals: int
    heartbeat_s: int

    @property
    def reads(self) -> tuple[ContractRead, ContractRead]:
        """The reads of the latest round, and of the decimals."""
        return Call(self.feed, LATEST), Call(self.feed, DECIMALS)


@dataclass(frozen=True, slots=True)
class Sequencer:
    """The uptime feed of a chain's sequencer: up (0) or down (1), and since when.

    Attributes:
        grace_s: Time after a restart during which no feed is used.
    """

    feed: str
    grace_s: int

    @property
    def read(self) -> ContractRead:
        """The read of the latest round."""
        return Call(self.feed, LATEST)

    def fault(self, latest_round: Any, block: Block) -> str:
        """Return the reason why no feed of the chain is used at a block.

        Empty if the feeds are used, also at blocks from before the uptime feed was deployed.
        """
        if isinstance(latest_round, Unknown) and latest_round.cause == "absent":
            return ""
        if fault := read_fault("latest round", latest_round):
            return f"whether the sequencer is up is not known: {fault}"
        _, status, since_s, _, _ = latest_round
        up_s = block.time_us // 1_000_000 - since_s
        if status != 0:
            return "the sequencer is down" if status == 1 else f"the sequencer's feed answers {status}, not 0 or 1"
        if since_s == 0:
            return "the sequencer's feed has no round yet"
        if up_s < 0:
            return f"the sequencer's feed is dated {-up_s} s after the block"
        return f"the sequencer is up for {up_s} s only, {self.grace_s} s are waited for" if up_s <= self.grace_s else ""


@dataclass(frozen=True, slots=True)
class Chainlink:
    """The feeds of one chain."""

    feeds: Mapping[Asset, Feed]
    name: str = SOURCE
    reads_chain_only: bool = True
    sequencer: Sequencer | None = None

    def knows(self, asset: Asset) -> bool:
        """Return True if the asset has a feed."""
        return asset in self.feeds

    def prices(self, assets: Sequence[Asset], block: Block) -> PricePlan:
        """Return a price or a refusal for each asset with a feed, in one round; other assets are left out.

        All are refused if the sequencer is down, was restarted a short time ago, or its feed is unread or malformed.
        """
        feeds = [self.feeds[asset] for asset in assets if asset in self.feeds]
        if not feeds:
            return Quotes()
        uptime_reads = [self.sequencer.read] if self.sequencer else []
        results = yield from read_all([*(read for feed in feeds for read in feed.reads), *uptime_reads])
        fault, uptime_calls, uptime = "", list[ReadResult](), None
        if self.sequencer:
            *results, uptime = results
            fault = self.sequencer.fault(uptime, block)
            uptime_calls = [] if isinstance(uptime, Unknown) else [ReadResult(self.sequencer.read, uptime)]
        outcomes = [
            Refusal(feed.asset, SOURCE, f"{fault} (feed {self.sequencer.feed})", is_unread(uptime))
            if fault and self.sequencer
            else _outcome(feed, latest, decimals, block, uptime_calls)
            for feed, latest, decimals in zip(feeds, results[::2], results[1::2], strict=True)
        ]
        return Quotes(
            tuple(outcome for outcome in outcomes if isinstance(outcome, Price)),
            tuple(outcome for outcome in outcomes if isinstance(outcome, Refusal)),
        )


def _outcome(
    feed: Feed, latest: Any, decimals: Any, block: Block, uptime_calls: Sequence[ReadResult]
) -> Price | Refusal:
    """Return a feed's price, or the refusal if a read failed or the round is old or invalid."""
    fault = read_fault("latest round", latest) or read_fault("decimals", decimals)
    if fault:
        return Refusal(feed.asset, SOURCE, f"{fault} (feed {feed.feed})", is_unread(latest) or is_unread(decimals))
    round_id, answer, _, updated_s, answered_in_round = latest
    feed_round = FeedRound(
        round_id,
        answer,
        updated_s,
        answered_in_round,
        feed.decimals,
        decimals,
        feed.heartbeat_s,
        block.time_us // 1_000_000,
    )
    detail = f"feed {feed.feed} round {round_id}"
    fault = round_fault(feed_round)
    if fault:
        return Refusal(feed.asset, SOURCE, f"{fault} ({detail})")
    calls = (*map(ReadResult, feed.reads, (latest, decimals)), *uptime_calls)
    return Price(feed.asset, feed_round.usd, SOURCE, updated_s * 1_000_000, CERTAIN, detail, calls)


def build_chainlink(section: Section, location: str) -> Chainlink:
    """Build the source from lines `asset = {feed, decimals, heartbeat_s}`, and `sequencer` if present.

    Raises:
        BadSettings: A line is malformed, or the assets are of several chains.
    """
    uptime = _parse_sequencer(section[SEQUENCER], location) if SEQUENCER in section else None
    lines = {parse_asset(text, location): line for text, line in section.items() if text != SEQUENCER}
    if len({asset.chain for asset in lines if not asset.is_native}) > 1:
        raise BadSettings(location, "assets of several chains", remedy="a feed prices tokens of the chain it stands on")
    return Chainlink({asset: _parse_feed(asset, line, location) for asset, line in lines.items()}, sequencer=uptime)


def _parse_sequencer(line: object, location: str) -> Sequencer:
    if not isinstance(line, Mapping) or line.keys() != {"feed", "grace_s"}:
        raise BadSettings(location, f"{SEQUENCER} needs exactly feed and grace_s")
    grace_s = _whole_number(line["grace_s"], 0, 7 * 86_400, f"grace_s of {SEQUENCER}", location)
    return Sequencer(parse_contract(line["feed"], f"the feed of {SEQUENCER}", location), grace_s)


def _parse_feed(asset: Asset, line: object, location: str) -> Feed:
    """Return the feed of one line of the settings; BadSettings for missing, unknown or wrong values."""
    if not isinstance(line, Mapping) or line.keys() != {"feed", "decimals", "heartbeat_s"}:
        raise BadSettings(location, f"{asset} needs exactly feed, decimals and heartbeat_s")
    address = parse_contract(line["feed"], f"the feed of {asset}", location)
    decimals = _whole_number(line["decimals"], 0, MAX_DECIMALS, f"decimals of {asset}", location)
    heartbeat_s = _whole_number(line["heartbeat_s"], 1, 366 * 86_400, f"heartbeat_s of {asset}", location)
    return Feed(asset, address, decimals, heartbeat_s)


def _whole_number(value: object, minimum: int, maximum: int, subject: str, location: str) -> int:
    if type(value) is not int or not minimum <= value <= maximum:
        raise BadSettings(location, f"{subject} is {value!r}, not a whole number from {minimum} to {maximum}")
    return value


SECTION = PriceSection(by_chain(build_chainlink), kinds=(KIND,))
