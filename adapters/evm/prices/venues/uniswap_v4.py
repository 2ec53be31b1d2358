"""Pools of Uniswap V4 without hooks.

One contract holds the tokens of all pools, and pools keep no average.

Pools with hooks are not read, because a hook may trade differently from the pool. The depth is the quote of the active
liquidity between the price and the end of its tick spacing, if there is some of the token up to the other end.
Liquidity further away cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sha3 import keccak_256

from chainfolio.adapters.evm.prices.markets import Market, Pair, Pool, PoolState, two_sided_state
from chainfolio.adapters.evm.prices.section import VenueSection
from chainfolio.adapters.evm.reads import Call
from chainfolio.reads import AtParent, ContractRead
from chainfolio.tick_math import MAX_TICK, price, sqrt_price

SLOT0: Final = "getSlot0(bytes32)(uint160,int24)"
LIQUIDITY: Final = "getLiquidity(bytes32)(uint128)"
NULL_ADDRESS: Final = "0x" + bytes(20).hex()  # the native coin in a pool's key, and the absence of a hook
Q96: Final = 1 << 96
MAX_FEE: Final = 999_999


@dataclass(frozen=True, slots=True)
class PoolKey:
    """A pool of the manager. One side of its pair may be the native coin."""

    pool_id: bytes
    spacing: int
    pair: Pair


@dataclass(frozen=True, slots=True)
class UniswapV4:
    """The pools of one manager.

    Attributes:
        view: The contract that reads the manager's state.
        tiers: Fees and tick spacings of pools.
        wrapped: The wrapped native coin. Pools of the native coin count as pools of it.
    """

    name: str
    view: str
    tiers: tuple[tuple[int, int], ...]
    wrapped: str

    def lookups(self, pair: Pair) -> Sequence[ContractRead]:
        """Return the reads of the price of each pool that may exist."""
        return [Call(self.view, SLOT0, (key.pool_id,)) for key in self._pool_keys(pair)]

    def pools(self, pair: Pair, results: Sequence[object]) -> Sequence[Pool]:
        """Return the pools that have a price."""
        return [
            Pool(pair, f"{self.name} pool 0x{key.pool_id.hex()}", key)
            for key, slot0 in zip(self._pool_keys(pair), results, strict=True)
            if isinstance(slot0, tuple) and slot0[0]
        ]

    def reads(self, pool: Pool) -> Sequence[ContractRead]:
        """Return the reads of price and liquidity, now and before."""
        state = [Call(self.view, function, (pool.key.pool_id,)) for function in (SLOT0, LIQUIDITY)]
        return [*state, *map(AtParent, state)]

    def market(self, pool: Pool, results: Sequence[object]) -> Market | None:
        """Return the price of the last trade; None if a read failed or there is no price."""
        current, parent = _state(pool.key, *results[:2]), _state(pool.key, *results[2:])
        return Market(current, parent) if current else None

    def _pool_keys(self, pair: Pair) -> Iterator[PoolKey]:
        """Yield a pool for each tier of fees, of the pair and, for a wrapped coin, of the coin itself."""
        pairs = [pair]
        if self.wrapped in (pair.token, pair.quote):
            pairs.append(Pair(*(NULL_ADDRESS if a == self.wrapped else a for a in (pair.token, pair.quote))))
        for pool_pair in pairs:
            for fee, spacing in self.tiers:
                yield PoolKey(_pool_id(pool_pair, fee, spacing), spacing, pool_pair)


def _pool_id(pair: Pair, fee: int, spacing: int) -> bytes:
    """Return the id of a pool without a hook: the hash of its key."""
    first, second = pair.ordered
    key = (int(first, 16), int(second, 16), fee, spacing, int(NULL_ADDRESS, 16))
    pool_id: bytes = keccak_256(b"".join(number.to_bytes(32, "big") for number in key)).digest()
    return pool_id


def _state(key: PoolKey, slot0: object, liquidity: object) -> PoolState | None:
    """Return price and depth within the current tick's range; None if unread or not initialised."""
    if not (isinstance(slot0, tuple) and slot0[0] and isinstance(liquidity, int)):
        return None
    root, tick = slot0
    lower = tick // key.spacing * key.spacing
    low, high = (
        min(sqrt_price(max(lower, -MAX_TICK)), root),
        max(sqrt_price(min(lower + key.spacing, MAX_TICK)), root),
    )
    first, second = (liquidity << 96) * (high - root) // high // root, liquidity * (root - low) // Q96
    # If the quote is the second token, it is paid as the price falls, and the first one is sold as it rises.
    payable, sellable = (second, first) if key.pair.token_is_first else (first, second)
    return two_sided_state(key.pair.quote_per_token(price(root)), payable, sellable)


def build(section: VenueSection) -> UniswapV4:
    """Build the venue from its section; raise BadSettings if it is malformed."""
    fees, spacings = section.numbers("fees", MAX_FEE), section.numbers("spacings", 32_767)
    section.check_same_length("fees", "spacings")
    return UniswapV4(
        section.name,
        section.address("state_view"),
        tuple(zip(fees, spacings, strict=True)),
        section.address("wrapped"),
    )
