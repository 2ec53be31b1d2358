"""Pools of Uniswap V3 and its forks: the price of the last trade, compared with the pool's own average of some minutes.

How much a pool could pay is what really lies in it, and no more than its active liquidity stands for: liquidity without
tokens, or tokens that lie far below the price, pay nobody. It has to have both of its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from chainfolio.reads import AtParent, Read
from chainfolio.tick_math import MAX_TICK, price, sqrt_price
from pricing.markets import Market, Pair, Pool, State, is_there, two_sided
from pricing.venues.section import Facts, call

GET_POOL: Final = "getPool(address,address,uint24)(address)"
SLOT0: Final = "slot0()(uint160,int24)"
LIQUIDITY: Final = "liquidity()(uint128)"
OBSERVE: Final = "observe(uint32[])(int56[],uint160[])"
BALANCE_OF: Final = "balanceOf(address)(uint256)"
Q96: Final = 1 << 96


@dataclass(frozen=True, slots=True)
class UniswapV3:
    """The pools of one factory: `tiers` are what else it is asked by, and how a label says that. Their average is of
    `mean_s`, where they keep one (0: they do not)."""

    name: str
    factory: str
    tiers: tuple[tuple[str, tuple[int, ...]], ...]
    mean_s: int
    get_pool: str = GET_POOL
    state: str = SLOT0

    def lookups(self, pair: Pair) -> Sequence[Read]:
        """The factory is asked for each tier."""
        return [call(self.factory, self.get_pool, (*pair.ordered, *tier)) for _, tier in self.tiers]

    def pools(self, pair: Pair, answers: Sequence[Any]) -> Sequence[Pool]:
        """One for each tier, at most."""
        return [
            Pool(pair, f"{self.name} pool {at}" + (f" ({words})" if words else ""), at)
            for (words, _), at in zip(self.tiers, answers, strict=True)
            if is_there(at)
        ]

    def reads(self, pool: Pool) -> Sequence[Read | AtParent]:
        """Price, liquidity and what lies in it, now and before; and its average."""
        at = pool.at
        held = [call(token, BALANCE_OF, (at,)) for token in (pool.pair.quote, pool.pair.token)]
        state = [call(at, self.state), call(at, LIQUIDITY), *held]
        mean = [call(at, OBSERVE, ((self.mean_s, 0),))] if self.mean_s else []
        return [*state, *map(AtParent, state), *mean]

    def market(self, pool: Pool, answers: Sequence[Any]) -> Market | None:
        """The price of the last trade."""
        now, before = concentrated(pool.pair, *answers[:4]), concentrated(pool.pair, *answers[4:8])
        return Market(now, before, self._mean(pool.pair, *answers[8:])) if now else None

    def _mean(self, pair: Pair, observed: Any = None) -> Fraction | None:
        """The geometric average of the price; None where the pool does not remember for so long."""
        if not isinstance(observed, tuple) or len(observed[0]) != 2:
            return None
        then, now = observed[0]
        tick = (now - then) // self.mean_s
        return pair.price(price(sqrt_price(tick))) if abs(tick) <= MAX_TICK else None


def concentrated(pair: Pair, slot0: Any, *said: Any) -> State | None:
    """A pool of concentrated liquidity, by its price, its active liquidity, and how much of the quote and of the token
    it holds."""
    if not (isinstance(slot0, tuple) and slot0[0] and all(isinstance(each, int) for each in said)):
        return None
    root, (liquidity, paid, sold) = slot0[0], said
    active = liquidity * root // Q96 if pair.first else liquidity * Q96 // root
    return two_sided(pair.price(price(root)), min(paid, active), sold)


def of(facts: Facts) -> UniswapV3:
    """From the venue's section."""
    tiers = tuple((f"fee {fee}", (fee,)) for fee in facts.numbers("fees", 999_999))
    return UniswapV3(facts.name, facts.address("factory"), tiers, facts.number("mean_s", 600))
