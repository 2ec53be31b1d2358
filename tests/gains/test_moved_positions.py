"""Positions that are collectibles may be staked, sold or bought: what is inside goes with them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from chainfolio.localchain.deploy import Deployer
from chainfolio.localchain.evm import Tx, tx
from chainfolio.localchain.trade import set_price
from chainfolio.portfolio.pnl.position_changes import UNMEASURED
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH, Wallet
from tests.gains.test_uniswap_v3 import Position, swap_by_others

pytestmark = pytest.mark.node
GIVE = "safeTransferFrom(address,address,uint256)"
# It moves a collectible from its seller to the caller by `transferFrom`, and then all its ether to the seller.
SHOP = (
    "0x6323b872dd60e01b60005273{seller}60045233602452{number}604452"
    "600060006064600060007" + "3{manager}5af15060006000600060004773{seller}5af15000"
)


@pytest.fixture(scope="module")
def staker(world: World) -> str:
    owner, node = world.deployment.accounts["deployer"], world.node
    deployer = Deployer(node, owner, int(node.rpc("eth_getTransactionCount", owner, "pending"), 16))
    types = ("address", "address", "uint256", "uint256")
    manager, factory = world.contract("NonfungiblePositionManager"), world.contract("UniswapV3Factory")
    with node.by_hand():
        address = deployer.create("UniswapV3Staker", "UniswapV3Staker", types, factory, manager, 0, 10**9)
        deployer.settle()
    return address


def with_position(world: World) -> Position:
    position = Position(world, world.wallet(WETH=10 * 10**18, USDC=50_000 * 10**6))
    position.open(3 * 10**18, 6_000 * 10**6, by_site=False)
    return position


def shop(world: World, position: Position) -> str:
    """A contract that sells a position for its owner."""
    address = f"0x{0x5A0B0000 + position.number:040x}"
    seller, manager = (each.lower()[2:] for each in (position.me.address, position.manager))
    code = SHOP.format(seller=seller, manager=manager, number=f"61{position.number:04x}")
    world.node.rpc("anvil_setCode", address, code)
    position.me.do(tx(position.me.address, position.manager, "approve(address,uint256)", address, position.number))
    return address


def close(position: Position) -> None:
    """Remove all, in two transactions, and burn."""
    units = position.liquidity
    went_in, principal = position.released(units)
    position.me.do(position.decrease(units))
    position.withdraw(went_in, principal, position.me.do(position.collect()))
    position.me.do(burn(position))


def burn(position: Position) -> Tx:
    return tx(position.me.address, position.manager, "burn(uint256)", position.number)


def test_a_staked_position_keeps_its_lots(world: World, staker: str) -> None:
    position = with_position(world)
    me = position.me
    me.do(tx(me.address, position.manager, GIVE, me.address, staker, position.number))
    swap_by_others(world, "USDC", "WETH", 60_000 * 10**6)
    set_price(world.node, world.deployment, "ETH", 2_300 * 10**8)
    me.do(tx(me.address, staker, "withdrawToken(uint256,address,bytes)", position.number, me.address, b""))
    close(position)
    assert me.ledger.income > 0
    report, _ = world.read(me)
    assert_equal(report, me)


def bought(world: World) -> tuple[Position, int]:
    """A position that a new wallet bought, and its liquidity."""
    position = with_position(world)
    address, units, me = shop(world, position), position.liquidity, world.wallet(ETH=20 * 10**18)
    position.me = me
    (change,) = me.do(Tx(me.address, address, value=5 * 10**18)).values()
    cost = me.value(ETH, -change)
    me.ledger.sell(ETH, -change, cost)
    me.ledger.buy("position", units, cost + me.fee)
    return position, units


def take(position: Position, units: int) -> None:
    """Remove liquidity of a bought position, which is sold for its principal."""
    me, ledger = position.me, position.me.ledger
    _, principal = position.released(units)
    me.do(position.decrease(units))
    changes = me.do(position.collect())
    values = {symbol: me.value(symbol, raw) for symbol, raw in principal.items()}
    ledger.sell("position", units, sum(values.values(), Fraction(0)))
    for symbol, raw in principal.items():
        ledger.buy(symbol, raw, values[symbol] + me.fee / 2)
        if fee := changes[symbol] - raw:
            ledger.earn(symbol, fee, me.value(symbol, fee))


def test_a_bought_position_is_sold_for_its_principal_once_its_liquidity_is_known(world: World) -> None:
    position, units = bought(world)
    swap_by_others(world, "WETH", "USDC", 10 * 10**18)
    take(position, units // 3)
    report, _ = world.read(position.me)
    assert report.income != "0"
    assert len(report.unknown) == 1
    assert [issue.reason for issue in report.issues] == [UNMEASURED]
    take(position, units - units // 3)
    position.me.do(burn(position))
    report, _ = world.read(position.me)
    assert_equal(report, position.me)


def test_a_sold_position_is_sold_with_its_contents(world: World) -> None:
    position = with_position(world)
    me, buyer = position.me, world.wallet(ETH=20 * 10**18)
    address = shop(world, position)
    assert me.do(Tx(buyer.address, address, value=6 * 10**18)) == {ETH: 6 * 10**18}
    proceeds = me.value(ETH, 6 * 10**18)
    me.ledger.buy(ETH, 6 * 10**18, proceeds)
    for symbol, raw in position.deposits.items():
        me.ledger.sell(symbol, raw, proceeds / 2)
    report, _ = world.read(me)
    assert_equal(report, me)


def test_a_position_that_is_still_somewhere_else_has_no_known_gain(world: World, staker: str) -> None:
    position = with_position(world)
    me: Wallet = position.me
    me.do(tx(me.address, position.manager, GIVE, me.address, staker, position.number))
    report, _ = world.read(me)
    assert report.unknown
