"""Pools of Uniswap V4 without hooks: one contract keeps the tokens of all pools, and none of them keeps an average.

A pool with a hook is never looked at: its hook may trade otherwise than the pool says. How much a pool could pay is
what the liquidity between the price and the end of its tick spacing really has of the quote, if it has some of the
token up to the other end: what lies further away cannot be told from the outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sha3 import keccak_256

from chainfolio.reads import AtParent, Read
from chainfolio.tick_math import MAX_TICK, price, sqrt_price
from pricing.markets import Market, Pair, Pool, State, two_sided
from pricing.venues.section import Facts, call

SLOT0: Final = "getSlot0(bytes32)(uint160,int24)"
LIQUIDITY: Final = "getLiquidity(bytes32)(uint128)"
COIN: Final = "0x" + bytes(20).hex()  # how pools name the native coin; also that there is no hook
Q96: Final = 1 << 96
MAX_FEE: Final = 999_999


@dataclass(frozen=True, slots=True)
class Place:
    """A pool: its number, its tick spacing, and its two sides, of which one may be the native coin."""

    number: bytes
    spacing: int
    pair: Pair


@dataclass(frozen=True, slots=True)
class UniswapV4:
    """The pools of one manager with some fees and their tick spacings. `wrapped` is the token that is one for one with
    the native coin: what is traded against the coin is traded against it."""

    name: str
    view: str
    tiers: tuple[tuple[int, int], ...]
    wrapped: str

    def lookups(self, pair: Pair) -> Sequence[Read]:
        """Each pool that there may be is asked for its price."""
        return [call(self.view, SLOT0, (place.number,)) for place in self._places(pair)]

    def pools(self, pair: Pair, answers: Sequence[Any]) -> Sequence[Pool]:
        """Those that have one."""
        return [
            Pool(pair, f"{self.name} pool 0x{place.number.hex()}", place)
            for place, slot0 in zip(self._places(pair), answers, strict=True)
            if isinstance(slot0, tuple) and slot0[0]
        ]

    def reads(self, pool: Pool) -> Sequence[Read | AtParent]:
        """Price and liquidity, now and before."""
        state = [call(self.view, function, (pool.at.number,)) for function in (SLOT0, LIQUIDITY)]
        return [*state, *map(AtParent, state)]

    def market(self, pool: Pool, answers: Sequence[Any]) -> Market | None:
        """The price of the last trade."""
        now, before = _state(pool.at, *answers[:2]), _state(pool.at, *answers[2:])
        return Market(now, before) if now else None

    def _places(self, pair: Pair) -> Iterator[Place]:
        sides = [pair]
        if self.wrapped in (pair.token, pair.quote):
            sides.append(Pair(*(COIN if each == self.wrapped else each for each in (pair.token, pair.quote))))
        for side in sides:
            for fee, spacing in self.tiers:
                yield Place(_number(side, fee, spacing), spacing, side)


def _number(pair: Pair, fee: int, spacing: int) -> bytes:
    """The hash of what makes a pool what it is."""
    first, second = pair.ordered
    words = (int(first, 16), int(second, 16), fee, spacing, int(COIN, 16))
    number: bytes = keccak_256(b"".join(word.to_bytes(32, "big") for word in words)).digest()
    return number


def _state(place: Place, slot0: Any, liquidity: Any) -> State | None:
    if not (isinstance(slot0, tuple) and slot0[0] and isinstance(liquidity, int)):
        return None
    root, tick = slot0
    lower = tick // place.spacing * place.spacing
    low, high = (
        min(sqrt_price(max(lower, -MAX_TICK)), root),
        max(sqrt_price(min(lower + place.spacing, MAX_TICK)), root),
    )
    first, second = (liquidity << 96) * (high - root) // high // root, liquidity * (root - low) // Q96
    # Where the quote is the second of the two, it is paid as the price falls, and the first is sold as it rises.
    paid, sold = (second, first) if place.pair.first else (first, second)
    return two_sided(place.pair.price(price(root)), paid, sold)


def of(facts: Facts) -> UniswapV4:
    """From the venue's section."""
    fees, spacings = facts.numbers("fees", MAX_FEE), facts.numbers("spacings", 32_767)
    facts.same_length("fees", fees, "spacings", spacings)
    return UniswapV4(
        facts.name, facts.address("state_view"), tuple(zip(fees, spacings, strict=True)), facts.address("wrapped")
    )
