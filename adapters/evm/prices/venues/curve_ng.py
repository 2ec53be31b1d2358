"""Pools and metapools of Curve's factory "StableSwap NG": the marginal price between two coins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from chainfolio.adapters.evm.prices.markets import Market, Pair, Pool, PoolState, is_contract
from chainfolio.adapters.evm.prices.section import VenueSection
from chainfolio.adapters.evm.prices.venues import stable
from chainfolio.adapters.evm.reads import Call
from chainfolio.reads import AtParent, ContractRead

FIND_POOL: Final = "find_pool_for_coins(address,address,uint256)(address)"
COINS: Final = "get_coins(address)(address[])"
BALANCES: Final = "get_balances()(uint256[])"
RATES: Final = "stored_rates()(uint256[])"
AMP: Final = "A()(uint256)"
DEFAULT_MAX_POOLS: Final = 4


@dataclass(frozen=True, slots=True)
class CurveNG:
    """The pools of one factory. Of each pair the first `max_pools` are read."""

    name: str
    factory: str
    max_pools: int

    def lookups(self, pair: Pair) -> Sequence[ContractRead]:
        """Return the reads of the factory for the first, the second, … pool of the pair."""
        return [Call(self.factory, FIND_POOL, (*pair.ordered, number)) for number in range(self.max_pools)]

    def pools(self, pair: Pair, results: Sequence[object]) -> Sequence[Pool]:
        """Return the pools without duplicates."""
        addresses = dict.fromkeys(filter(is_contract, results))
        return [Pool(pair, f"{self.name} pool {address}", address) for address in addresses]

    def reads(self, pool: Pool) -> Sequence[ContractRead]:
        """Return the read of the coins, and those of balances, rates and amplification, now and before."""
        state = [Call(pool.key, function) for function in (BALANCES, RATES, AMP)]
        return [Call(self.factory, COINS, (pool.key,)), *state, *map(AtParent, state)]

    def market(self, pool: Pool, results: Sequence[object]) -> Market | None:
        """Return the marginal price of the pool; None if it is empty or unread.

        None too if a token is no coin of the pool itself, but of a metapool's underlying pool.
        """
        coins, pair = results[0], pool.pair
        if not (isinstance(coins, tuple) and pair.token in coins and pair.quote in coins):
            return None
        sides = coins.index(pair.token), coins.index(pair.quote)
        current, parent = _state(sides, *results[1:4]), _state(sides, *results[4:])
        return Market(current, parent) if current else None


def _state(sides: tuple[int, int], balances: object, rates: object, amp: object) -> PoolState | None:
    if not (isinstance(balances, tuple) and isinstance(rates, tuple) and isinstance(amp, int)):
        return None
    price = stable.price(balances, rates, Fraction(amp), *sides)
    return PoolState(price, balances[sides[1]]) if price else None


def build(section: VenueSection) -> CurveNG:
    """Build the venue from its section."""
    return CurveNG(section.name, section.address("factory"), section.number("pools", DEFAULT_MAX_POOLS, 32))
