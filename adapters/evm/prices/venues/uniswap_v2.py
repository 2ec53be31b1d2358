"""Pairs of Uniswap V2 and its forks.

A pair has no average that one block shows: only the parent is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from chainfolio.adapters.evm.prices.markets import Market, Pair, Pool, PoolState, is_contract
from chainfolio.adapters.evm.prices.section import VenueSection
from chainfolio.adapters.evm.reads import Call
from chainfolio.reads import AtParent, ContractRead

GET_PAIR: Final = "getPair(address,address)(address)"
RESERVES: Final = "getReserves()(uint112,uint112)"


@dataclass(frozen=True, slots=True)
class UniswapV2:
    """The pairs of one factory."""

    name: str
    factory: str

    def lookups(self, pair: Pair) -> Sequence[ContractRead]:
        """Return the read of the factory."""
        return [Call(self.factory, GET_PAIR, pair.ordered)]

    def pools(self, pair: Pair, results: Sequence[object]) -> Sequence[Pool]:
        """Return the pair if it exists."""
        return [Pool(pair, f"{self.name} pair {address}", address) for address in results if is_contract(address)]

    def reads(self, pool: Pool) -> Sequence[ContractRead]:
        """Return the reads of the reserves, now and before.

        They exclude tokens sent to the pair without a trade.
        """
        read = Call(pool.key, RESERVES)
        return [read, AtParent(read)]

    def market(self, pool: Pool, results: Sequence[object]) -> Market | None:
        """Return the marginal price of the pair; None if it is empty or unread."""
        current, parent = (_state(pool.pair, reserves) for reserves in results)
        return Market(current, parent) if current else None


def _state(pair: Pair, reserves: object) -> PoolState | None:
    if not isinstance(reserves, tuple) or not all(reserves):
        return None
    price = pair.quote_per_token(Fraction(reserves[1], reserves[0]))
    return PoolState(price, reserves[1] if pair.token_is_first else reserves[0])


def build(section: VenueSection) -> UniswapV2:
    """Build the venue from its section."""
    return UniswapV2(section.name, section.address("factory"))
