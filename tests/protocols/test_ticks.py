"""The arithmetic of ticks against the libraries of Uniswap V3 themselves, on the local chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainfolio.adapters.evm.protocols import ticks
from chainfolio.adapters.evm.protocols.ticks import FeeGrowth
from chainfolio.localchain.deploy import Deployer
from chainfolio.localchain.node import LocalNode
from chainfolio.tick_math import MAX_TICK, WORD, sqrt_price

TICKS = st.integers(-MAX_TICK, MAX_TICK)
MIN_PRICE, MAX_PRICE = 4_295_128_739, 1461446703485210103287273052203988822378723970342
FEW = settings(max_examples=60, deadline=None)
Library = Callable[..., Any]


@pytest.fixture(scope="module")
def library() -> Iterator[Library]:
    """A contract that answers with what Uniswap's libraries compute."""
    with LocalNode() as node:
        deployer = Deployer(node, node.accounts[0], 0)
        at = deployer.create("ConcentratedLiquidity", "ConcentratedLiquidity")
        deployer.settle()
        yield lambda signature, *args: node.call(at, signature, *args)


@FEW
@given(tick=TICKS)
@example(tick=0)
@example(tick=MAX_TICK)
@example(tick=-MAX_TICK)
def test_the_price_at_a_tick_is_tick_math_s(library: Library, tick: int) -> None:
    assert sqrt_price(tick) == library("sqrtPrice(int24)(uint160)", tick)


def test_each_bit_of_a_tick_has_its_factor(library: Library) -> None:
    for bit in range(20):
        for tick in (1 << bit, -(1 << bit)):
            if abs(tick) <= MAX_TICK:
                assert sqrt_price(tick) == library("sqrtPrice(int24)(uint160)", tick)


@FEW
@given(
    price=st.integers(MIN_PRICE, MAX_PRICE - 1),
    bounds=st.lists(TICKS, min_size=2, max_size=2, unique=True).map(sorted),
    liquidity=st.integers(0, (1 << 100) - 1),
)
def test_amounts_are_those_of_the_libraries(library: Library, price: int, bounds: list[int], liquidity: int) -> None:
    theirs = library("amounts(uint160,int24,int24,uint128)(uint256,uint256)", price, *bounds, liquidity)
    assert ticks.amounts(liquidity, price, *bounds) == theirs


@FEW
@given(
    tick=TICKS,
    shift=st.integers(-50, 50),
    bounds=st.lists(TICKS, min_size=2, max_size=2, unique=True).map(sorted),
    liquidity=st.integers(1, (1 << 128) - 1),
)
def test_amounts_near_a_tick_are_those_of_the_libraries(
    library: Library, tick: int, shift: int, bounds: list[int], liquidity: int
) -> None:
    price = min(max(sqrt_price(tick) + shift, MIN_PRICE), MAX_PRICE - 1)
    theirs = library("amounts(uint160,int24,int24,uint128)(uint256,uint256)", price, *bounds, liquidity)
    assert ticks.amounts(liquidity, price, *bounds) == theirs


WORDS = st.builds(FeeGrowth, st.integers(0, WORD - 1), st.integers(0, WORD - 1))


@given(TICKS, st.lists(TICKS, min_size=2, max_size=2, unique=True).map(sorted), WORDS, WORDS, WORDS, WORDS)
def test_what_grows_inside_is_what_grows_as_a_whole_while_the_price_is_inside(
    tick: int, bounds: list[int], below: FeeGrowth, above: FeeGrowth, total: FeeGrowth, growth: FeeGrowth
) -> None:
    lower, upper = (bounds[0], below), (bounds[1], above)
    later = FeeGrowth(*((a + b) % WORD for a, b in zip(total, growth, strict=True)))
    grown = ticks.fee_growth_inside(tick, lower, upper, later) - ticks.fee_growth_inside(tick, lower, upper, total)
    assert grown == (growth if bounds[0] <= tick < bounds[1] else FeeGrowth(0, 0))
