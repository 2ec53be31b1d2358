"""Pools of Solidly and its forks (Velodrome V2, Aerodrome), volatile (x·y) and stable (x³y + y³x).

Fees are outside the reserves, and so are tokens that were sent to a pool without a trade.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from chainfolio.adapters.evm.prices.markets import Market, Pair, Pool, PoolState, is_contract
from chainfolio.adapters.evm.prices.section import VenueSection, raw_unit
from chainfolio.adapters.evm.reads import DECIMALS, Call
from chainfolio.reads import AtParent, ContractRead

GET_POOL: Final = "getPool(address,address,bool)(address)"
RESERVES: Final = "getReserves()(uint256,uint256,uint256)"
CURVES: Final = {False: "volatile", True: "stable"}


@dataclass(frozen=True, slots=True)
class Solidly:
    """The pools of one factory: at most two per pair."""

    name: str
    factory: str

    def lookups(self, pair: Pair) -> Sequence[ContractRead]:
        """Return the reads of the factory for both curves."""
        return [Call(self.factory, GET_POOL, (*pair.ordered, is_stable)) for is_stable in CURVES]

    def pools(self, pair: Pair, results: Sequence[object]) -> Sequence[Pool]:
        """Return the pools that exist."""
        return [
            Pool(pair, f"{self.name} {CURVES[is_stable]} pool {address}", (address, is_stable))
            for is_stable, address in zip(CURVES, results, strict=True)
            if is_contract(address)
        ]

    def reads(self, pool: Pool) -> Sequence[ContractRead]:
        """Return the reads of the reserves, now and before, and of a stable pool's decimals."""
        address, is_stable = pool.key
        read = Call(address, RESERVES)
        return [read, AtParent(read), *(Call(token, DECIMALS) for token in pool.pair.ordered if is_stable)]

    def market(self, pool: Pool, results: Sequence[object]) -> Market | None:
        """Return the marginal price of the pool; None if it is empty, or if a token has no usable decimals."""
        units = [raw_unit(decimals) for decimals in results[2:]]
        if not all(units):
            return None
        current, parent = (_state(pool.pair, reserves, units) for reserves in results[:2])
        return Market(current, parent) if current else None


def _state(pair: Pair, reserves: object, units: Sequence[int]) -> PoolState | None:
    """Return price and depth of a pair, None without reserves; `units` are given for stable pairs only."""
    if not isinstance(reserves, tuple) or not all(reserves[:2]):
        return None
    first, second = reserves[:2]
    price = _stable_price(first, second, *units) if units else Fraction(second, first)
    return PoolState(pair.quote_per_token(price), second if pair.token_is_first else first)


def _stable_price(first: int, second: int, unit0: int, unit1: int) -> Fraction:
    """Return the marginal price of the first token in the second on the curve x³y + y³x = constant."""
    x, y = Fraction(first, unit0), Fraction(second, unit1)
    return (3 * x * x * y + y**3) / (x**3 + 3 * x * y * y) * Fraction(unit1, unit0)


def build(section: VenueSection) -> Solidly:
    """Build the venue from its section."""
    return Solidly(section.name, section.address("factory"))
