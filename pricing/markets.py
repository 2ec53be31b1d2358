"""What a market on chain says of the price of a token in another one, and when it is believed.

Everything here is in raw units, as exact fractions. A market is believed where it could pay enough, where its price
stood before the block began, and where it stood on average if it keeps an average: what one transaction can do to a
pool, it cannot have done to the block before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, Protocol

from chainfolio.plans import Unknown
from chainfolio.reads import AtParent, Read

WITH_MEAN: Final = Decimal("0.9")
WITHOUT_MEAN: Final = Decimal("0.7")  # the block before is all that there is to compare with
SIDES: Final = 10  # so many times what it could sell a pool may pay


@dataclass(frozen=True, slots=True)
class Pair:
    """A token to be priced, and the trusted token that it is priced in: their addresses."""

    token: str
    quote: str

    @property
    def first(self) -> bool:
        """Whether the token is the first of the two, as pools order them: by number."""
        return int(self.token, 16) < int(self.quote, 16)

    @property
    def ordered(self) -> tuple[str, str]:
        """Both, as pools order them."""
        return (self.token, self.quote) if self.first else (self.quote, self.token)

    def price(self, second_per_first: Fraction) -> Fraction:
        """How much of the quote one unit of the token costs, by what a unit of the first costs in the second."""
        return second_per_first if self.first else 1 / second_per_first


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool of a pair. `label` says which, in a user's words; `at` is what its venue asks for it by."""

    pair: Pair
    label: str
    at: Any


@dataclass(frozen=True, slots=True)
class State:
    """A pool at one moment: the price of the token in the quote, and how much of the quote it could pay at most."""

    price: Fraction
    depth: int


@dataclass(frozen=True, slots=True)
class Market:
    """A pool at a block and as the block began (None: there was none), with its average price if it keeps one."""

    now: State
    before: State | None
    mean: Fraction | None = None

    @property
    def depth(self) -> int:
        """What it could pay, not counting what came in this very block."""
        return min(self.now.depth, self.before.depth) if self.before else 0

    @property
    def confidence(self) -> Decimal:
        """How sure its price is."""
        return WITHOUT_MEAN if self.mean is None else WITH_MEAN

    def fault(self, max_move: Fraction) -> str:
        """Why its price is not believed, if it may differ by a factor of `max_move` from what it was; else empty."""
        if self.before is None:
            return "how it was before the block is not known"
        if factor(self.now.price, self.before.price) > max_move:
            return f"its price moved by {percent(self.now.price, self.before.price)} within the block: manipulated?"
        if self.mean is not None and factor(self.now.price, self.mean) > max_move:
            return f"its price is {percent(self.now.price, self.mean)} away from its average: manipulated?"
        return ""


def two_sided(price: Fraction, paid: int, sold: int) -> State:
    """A pool of concentrated liquidity that could pay so much of the quote and sell so much of the token. What it could
    pay counts as far as it has some of the token beside it: a price at which nothing is sold is only a bid, which costs
    nothing far below what the token is worth, and which nobody can correct by buying."""
    return State(price, min(paid, int(SIDES * sold * price)))


class Venue(Protocol):
    """One kind of pools, with the contracts that know them on one chain."""

    @property
    def name(self) -> str:
        """What prices name it by."""

    def lookups(self, pair: Pair) -> Sequence[Read]:
        """What to ask where the pools of a pair lie."""

    def pools(self, pair: Pair, answers: Sequence[Any]) -> Sequence[Pool]:
        """The pools of a pair, from the answers; none where there are none."""

    def reads(self, pool: Pool) -> Sequence[Read | AtParent]:
        """What to ask of a pool."""

    def market(self, pool: Pool, answers: Sequence[Any]) -> Market | None:
        """What a pool says; None where it has no price, as an empty one."""


def unread(answers: Sequence[Any]) -> str:
    """Why some answers say nothing of the chain: the first read that failed. Empty where all were answered."""
    return next((each.reason for each in answers if isinstance(each, Unknown) and each.cause == "read"), "")


def is_there(answer: Any) -> bool:
    """Whether a factory named a contract."""
    return isinstance(answer, str) and int(answer, 16) != 0


def deepest(markets: Mapping[Pool, Market], floors: Mapping[str, int]) -> tuple[Pool, Market] | None:
    """The market that could pay most, measured by what one in its quote has to have; None where none has that."""
    known = [(floors[pool.pair.quote], pool, each) for pool, each in markets.items() if pool.pair.quote in floors]
    enough = [(Fraction(each.depth, floor), pool, each) for floor, pool, each in known if each.depth >= floor]
    if not enough:
        return None
    _, pool, market = max(enough, key=lambda each: (each[0], each[1].label))
    return pool, market


def factor(one: Fraction, other: Fraction) -> Fraction:
    """By how many times two positive numbers differ."""
    return max(one, other) / min(one, other)


def percent(one: Fraction, other: Fraction) -> str:
    """By how much a number differs from another one, in words."""
    return f"{min(abs(100 * (one - other) / other), Fraction(10**6)).__ceil__()} %"
