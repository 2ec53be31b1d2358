"""What disqualifies a price. Pure tables of rules, read from the top: the first that holds is the reason given.

No price is better than a wrong one: a refused price leaves its holding unpriced and in sight, never at zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from chainfolio import amounts
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.plans import Reverted, Unknown
from pricing.quotes import Relative

MAX_USD: Final = Decimal(10**12)
MIN_USD: Final = Decimal("1E-18")
MAX_DIGITS: Final = 120  # what exact arithmetic has room for
MAX_DEPTH: Final = Decimal(10**24)  # USD: more than any market has

# Updates are sent when the heartbeat is over and mined after that: a tenth more is late, beyond it is stale.
LATE_PERCENT: Final = 10


@dataclass(frozen=True, slots=True)
class Round:
    """What a feed said (`latestRoundData`), beside what the settings say of it and the block it was read at."""

    round_id: int
    answer: int
    updated_s: int
    answered_in: int
    decimals: int
    told_decimals: int
    heartbeat_s: int
    block_s: int

    @property
    def usd(self) -> Decimal:
        """The answer as USD, exactly."""
        return amounts.EXACT.scaleb(Decimal(self.answer), -self.decimals)

    @property
    def age_s(self) -> int:
        """How old the answer was at the block."""
        return self.block_s - self.updated_s


Rule = tuple[Callable[[Round], bool], Callable[[Round], str]]

ROUND_RULES: Final[tuple[Rule, ...]] = (
    (
        lambda r: r.told_decimals != r.decimals,
        lambda r: f"the feed has {r.told_decimals} decimals, the settings say {r.decimals}",
    ),
    (lambda r: r.answer == 0, lambda r: "the feed answers zero"),
    (lambda r: r.answer < 0, lambda r: f"the feed answers a negative price: {r.answer}"),
    (lambda r: r.updated_s == 0, lambda r: "the feed's round is not complete"),
    (lambda r: r.age_s < 0, lambda r: f"the feed's answer is dated {-r.age_s} s after the block"),
    (
        lambda r: 100 * r.age_s > r.heartbeat_s * (100 + LATE_PERCENT),
        lambda r: f"the feed's answer is stale: {r.age_s} s old, its heartbeat is {r.heartbeat_s} s",
    ),
    # Current aggregators repeat the round here and some imitations leave it zero; a lower number is an old answer.
    (
        lambda r: 0 < r.answered_in < r.round_id,
        lambda r: f"the feed carries an answer of round {r.answered_in} into round {r.round_id}",
    ),
    (lambda r: r.usd > MAX_USD, lambda r: f"the feed answers more than {MAX_USD:f} USD"),
    (lambda r: r.usd < MIN_USD, lambda r: f"the feed answers less than {MIN_USD:f} USD"),
)


def round_fault(seen: Round) -> str:
    """Why this round is no price; empty where it is one."""
    return next((reason(seen) for holds, reason in ROUND_RULES if holds(seen)), "")


def answer_fault(what: str, answer: Any) -> str:
    """Why a read gave nothing to judge; empty where it did."""
    if isinstance(answer, Reverted):
        return f"the feed refused to tell its {what}"
    if isinstance(answer, Unknown):
        return f"the feed's {what} could not be read: {answer.reason}"
    return ""


def is_unread(answer: Any) -> bool:
    """Return True if a read itself failed, which says nothing about the contract."""
    return isinstance(answer, Unknown) and answer.cause == "read"


def source_fault(price: Price | Relative, source: str) -> str:
    """Why what a source returned is no price of its own, in USD or in other assets; empty where it is one."""
    typed = [("time_us", price.time_us, int), ("confidence", price.confidence, Decimal)]
    for what, value, kind in [("usd", price.usd, Decimal), *typed] if isinstance(price, Price) else typed:
        if not isinstance(value, kind):
            return f"the price's {what} is a {type(value).__name__}, not {'an' if kind is int else 'a'} {kind.__name__}"
    if isinstance(price, Price) and not isinstance(price.depth_usd, Decimal | None):
        return f"the price's depth_usd is a {type(price.depth_usd).__name__}, not a Decimal"
    return "" if price.source == source else f"the price names another source: {price.source!s:.100}"


def price_fault(price: Price, block: Block) -> str:
    """Why a price of whatever source cannot be used at a block; empty where it can."""
    if not price.usd.is_finite() or price.usd <= 0:
        return f"the price is not above zero: {price.usd}"
    if not MIN_USD <= price.usd <= MAX_USD:
        return f"the price is out of all proportion: {price.usd:.3E} USD"
    if len(price.usd.as_tuple().digits) > MAX_DIGITS:
        return f"the price has more than {MAX_DIGITS} digits"
    return _depth_fault(price.depth_usd) or told_fault(price, block)


def _depth_fault(depth_usd: Decimal | None) -> str:
    """Why what a market could pay is no bound of what something is worth; empty where it is one."""
    if depth_usd is None:
        return ""
    if not depth_usd.is_finite() or depth_usd < 0:
        return f"what its market could pay is no sum: {depth_usd}"
    if depth_usd and not MIN_USD <= depth_usd <= MAX_DEPTH:
        return f"what its market could pay is out of all proportion: {depth_usd:.3E} USD"
    is_long = len(depth_usd.as_tuple().digits) > MAX_DIGITS
    return f"what its market could pay has more than {MAX_DIGITS} digits" if is_long else ""


def told_fault(price: Price | Relative, block: Block) -> str:
    """Why what a source told of its price cannot be used at a block, whatever the price; empty where it can."""
    if price.time_us > block.time_us:
        return "the price is dated after the block"
    if not (price.confidence.is_finite() and 0 <= price.confidence <= 1):
        return f"the price's confidence is not between 0 and 1: {price.confidence}"
    return ""
