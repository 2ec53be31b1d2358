"""Prices from Chainlink feeds, read at the same block as the balances: one round, two reads a feed.

On a chain with a sequencer its uptime feed is read in the same round: while the sequencer is down, and for a while
after it, feeds stand still and the market does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from chainfolio.assets import Asset, evm
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.errors import BadRequest, BadSettings
from chainfolio.kinds import contract_calls
from chainfolio.plans import Plan, Unknown
from chainfolio.reads import Read, ReadResult
from pricing.fixed import canonical
from pricing.guards import Round, answer_fault, is_unread, round_fault
from pricing.quotes import PriceSection, Quotes, Refusal, by_chain

SOURCE: Final = "chainlink"
KIND: Final = "evm"  # of the chains on which feeds stand
LATEST: Final = "latestRoundData()(uint80,int256,uint256,uint256,uint80)"
DECIMALS: Final = "decimals()(uint8)"
SEQUENCER: Final = "sequencer"
MAX_DECIMALS: Final = 36
FRESH: Final = Decimal(1)


@dataclass(frozen=True, slots=True)
class Feed:
    """An "X / USD" feed and what the settings say about it. `heartbeat_s` is the longest time between two updates."""

    asset: Asset
    feed: str
    decimals: int
    heartbeat_s: int

    @property
    def reads(self) -> tuple[Read, Read]:
        """Its latest round, and its decimals."""
        call = contract_calls(KIND)
        return call(self.feed, LATEST), call(self.feed, DECIMALS)


@dataclass(frozen=True, slots=True)
class Sequencer:
    """The feed that tells whether the chain's sequencer is up (0) or down (1), and since when; `grace_s` is how long
    no feed is believed after it came back."""

    feed: str
    grace_s: int

    @property
    def read(self) -> Read:
        """Its latest round."""
        read: Read = contract_calls(KIND)(self.feed, LATEST)
        return read

    def fault(self, said: Any, block: Block) -> str:
        """Why no feed of the chain is believed at a block; empty where they are. Before the feed was there, nobody
        could know."""
        if isinstance(said, Unknown) and said.cause == "absent":
            return ""
        if fault := answer_fault("latest round", said):
            return f"whether the sequencer is up is not known: {fault}"
        _, status, since_s, _, _ = said
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
        """Whether an asset has a feed."""
        return asset in self.feeds

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Any, Any, Quotes]:
        """A price, or the reason for none, for each asset that has a feed."""
        feeds = [self.feeds[known] for known in assets if known in self.feeds]
        if not feeds:
            return Quotes()
        uptime = [self.sequencer.read] if self.sequencer else []
        answers = yield [*(read for feed in feeds for read in feed.reads), *uptime]
        fault, shown, said = "", list[ReadResult](), None
        if self.sequencer:
            *answers, said = answers
            fault = self.sequencer.fault(said, block)
            shown = [] if isinstance(said, Unknown) else [ReadResult(self.sequencer.read, said)]
        outcomes = [
            Refusal(feed.asset, SOURCE, f"{fault} (feed {self.sequencer.feed})", is_unread(said))
            if fault and self.sequencer
            else _outcome(feed, latest, decimals, block, shown)
            for feed, latest, decimals in zip(feeds, answers[::2], answers[1::2], strict=True)
        ]
        return Quotes(
            tuple(outcome for outcome in outcomes if isinstance(outcome, Price)),
            tuple(outcome for outcome in outcomes if isinstance(outcome, Refusal)),
        )


def _outcome(feed: Feed, latest: Any, decimals: Any, block: Block, shown: Sequence[ReadResult]) -> Price | Refusal:
    fault = answer_fault("latest round", latest) or answer_fault("decimals", decimals)
    if fault:
        return Refusal(feed.asset, SOURCE, f"{fault} (feed {feed.feed})", is_unread(latest) or is_unread(decimals))
    round_id, answer, _, updated_s, answered_in = latest
    block_s = block.time_us // 1_000_000
    seen = Round(round_id, answer, updated_s, answered_in, feed.decimals, decimals, feed.heartbeat_s, block_s)
    detail = f"feed {feed.feed} round {round_id}"
    fault = round_fault(seen)
    if fault:
        return Refusal(feed.asset, SOURCE, f"{fault} ({detail})")
    calls = (*map(ReadResult, feed.reads, (latest, decimals)), *shown)
    return Price(feed.asset, seen.usd, SOURCE, updated_s * 1_000_000, FRESH, detail, calls)


def chainlink(section: Mapping[str, Any], where: str) -> Chainlink:
    """The source behind `asset = {feed, decimals, heartbeat_s}` lines, and `sequencer = {feed, grace_s}`; `where` is
    what a BadSettings calls them."""
    uptime = _sequencer(section[SEQUENCER], where) if SEQUENCER in section else None
    feeds = {canonical(written, where): facts for written, facts in section.items() if written != SEQUENCER}
    if len({known.chain for known in feeds if not known.is_native}) > 1:
        raise BadSettings(where, "assets of several chains", remedy="a feed prices tokens of the chain it stands on")
    return Chainlink({known: _feed(known, facts, where) for known, facts in feeds.items()}, sequencer=uptime)


def _sequencer(facts: Any, where: str) -> Sequencer:
    if not isinstance(facts, Mapping) or facts.keys() != {"feed", "grace_s"}:
        raise BadSettings(where, f"{SEQUENCER} needs exactly feed and grace_s")
    grace_s = _whole(facts["grace_s"], 0, 7 * 86_400, f"grace_s of {SEQUENCER}", where)
    return Sequencer(_address(facts["feed"], SEQUENCER, where), grace_s)


def _feed(known: Asset, facts: Any, where: str) -> Feed:
    if not isinstance(facts, Mapping) or facts.keys() != {"feed", "decimals", "heartbeat_s"}:
        raise BadSettings(where, f"{known} needs exactly feed, decimals and heartbeat_s")
    address = _address(facts["feed"], str(known), where)
    decimals = _whole(facts["decimals"], 0, MAX_DECIMALS, f"decimals of {known}", where)
    heartbeat_s = _whole(facts["heartbeat_s"], 1, 366 * 86_400, f"heartbeat_s of {known}", where)
    return Feed(known, address, decimals, heartbeat_s)


def _address(written: Any, known: str, where: str) -> str:
    try:
        address = evm(written) if isinstance(written, str) else ""
    except BadRequest:
        address = ""
    if not address or address != written:
        raise BadSettings(where, f"the feed of {known} is not an address", remedy="0x and 40 hex digits in lower case")
    return address


def _whole(value: Any, least: int, most: int, what: str, where: str) -> int:
    if type(value) is not int or not least <= value <= most:
        raise BadSettings(where, f"{what} is {value!r}, not a whole number from {least} to {most}")
    return value


SECTION = PriceSection(by_chain(chainlink), kinds=(KIND,))
