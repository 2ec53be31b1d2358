"""Who moves a pool within a block does not move what its liquidity is worth: the published contracts of four kinds of
pools, moved to four times their price and to a tenth of it."""

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
class Made:
    """The chain, and what Bob has liquidity in."""

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
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with LocalNode() as node:
        deployment = deploy(node)
        with node.by_hand():
            v4, pools = uniswap_v4(node, deployment), balancer(node, deployment)
            world = World(node, deployment, tmp_path_factory.mktemp("moved"), {"v4": v4.file, "balancer": pools.file})
            it = Made(world, v4, pools)
            node.settle(opened(it))
            node.mine(3)
        yield it


def opened(made: Made) -> list[Tx]:
    """Bob's liquidity in the markets of Uniswap V2 and V3, over all prices and around the price; the mover's means."""
    found, bob, mover = made.deployment.contracts, made.bob, made.mover
    manager, router = found["NonfungiblePositionManager"], found["UniswapV2Router02"]
    calls = [tx(mover, made.address("WETH"), "deposit()", value=4_000 * 10**18)]
    for symbol in ("WETH", "USDC", "DAI"):
        calls.append(tx(mover, made.address(symbol), "approve(address,uint256)", found["SwapRouter"], MAX))
        calls += [tx(bob, made.address(symbol), "approve(address,uint256)", at, MAX) for at in (manager, router)]
    raws = {made.address("WETH"): 10 * 10**18, made.address("USDC"): 20_000 * 10**6}
    token0, token1 = made.sorted("WETH", "USDC")
    calls.append(tx(bob, router, LIQUIDITY, *raws, *raws.values(), 0, 0, bob, FOREVER))
    tick = made.node.call(found["UniswapV3Pool WETH/USDC"], "slot0()(uint160,int24)")[1] // 60 * 60
    for lower, upper in ((-FULL, FULL), (tick - NARROW, tick + NARROW)):
        order = (token0, token1, POOL_FEE, lower, upper, raws[token0], raws[token1], 0, 0, bob, FOREVER)
        calls.append(tx(bob, manager, MINT_POSITION, order))
    return calls


# --- how each is moved: `factor` is of the price of its first token ---


def root_at(root: int, factor: Fraction) -> int:
    return isqrt(root * root * factor.numerator // factor.denominator)


def move_v2(made: Made, factor: Fraction) -> list[Tx]:
    pair = made.deployment.contracts["UniswapV2Pair WETH/USDC"]
    reserves = made.node.call(pair, "getReserves()(uint112,uint112)")
    tokens = made.sorted("WETH", "USDC")
    if factor < 1:  # the first token is sold
        factor, into = 1 / factor, 0
    else:
        into = 1
    raw = root_at(reserves[into], factor) - reserves[into]
    path = [tokens[into], tokens[1 - into]]
    signature = "swapExactTokensForTokens(uint256,uint256,address[],address,uint256)"
    router = made.deployment.contracts["UniswapV2Router02"]
    return [tx(made.mover, router, signature, raw, 0, path, made.mover, FOREVER)]


def move_v3(made: Made, factor: Fraction) -> list[Tx]:
    pool, router = (made.deployment.contracts[each] for each in ("UniswapV3Pool WETH/USDC", "SwapRouter"))
    limit = root_at(made.node.call(pool, "slot0()(uint160,int24)")[0], factor)
    sold, bought = made.sorted("WETH", "USDC")[:: 1 if factor < 1 else -1]
    raw = made.node.call(sold, "balanceOf(address)(uint256)", made.mover) // 2
    order = (sold, bought, POOL_FEE, made.mover, FOREVER, raw, 0, limit)
    return [tx(made.mover, router, V3_SWAP, order)]


def move_v4(made: Made, factor: Fraction) -> list[Tx]:
    key, view = made.v4.keys[1], made.v4.view
    root = made.node.call(view, "getSlot0(bytes32)(uint160,int24)", pool_id(key))[0]
    limit = min(max(root_at(root, factor), LOWEST_PRICE), HIGHEST_PRICE)
    order = (factor < 1, -(10**30), limit)
    return [tx(made.mover, made.v4.swapper, SWAP_V4, key, order, (False, False), b"", gas=2_000_000)]


def move_weighted(made: Made, factor: Fraction) -> list[Tx]:
    """Trades of three tenths of what is there, which is the most that there may be, until the price is there."""
    vault, pool = made.balancer.vault, made.balancer.pools["weighted"]
    number = made.node.call(pool, "getPoolId()(bytes32)")
    tokens, held, _ = made.node.call(vault, "getPoolTokens(bytes32)(address[],uint256[],uint256)", number)
    into = 0 if factor < 1 else 1
    power = 0.2 if tokens[into].lower() == made.address("WETH").lower() else 0.8  # the weight of the other one
    here, goal = held[into], int(held[into] * float(max(factor, 1 / factor)) ** power)
    calls, me = [], made.mover
    while here < goal:
        raw = min(goal - here, here * 29 // 100)
        single = (number, 0, tokens[into], tokens[1 - into], raw, b"")
        calls.append(tx(me, vault, SWAP, single, (me, False, me, False), 0, FOREVER, gas=1_000_000))
        here += raw
    return calls


MOVERS: Mapping[str, Callable[[Made, Fraction], list[Tx]]] = {
    "uniswap2": move_v2,
    "uniswap3": move_v3,
    "v4": move_v4,
    "balancer": move_weighted,
}


# --- what it is worth ---


def mine(made: Made, snapshot: Snapshot, protocol: str) -> list[Position]:
    found = [each for each in snapshot.positions if each.protocol == protocol and each.account == made.bob.lower()]
    kinds = {made.balancer.pools["weighted"].lower(), made.balancer.escrow.lower()}
    return [each for each in found if protocol != "balancer" or each.pool in kinds]


def worth(made: Made, snapshot: Snapshot, protocol: str) -> Fraction:
    """In dollars, at prices that nobody moved."""
    usd = {
        made.address("WETH").lower(): Fraction(WETH_USD, 10**18),
        made.address("USDC").lower(): Fraction(1, 10**6),
        made.address("DAI").lower(): Fraction(1, 10**18),
    }
    supplied = parts(mine(made, snapshot, protocol), "supplied")
    return sum((raw * usd[token] for token, raw in supplied.items()), Fraction(0))


def remarks(snapshot: Snapshot, protocol: str) -> list[str]:
    return [each.reason for each in snapshot.issues if each.adapter == protocol]


def in_one_block(made: Made, calls: list[Tx]) -> None:
    height = made.node.height
    made.node.settle(calls)
    assert made.node.height == height + 1


@pytest.mark.slow("the same pools, moved the other way", only=["*-a tenth"])
@pytest.mark.parametrize("factor", MOVES, ids=["four times", "a tenth"])
@pytest.mark.parametrize("protocol", list(MOVERS))
def test_who_moves_a_pool_moves_nobody_s_liquidity(made: Made, protocol: str, factor: Fraction) -> None:
    node, before = made.node, made.node.snapshot()
    with node.by_hand():
        honest = made.world.snapshot(made.bob)
        in_one_block(made, MOVERS[protocol](made, factor))
        moved = made.world.snapshot(made.bob)
        in_one_block(made, MOVERS[protocol](made, 1 / factor))
        back = made.world.snapshot(made.bob)
        node.mine()
        later = made.world.snapshot(made.bob)
        node.revert(before)
    assert (honest.issues, later.issues) == ((), ())
    assert moved.requests <= honest.requests + 2  # a header, and one more round
    was = worth(made, honest, protocol)
    assert was > 1_000
    assert abs(worth(made, moved, protocol) / was - 1) < Fraction(1, 100)
    said = remarks(moved, protocol)
    assert len(said) >= len(mine(made, moved, protocol))
    assert all("within the block" in each for each in said)
    assert not any(each.makes_partial for each in moved.issues)
    # The block after has it back: what is there is said, though its parent was moved.
    assert remarks(back, protocol) == []
    same = [[each.supplied for each in mine(made, snapshot, protocol)] for snapshot in (back, later)]
    assert same[0] == same[1]
    assert abs(worth(made, back, protocol) / was - 1) < Fraction(2, 100)
