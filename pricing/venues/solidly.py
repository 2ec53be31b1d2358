"""Pools of Solidly's kind (Velodrome V2, Aerodrome): volatile ones trade as pairs, stable ones on a flatter curve.

Fees lie outside the reserves. What was sent to a pool without a trade is not in its reserves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from chainfolio.reads import AtParent, Read
from pricing.markets import Market, Pair, Pool, State, is_there
from pricing.venues.section import DECIMALS, Facts, call, scale

GET_POOL: Final = "getPool(address,address,bool)(address)"
RESERVES: Final = "getReserves()(uint256,uint256,uint256)"
CURVES: Final = {False: "volatile", True: "stable"}


@dataclass(frozen=True, slots=True)
class Solidly:
    """The pools of one factory: two for a pair at most."""

    name: str
    factory: str

    def lookups(self, pair: Pair) -> Sequence[Read]:
        """The factory is asked for both curves."""
        return [call(self.factory, GET_POOL, (*pair.ordered, stable)) for stable in CURVES]

    def pools(self, pair: Pair, answers: Sequence[Any]) -> Sequence[Pool]:
        """Those that there are."""
        return [
            Pool(pair, f"{self.name} {CURVES[stable]} pool {at}", (at, stable))
            for stable, at in zip(CURVES, answers, strict=True)
            if is_there(at)
        ]

    def reads(self, pool: Pool) -> Sequence[Read | AtParent]:
        """The reserves, now and before; of a stable pool also in which units they are."""
        at, stable = pool.at
        read = call(at, RESERVES)
        return [read, AtParent(read), *(call(token, DECIMALS) for token in pool.pair.ordered if stable)]

    def market(self, pool: Pool, answers: Sequence[Any]) -> Market | None:
        """The price at which the pool trades the next unit."""
        scales = [scale(each) for each in answers[2:]]
        if not all(scales):
            return None
        now, before = (_state(pool.pair, each, scales) for each in answers[:2])
        return Market(now, before) if now else None


def _state(pair: Pair, reserves: Any, scales: Sequence[int]) -> State | None:
    if not isinstance(reserves, tuple) or not all(reserves[:2]):
        return None
    first, second = reserves[:2]
    price = _stable(first, second, *scales) if scales else Fraction(second, first)
    return State(pair.price(price), second if pair.first else first)


def _stable(first: int, second: int, scale0: int, scale1: int) -> Fraction:
    """How much of the second the next unit of the first brings where x³y + y³x stays what it is."""
    x, y = Fraction(first, scale0), Fraction(second, scale1)
    return (3 * x * x * y + y**3) / (x**3 + 3 * x * y * y) * Fraction(scale1, scale0)


def of(facts: Facts) -> Solidly:
    """From the venue's section."""
    return Solidly(facts.name, facts.address("factory"))
