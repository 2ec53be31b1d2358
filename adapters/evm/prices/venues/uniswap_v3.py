"""Pools of Uniswap V3 and its forks: the last trade's price, compared with the pool's average.

The depth is limited by the pool's balance and by its active liquidity: liquidity without tokens, or tokens far below
the price, pay nothing. A pool must have both of its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from chainfolio.adapters.evm.prices.markets import Market, Pair, Pool, PoolState, is_contract, two_sided_state
from chainfolio.adapters.evm.prices.section import VenueSection
from chainfolio.adapters.evm.reads import Call
from chainfolio.reads import AtParent, ContractRead
from chainfolio.tick_math import MAX_TICK, price, sqrt_price

GET_POOL: Final = "getPool(address,address,uint24)(address)"
SLOT0: Final = "slot0()(uint160,int24)"
LIQUIDITY: Final = "liquidity()(uint128)"
OBSERVE: Final = "observe(uint32[])(int56[],uint160[])"
BALANCE_OF: Final = "balanceOf(address)(uint256)"
Q96: Final = 1 << 96


@dataclass(frozen=True, slots=True)
class UniswapV3:
    """The pools of one factory.

    Attributes:
        tiers: The pools of a pair: the text of their label, and the arguments of `get_pool` after both tokens.
        mean_s: Seconds of the average; 0 if pools keep none.
        get_pool: The factory's function.
        state: The pool's function that returns price and tick.
    """

    name: str
    factory: str
    tiers: tuple[tuple[str, tuple[int, ...]], ...]
    mean_s: int
    get_pool: str = GET_POOL
    state: str = SLOT0

    def lookups(self, pair: Pair) -> Sequence[ContractRead]:
        """Return the reads of the factory, one per tier."""
        return [Call(self.factory, self.get_pool, (*pair.ordered, *tier)) for _, tier in self.tiers]

    def pools(self, pair: Pair, results: Sequence[object]) -> Sequence[Pool]:
        """Return the pools that exist, at most one per tier."""
        return [
            Pool(pair, f"{self.name} pool {address}" + (f" ({text})" if text else ""), address)
            for (text, _), address in zip(self.tiers, results, strict=True)
            if is_contract(address)
        ]

    def reads(self, pool: Pool) -> Sequence[ContractRead]:
        """Return the reads of price, liquidity and balances, now and before, and of the average."""
        address = pool.key
        balances = [Call(token, BALANCE_OF, (address,)) for token in (pool.pair.quote, pool.pair.token)]
        state = [Call(address, self.state), Call(address, LIQUIDITY), *balances]
        average = [Call(address, OBSERVE, ((self.mean_s, 0),))] if self.mean_s else []
        return [*state, *map(AtParent, state), *average]

    def market(self, pool: Pool, results: Sequence[object]) -> Market | None:
        """Return the price of the last trade; None if a read failed or the pool has no price yet."""
        current, parent = concentrated_state(pool.pair, *results[:4]), concentrated_state(pool.pair, *results[4:8])
        return Market(current, parent, self._average(pool.pair, *results[8:])) if current else None

    def _average(self, pair: Pair, observation: object = None) -> Fraction | None:
        """Return the geometric average of the price; None if the pool has no observation that is old enough."""
        if not isinstance(observation, tuple) or len(observation[0]) != 2:
            return None
        start, end = observation[0]
        tick = (end - start) // self.mean_s
        return pair.quote_per_token(price(sqrt_price(tick))) if abs(tick) <= MAX_TICK else None


def concentrated_state(
    pair: Pair, slot0: object, liquidity: object, quote_balance: object, token_balance: object
) -> PoolState | None:
    """Return the state of a pool of concentrated liquidity.

    None if a read failed or the pool has no price yet.
    """
    if not (isinstance(slot0, tuple) and slot0[0] and isinstance(liquidity, int)):
        return None
    if not (isinstance(quote_balance, int) and isinstance(token_balance, int)):
        return None
    root = slot0[0]
    active = liquidity * root // Q96 if pair.token_is_first else liquidity * Q96 // root
    return two_sided_state(pair.quote_per_token(price(root)), min(quote_balance, active), token_balance)


def build(section: VenueSection) -> UniswapV3:
    """Build the venue from its section."""
    tiers = tuple((f"fee {fee}", (fee,)) for fee in section.numbers("fees", 999_999))
    return UniswapV3(section.name, section.address("factory"), tiers, section.number("mean_s", 600))
