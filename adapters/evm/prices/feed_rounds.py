"""Reject rounds of price feeds that are malformed, stale or out of range.

Each function returns the reason for a rejection as users read it, or an empty string if there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from chainfolio import amounts
from chainfolio.plans import Reverted, Unknown
from chainfolio.price_sources import MAX_USD, MIN_USD

# A feed is updated once its heartbeat is over, and the update is mined later: a tenth more is late, not stale.
LATE_PERCENT: Final = 10


@dataclass(frozen=True, slots=True)
class FeedRound:
    """The latest round of a feed (`latestRoundData`), with the feed's settings and the time of the block.

    Attributes:
        decimals: Decimals of the answer according to the settings.
        feed_decimals: Decimals of the answer according to the feed.
    """

    round_id: int
    answer: int
    updated_s: int
    answered_in_round: int
    decimals: int
    feed_decimals: int
    heartbeat_s: int
    block_s: int

    @property
    def usd(self) -> Decimal:
        """The answer in USD, exactly."""
        return amounts.EXACT.scaleb(Decimal(self.answer), -self.decimals)

    @property
    def age_s(self) -> int:
        """Age of the answer at the block; negative if it is newer than the block."""
        return self.block_s - self.updated_s


Rule = tuple[Callable[[FeedRound], bool], Callable[[FeedRound], str]]  # is it violated, and the reason

ROUND_RULES: Final[tuple[Rule, ...]] = (
    (
        lambda r: r.feed_decimals != r.decimals,
        lambda r: f"the feed has {r.feed_decimals} decimals, the settings say {r.decimals}",
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
        lambda r: 0 < r.answered_in_round < r.round_id,
        lambda r: f"the feed carries an answer of round {r.answered_in_round} into round {r.round_id}",
    ),
    (lambda r: r.usd > MAX_USD, lambda r: f"the feed answers more than {MAX_USD:f} USD"),
    (lambda r: r.usd < MIN_USD, lambda r: f"the feed answers less than {MIN_USD:f} USD"),
)


def round_fault(feed_round: FeedRound) -> str:
    """Return the reason of the first rule that a round violates; empty if it violates none."""
    return next((reason(feed_round) for is_violated, reason in ROUND_RULES if is_violated(feed_round)), "")


def read_fault(subject: str, result: object) -> str:
    """Return the reason why a read of a feed has no value; empty if it has one.

    `subject` names what was read.
    """
    if isinstance(result, Reverted):
        return f"the feed refused to tell its {subject}"
    if isinstance(result, Unknown):
        return f"the feed's {subject} could not be read: {result.reason}"
    return ""


def is_unread(result: object) -> bool:
    """Return True if a read itself failed, which says nothing about the contract."""
    return isinstance(result, Unknown) and result.cause == "read"
