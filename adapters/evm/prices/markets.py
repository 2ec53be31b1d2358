"""Markets on chain: the price of a token in a pool, and the rules by which that price is trusted.

All numbers are raw units, as exact fractions. A price is trusted if the pool could pay enough, if the price is close to
that of the parent block, and if it is close to the pool's own average, if it keeps one. A transaction can manipulate
its own block, but not the block before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, Protocol

from chainfolio.plans import Unknown
from chainfolio.pool_prices import percent_apart, ratio
from chainfolio.reads import ContractRead

CONFIDENCE_WITH_AVERAGE: Final = Decimal("0.9")
CONFIDENCE_WITHOUT_AVERAGE: Final = Decimal("0.7")  # only the parent block can be compared
MAX_SIDE_RATIO: Final = 10  # a pool may pay at most this many times what it could sell


@dataclass(frozen=True, slots=True)
class Pair:
    """The addresses of a token to be priced, and of the trusted token that it is priced in."""

    token: str
    quote: str

    @property
    def token_is_first(self) -> bool:
        """True if the token has the lower address; pools order their tokens by address."""
        return int(self.token, 16) < int(self.quote, 16)

    @property
    def ordered(self) -> tuple[str, str]:
        """Both addresses, the lower one first."""
        return (self.token, self.quote) if self.token_is_first else (self.quote, self.token)

    def quote_per_token(self, second_per_first: Fraction) -> Fraction:
        """Return the price of the token, given the price of the pool's first token in its second."""
        return second_per_first if self.token_is_first else 1 / second_per_first


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool of a pair.

    Attributes:
        label: Names the pool for users.
        key: Identifies the pool for its venue: an address, or a type of the venue.
    """

    pair: Pair
    label: str
    key: Any


@dataclass(frozen=True, slots=True)
class PoolState:
    """A pool at one block: the price of the token in the quote, and the quote that the pool could pay."""

    price: Fraction
    depth: int


@dataclass(frozen=True, slots=True)
class Market:
    """A pool at a block and at its parent (None: unknown there), with its average price if it keeps one."""

    current: PoolState
    parent: PoolState | None
    average: Fraction | None = None

    @property
    def depth(self) -> int:
        """The most that the pool could pay, without what was added in this block; 0 without a parent."""
        return min(self.current.depth, self.parent.depth) if self.parent else 0

    @property
    def confidence(self) -> Decimal:
        """The confidence of the price, from 0 to 1."""
        return CONFIDENCE_WITHOUT_AVERAGE if self.average is None else CONFIDENCE_WITH_AVERAGE

    def fault(self, max_move: Fraction) -> str:
        """Return the reason why the price is not trusted; empty if it is. Without a parent it is not trusted.

        Args:
            max_move: Largest factor between the price and that of the parent, or the average.
        """
        if self.parent is None:
            return "how it was before the block is not known"
        price = self.current.price
        if ratio(price, self.parent.price) > max_move:
            return f"its price moved by {percent_apart(price, self.parent.price)} within the block: manipulated?"
        if self.average is not None and ratio(price, self.average) > max_move:
            return f"its price is {percent_apart(price, self.average)} away from its average: manipulated?"
        return ""


def two_sided_state(price: Fraction, payable: int, sellable: int) -> PoolState:
    """Return the state of a pool of concentrated liquidity.

    The depth is limited to `MAX_SIDE_RATIO` times the value of what the pool could sell. A pool that sells nothing is
    only a bid: a bid far below the value of a token costs nothing, and no buyer can correct it.

    Args:
        price: Price of the token in the quote.
        payable: Amount of the quote that the pool could pay.
        sellable: Amount of the token that it could sell.
    """
    return PoolState(price, min(payable, int(MAX_SIDE_RATIO * sellable * price)))


class Venue(Protocol):
    """A kind of pools, with the contracts that list them on one chain."""

    @property
    def name(self) -> str:
        """The name that prices show."""

    def lookups(self, pair: Pair) -> Sequence[ContractRead]:
        """Return the reads that find the pools of a pair."""

    def pools(self, pair: Pair, results: Sequence[object]) -> Sequence[Pool]:
        """Return the pools of a pair, given the results of `lookups`; empty if there are none."""

    def reads(self, pool: Pool) -> Sequence[ContractRead]:
        """Return the reads of a pool's state, now and at the parent block."""

    def market(self, pool: Pool, results: Sequence[object]) -> Market | None:
        """Return the market of a pool, given the results of `reads`.

        None if it has no price, for example if empty.
        """


def first_read_error(results: Sequence[object]) -> str:
    """Return the reason of the first read that failed; empty if the chain answered all reads."""
    return next((r.reason for r in results if isinstance(r, Unknown) and r.cause == "read"), "")


def is_contract(result: object) -> bool:
    """Return True if a read returned an address other than zero."""
    return isinstance(result, str) and int(result, 16) != 0


def deepest_market(markets: Mapping[Pool, Market], floors: Mapping[str, int]) -> tuple[Pool, Market] | None:
    """Return the market with the largest depth in relation to the floor of its quote.

    None if each one is below its floor.

    Args:
        markets: Markets by pool.
        floors: The least depth by quote token. Markets in other tokens are ignored.
    """
    with_floor = [(floors[pool.pair.quote], pool, each) for pool, each in markets.items() if pool.pair.quote in floors]
    deep = [(Fraction(each.depth, floor), pool, each) for floor, pool, each in with_floor if each.depth >= floor]
    if not deep:
        return None
    _, pool, market = max(deep, key=lambda candidate: (candidate[0], candidate[1].label))
    return pool, market
