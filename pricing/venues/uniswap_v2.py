"""Pairs of Uniswap V2 and its forks. A pair keeps no average that one block shows: the block before is compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from chainfolio.reads import AtParent, Read
from pricing.markets import Market, Pair, Pool, State, is_there
from pricing.venues.section import Facts, call

GET_PAIR: Final = "getPair(address,address)(address)"
RESERVES: Final = "getReserves()(uint112,uint112)"


@dataclass(frozen=True, slots=True)
class UniswapV2:
    """The pairs of one factory."""

    name: str
    factory: str

    def lookups(self, pair: Pair) -> Sequence[Read]:
        """The factory is asked."""
        return [call(self.factory, GET_PAIR, pair.ordered)]

    def pools(self, pair: Pair, answers: Sequence[Any]) -> Sequence[Pool]:
        """The one pair that there may be."""
        return [Pool(pair, f"{self.name} pair {at}", at) for at in answers if is_there(at)]

    def reads(self, pool: Pool) -> Sequence[Read | AtParent]:
        """The reserves, now and before. What was sent to a pair without a trade is not in its reserves."""
        read = call(pool.at, RESERVES)
        return [read, AtParent(read)]

    def market(self, pool: Pool, answers: Sequence[Any]) -> Market | None:
        """The price at which the pair trades the next unit."""
        now, before = (_state(pool.pair, each) for each in answers)
        return Market(now, before) if now else None


def _state(pair: Pair, reserves: Any) -> State | None:
    if not isinstance(reserves, tuple) or not all(reserves):
        return None
    return State(pair.price(Fraction(reserves[1], reserves[0])), reserves[1] if pair.first else reserves[0])


def of(facts: Facts) -> UniswapV2:
    """From the venue's section."""
    return UniswapV2(facts.name, facts.address("factory"))
