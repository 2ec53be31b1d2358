"""A pool moved within a block keeps the value of its liquidity.

Published contracts of four kinds of pools are moved to four times their price and to a tenth of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

import pytest

from chainfolio.adapters.evm.protocols.uniswap_v4 import pool_id
from chainfolio.contracts import Position, Snapshot
from chainfolio.localchain.deploy import FOREVER, MINT_POSITION, POOL_FEE, Deployment, deploy
from chainfolio.localchain.evm import MAX, Tx, tx
from chainfolio.localchain.node import LocalNode
from tests.protocols.balancer_v2_deployment import SWAP, Balancer, balancer
from tests.protocols.uniswap_v4_deployment import HIGHEST_PRICE, LOWEST_PRICE, UniswapV4, uniswap_v4
from tests.protocols.uniswap_v4_deployment import SWAP as SWAP_V4
from tests.protocols.world import World, parts

pytestmark = pytest.mark.node
FULL, NARROW = 887_220, 600
WETH_USD, MOVES = 2_000, [Fraction(4), Fraction(1, 10)]
V3_SWAP = "exactInputSingle((address,address,uint24,address,uint256,uint256,uint256,uint160))"
LIQUIDITY = "addLiquidity(address,address,uint256,uint256,uint256,uint256,address,uint256)"


@dataclass(frozen=True)
class Venues:
    """The world, and the protocols in which Bob has liquidity."""

    world: World
    v4: UniswapV4
    balancer: Balancer

    @property
    def node(self) -> LocalNode:
        return self.world.node

    @property
    def deployment(self) -> Deployment:
        return self.world.deployment

    @property
    def bob(self) -> str:
        return self.deployment.accounts["bob"]

    @property
    def mover(self) -> str:
        return self.deployment.accounts["deployer"]

    def address(self, symbol: str) -> str:
        return self.deployment.tokens[symbol].address

    def sorted(self, *symbols: str) -> list[str]:
        return sorted(map(self.address, symbols), key=lambda each: int(each, 16))


@pytest.fixture(scope="module")
def venues(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Venues]:
    with LocalNode() as node:
        deployment = deploy(node)
        with node.by_hand():
            v4, pools = uniswap_v4(node, deployment), balancer(node, deployment)
            world = World(node, deployment, tmp_path_factory.mktemp("moved"), {"v4": v4.file, "balancer": pools.file})
            it = Venues(world, v4, pools)
            node.settle(opened(it))
            node.mine(3)
        yield it


def opened(venues: Venues) -> list[Tx]:
    """Return transactions that add Bob's liquidity to Uniswap V2 and V3, and fund the mover."""
    contracts, bob, mover = venues.deployment.contracts, venues.bob, venues.mover
    manager, router = contracts["NonfungiblePositionManager"], contracts["UniswapV2Router02"]
    calls = [tx(mover, venues.address("WETH"), "deposit()", value=4_000 * 10**18)]
    for symbol in ("WETH", "USDC", "DAI"):
        calls.append(tx(mover, venues.address(symbol), "approve(address,uint256)", contracts["SwapRouter"], MAX))
        calls += [tx(bob, venues.address(symbol), "approve(address,uint256)", at, MAX) for at in (manager, router)]
    raws = {venues.address("WETH"): 10 * 10**18, venues.address("USDC"): 20_000 * 10**6}
    token0, token1 = venues.sorted("WETH", "USDC")
    calls.append(tx(bob, router, LIQUIDITY, *raws, *raws.values(), 0, 0, bob, FOREVER))
    tick = venues.node.call(contracts["UniswapV3Pool WETH/USDC"], "slot0()(uint160,int24)")[1] // 60 * 60
    for lower, upper in ((-FULL, FULL), (tick - NARROW, tick + NARROW)):
        order = (token0, token1, POOL_FEE, lower, upper, raws[token0], raws[token1], 0, 0, bob, FOREVER)
        calls.append(tx(bob, manager, MINT_POSITION, order))
    return calls


# --- how each is moved: `factor` is of the price of its first token ---


def root_at(root: int, factor: Fraction) -> int:
    return isqrt(root * root * factor.numerator // factor.denominator)


def move_v2(venues: Venues, factor: Fraction) -> list[Tx]:
    pair = venues.deployment.contracts["UniswapV2Pair WETH/USDC"]
    reserves = venues.node.call(pair, "getReserves()(uint112,uint112)")
    tokens = venues.sorted("WETH", "USDC")
    if factor < 1:  # the first token is sold
        factor, into = 1 / factor, 0
    else:
        into = 1
    raw = root_at(reserves[into], factor) - reserves[into]
    path = [tokens[into], tokens[1 - into]]
    signature = "swapExactTokensForTokens(uint256,uint256,address[],address,uint256)"
    router = venues.deployment.contracts["UniswapV2Router02"]
    return [tx(venues.mover, router, signature, raw, 0, path, venues.mover, FOREVER)]


def move_v3(venues: Venues, factor: Fraction) -> list[Tx]:
    pool, router = (venues.deployment.contracts[each] for each in ("UniswapV3Pool WETH/USDC", "SwapRouter"))
    limit = root_at(venues.node.call(pool, "slot0()(uint160,int24)")[0], factor)
    sold, bought = venues.sorted("WETH", "USDC")[:: 1 if factor < 1 else -1]
    raw = venues.node.call(sold, "balanceOf(address)(uint256)", venues.mover) // 2
    order = (sold, bought, POOL_FEE, venues.mover, FOREVER, raw, 0, limit)
    return [tx(venues.mover, router, V3_SWAP, order)]


def move_v4(venues: Venues, factor: Fraction) -> list[Tx]:
    key, view = venues.v4.keys[1], venues.v4.view
    root = venues.node.call(view, "getSlot0(bytes32)(uint160,int24)", pool_id(key))[0]
    limit = min(max(root_at(root, factor), LOWEST_PRICE), HIGHEST_PRICE)
    order = (factor < 1, -(10**30), limit)
    return [tx(venues.mover, venues.v4.swapper, SWAP_V4, key, order, (False, False), b"", gas=2_000_000)]


def move_weighted(venues: Venues, factor: Fraction) -> list[Tx]:
    """Return trades of at most three tenths of the balance (the limit), until the price is reached."""
    vault, pool = venues.balancer.vault, venues.balancer.pools["weighted"]
    number = venues.node.call(pool, "getPoolId()(bytes32)")
    tokens, balances, _ = venues.node.call(vault, "getPoolTokens(bytes32)(address[],uint256[],uint256)", number)
    into = 0 if factor < 1 else 1
    power = 0.2 if tokens[into].lower() == venues.address("WETH").lower() else 0.8  # the weight of the other one
    here, goal = balances[into], int(balances[into] * float(max(factor, 1 / factor)) ** power)
    calls, me = [], venues.mover
    while here < goal:
        raw = min(goal - here, here * 29 // 100)
        single = (number, 0, tokens[into], tokens[1 - into], raw, b"")
        calls.append(tx(me, vault, SWAP, single, (me, False, me, False), 0, FOREVER, gas=1_000_000))
        here += raw
    return calls


MOVERS: Mapping[str, Callable[[Venues, Fraction], list[Tx]]] = {
    "uniswap2": move_v2,
    "uniswap3": move_v3,
    "v4": move_v4,
    "balancer": move_weighted,
}


# --- the value of the liquidity ---


def own_positions(venues: Venues, snapshot: Snapshot, protocol: str) -> list[Position]:
    positions = [
        each for each in snapshot.positions if each.protocol == protocol and each.account == venues.bob.lower()
    ]
    kinds = {venues.balancer.pools["weighted"].lower(), venues.balancer.escrow.lower()}
    return [each for each in positions if protocol != "balancer" or each.pool in kinds]


def value_usd(venues: Venues, snapshot: Snapshot, protocol: str) -> Fraction:
    """Return the value in dollars, at unmoved prices."""
    usd = {
        venues.address("WETH").lower(): Fraction(WETH_USD, 10**18),
        venues.address("USDC").lower(): Fraction(1, 10**6),
        venues.address("DAI").lower(): Fraction(1, 10**18),
    }
    supplied = parts(own_positions(venues, snapshot, protocol), "supplied")
    return sum((raw * usd[token] for token, raw in supplied.items()), Fraction(0))


def remarks(snapshot: Snapshot, protocol: str) -> list[str]:
    return [each.reason for each in snapshot.issues if each.adapter == protocol]


def in_one_block(venues: Venues, calls: list[Tx]) -> None:
    height = venues.node.height
    venues.node.settle(calls)
    assert venues.node.height == height + 1


@pytest.mark.slow("the same pools, moved the other way", only=["*-a tenth"])
@pytest.mark.parametrize("factor", MOVES, ids=["four times", "a tenth"])
@pytest.mark.parametrize("protocol", list(MOVERS))
def test_who_moves_a_pool_moves_nobody_s_liquidity(venues: Venues, protocol: str, factor: Fraction) -> None:
    node, before = venues.node, venues.node.snapshot()
    with node.by_hand():
        honest = venues.world.snapshot(venues.bob)
        in_one_block(venues, MOVERS[protocol](venues, factor))
        shifted = venues.world.snapshot(venues.bob)
        in_one_block(venues, MOVERS[protocol](venues, 1 / factor))
        back = venues.world.snapshot(venues.bob)
        node.mine()
        later = venues.world.snapshot(venues.bob)
        node.revert(before)
    assert (honest.issues, later.issues) == ((), ())
    assert shifted.requests <= honest.requests + 2  # a header, and one more round
    was = value_usd(venues, honest, protocol)
    assert was > 1_000
    assert abs(value_usd(venues, shifted, protocol) / was - 1) < Fraction(1, 100)
    notes = remarks(shifted, protocol)
    assert len(notes) >= len(own_positions(venues, shifted, protocol))
    assert all("within the block" in each for each in notes)
    assert not any(each.makes_partial for each in shifted.issues)
    # The next block has the old price again: its reserves count, although its parent was moved.
    assert remarks(back, protocol) == []
    supplied = [[each.supplied for each in own_positions(venues, snapshot, protocol)] for snapshot in (back, later)]
    assert supplied[0] == supplied[1]
    assert abs(value_usd(venues, back, protocol) / was - 1) < Fraction(2, 100)
