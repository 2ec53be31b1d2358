"""Stable pools of Curve's factory "StableSwap NG", with their metapools: the price of the curve between two coins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from chainfolio.reads import AtParent, Read
from pricing.markets import Market, Pair, Pool, State, is_there
from pricing.venues import stable
from pricing.venues.section import Facts, call

FIND_POOL: Final = "find_pool_for_coins(address,address,uint256)(address)"
COINS: Final = "get_coins(address)(address[])"
BALANCES: Final = "get_balances()(uint256[])"
RATES: Final = "stored_rates()(uint256[])"
AMP: Final = "A()(uint256)"
MOST_POOLS: Final = 4


@dataclass(frozen=True, slots=True)
class CurveNG:
    """The pools of one factory, of which the first `most` of a pair are looked at."""

    name: str
    factory: str
    most: int

    def lookups(self, pair: Pair) -> Sequence[Read]:
        """The factory is asked for the first, the second, ..."""
        return [call(self.factory, FIND_POOL, (*pair.ordered, number)) for number in range(self.most)]

    def pools(self, pair: Pair, answers: Sequence[Any]) -> Sequence[Pool]:
        """Each once."""
        return [Pool(pair, f"{self.name} pool {at}", at) for at in dict.fromkeys(filter(is_there, answers))]

    def reads(self, pool: Pool) -> Sequence[Read | AtParent]:
        """Its coins; balances, rates and how flat the curve is, now and before."""
        state = [call(pool.at, function) for function in (BALANCES, RATES, AMP)]
        return [call(self.factory, COINS, (pool.at,)), *state, *map(AtParent, state)]

    def market(self, pool: Pool, answers: Sequence[Any]) -> Market | None:
        """The price of the curve; None where one of the two is a coin of the pool behind the pool."""
        coins, pair = answers[0], pool.pair
        if not (isinstance(coins, tuple) and pair.token in coins and pair.quote in coins):
            return None
        sides = coins.index(pair.token), coins.index(pair.quote)
        now, before = _state(sides, *answers[1:4]), _state(sides, *answers[4:])
        return Market(now, before) if now else None


def _state(sides: tuple[int, int], balances: Any, rates: Any, amp: Any) -> State | None:
    if not (isinstance(balances, tuple) and isinstance(rates, tuple) and isinstance(amp, int)):
        return None
    price = stable.price(balances, rates, Fraction(amp), *sides)
    return State(price, balances[sides[1]]) if price else None


def of(facts: Facts) -> CurveNG:
    """From the venue's section."""
    return CurveNG(facts.name, facts.address("factory"), facts.number("pools", MOST_POOLS, 32))
