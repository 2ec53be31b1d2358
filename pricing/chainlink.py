"""Prices from Chainlink feeds, read at the same block as the balances: one round, two reads a feed."""

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
from chainfolio.plans import Plan
from chainfolio.reads import Read, ReadResult
from pricing.fixed import canonical
from pricing.guards import Round, answer_fault, round_fault
from pricing.quotes import PriceSection, Quotes, Refusal

SOURCE: Final = "chainlink"
KIND: Final = "evm"  # of the chains on which feeds stand
LATEST: Final = "latestRoundData()(uint80,int256,uint256,uint256,uint80)"
DECIMALS: Final = "decimals()(uint8)"
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
class Chainlink:
    """The feeds of one chain."""

    feeds: Mapping[Asset, Feed]
    name: str = SOURCE

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Any, Any, Quotes]:
        """A price, or the reason for none, for each asset that has a feed."""
        feeds = [self.feeds[known] for known in assets if known in self.feeds]
        if not feeds:
            return Quotes()
        answers = yield [read for feed in feeds for read in feed.reads]
        outcomes = [
            _outcome(feed, latest, decimals, block)
            for feed, latest, decimals in zip(feeds, answers[::2], answers[1::2], strict=True)
        ]
        return Quotes(
            tuple(outcome for outcome in outcomes if isinstance(outcome, Price)),
            tuple(outcome for outcome in outcomes if isinstance(outcome, Refusal)),
        )


def _outcome(feed: Feed, latest: Any, decimals: Any, block: Block) -> Price | Refusal:
    fault = answer_fault("latest round", latest) or answer_fault("decimals", decimals)
    if fault:
        return Refusal(feed.asset, SOURCE, f"{fault} (feed {feed.feed})")
    round_id, answer, _, updated_s, answered_in = latest
    block_s = block.time_us // 1_000_000
    seen = Round(round_id, answer, updated_s, answered_in, feed.decimals, decimals, feed.heartbeat_s, block_s)
    detail = f"feed {feed.feed} round {round_id}"
    fault = round_fault(seen)
    if fault:
        return Refusal(feed.asset, SOURCE, f"{fault} ({detail})")
    calls = tuple(map(ReadResult, feed.reads, (latest, decimals)))
    return Price(feed.asset, seen.usd, SOURCE, updated_s * 1_000_000, FRESH, detail, calls)


def chainlink(section: Mapping[str, Any], where: str) -> Chainlink:
    """The source behind `asset = {feed, decimals, heartbeat_s}` lines; `where` is what a BadSettings calls them."""
    feeds = {canonical(written, where): facts for written, facts in section.items()}
    if len({known.chain for known in feeds if not known.is_native}) > 1:
        raise BadSettings(where, "assets of several chains", remedy="a feed prices tokens of the chain it stands on")
    return Chainlink({known: _feed(known, facts, where) for known, facts in feeds.items()})


def _feed(known: Asset, facts: Any, where: str) -> Feed:
    if not isinstance(facts, Mapping) or facts.keys() != {"feed", "decimals", "heartbeat_s"}:
        raise BadSettings(where, f"{known} needs exactly feed, decimals and heartbeat_s")
    try:
        address = evm(facts["feed"]) if isinstance(facts["feed"], str) else ""
    except BadRequest:
        address = ""
    if not address or address != facts["feed"]:
        raise BadSettings(where, f"the feed of {known} is not an address", remedy="0x and 40 hex digits in lower case")
    decimals = _whole(facts["decimals"], 0, MAX_DECIMALS, f"decimals of {known}", where)
    heartbeat_s = _whole(facts["heartbeat_s"], 1, 366 * 86_400, f"heartbeat_s of {known}", where)
    return Feed(known, address, decimals, heartbeat_s)


def _whole(value: Any, least: int, most: int, what: str, where: str) -> int:
    if type(value) is not int or not least <= value <= most:
        raise BadSettings(where, f"{what} is {value!r}, not a whole number from {least} to {most}")
    return value


def _of_chain(section: Mapping[str, Any], chain: str, where: str) -> Chainlink:
    of_chain = section.get(chain, {})
    if not isinstance(of_chain, Mapping):
        raise BadSettings(f"{where}.{chain}", "is not a section")
    return chainlink(of_chain, f"{where}.{chain}")


SECTION = PriceSection(_of_chain, kinds=(KIND,))
