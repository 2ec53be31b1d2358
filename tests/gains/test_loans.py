"""Portfolios with debts: net worth is cost plus open gain, beside a ledger that knows the loan."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction

import pytest

from chainfolio.cli.demo import protocols
from chainfolio.localchain.deploy import WAD, deploy
from chainfolio.localchain.evm import MAX, tx
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import set_price
from tests.gains.conftest import CENT, World
from tests.gains.ledger import ETH, Wallet

pytestmark = pytest.mark.node
DAY_S = 86_400
BORROW, REPAY = "borrow(address,uint256,uint256,uint16,address)", "repay(address,uint256,uint256,address)"
SUPPLY = "supply(address,uint256,address,uint16)"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with LocalNode() as node:
        deployment = deploy(node)
        files = {"aave3": protocols(deployment)["aave3"]}
        yield World(node, deployment, tmp_path_factory.mktemp("loans"), files)


def borrower(world: World, raw: int) -> Wallet:
    """A wallet that lends dollars and borrows wrapped ether against them."""
    me = world.wallet(USDC=50_000 * 10**6)
    pool, usdc, weth = (world.contract(name) for name in ("Pool", "USDC", "WETH"))
    me.do(*(tx(me.address, token, "approve(address,uint256)", pool, MAX) for token in (usdc, weth)))
    me.do(tx(me.address, pool, SUPPLY, usdc, 40_000 * 10**6, me.address, 0))
    assert me.do(tx(me.address, pool, BORROW, weth, raw, 2, 0, me.address)) == {ETH: raw}
    me.ledger.buy(ETH, raw, me.value(ETH, raw))
    return me


def assert_closes(world: World, me: Wallet, borrowed: Fraction) -> None:
    """Compare cost, open and closed gain of the portfolio with the ledger, whose debt is `borrowed` USD."""
    document = world.portfolio(me)
    assert [issue for issue in document.issues if issue.adapter == "pnl"] == []
    owned = me.balances()
    debt, supplied = (
        world.node.call(world.contract(name), "balanceOf(address)(uint256)", me.address)
        for name in ("variableDebtWETH", "aUSDC")
    )
    value = sum((me.value(symbol, raw) for symbol, raw in owned.items()), Fraction(0))
    value += me.value("USDC", supplied) - me.value(ETH, debt)
    cost = me.ledger.cost - borrowed
    for name, reported, expected in (
        ("net worth", document.networth, value),
        ("cost", document.total_cost_basis, cost),
        ("open", document.open_pnl, value - cost),
        ("closed", document.closed_pnl, me.ledger.closed),
    ):
        assert abs(Fraction(reported) - expected) < CENT, (name, reported, float(expected))
    assert Decimal(document.total_cost_basis) + Decimal(document.open_pnl) == Decimal(document.networth)


def test_net_worth_is_cost_plus_open_gain_while_a_loan_is_open(world: World) -> None:
    raw = 5 * WAD
    me = borrower(world, raw)
    borrowed = me.value(ETH, raw)
    assert_closes(world, me, borrowed)
    world.pass_time(100 * DAY_S)
    set_price(world.node, world.deployment, "ETH", 2_600 * 10**8)
    assert_closes(world, me, borrowed)
    part = 2 * WAD
    pool, weth = world.contract("Pool"), world.contract("WETH")
    assert me.do(tx(me.address, pool, REPAY, weth, part, 2, me.address)) == {ETH: -part}
    me.ledger.sell(ETH, part, me.ledger.cost_of(ETH, part))
    borrowed = borrowed * 3 / 5
    second_loan = WAD
    me.do(tx(me.address, pool, BORROW, weth, second_loan, 2, 0, me.address))
    me.ledger.buy(ETH, second_loan, me.value(ETH, second_loan))
    borrowed += me.value(ETH, second_loan)
    world.pass_time(50 * DAY_S)
    set_price(world.node, world.deployment, "ETH", 1_900 * 10**8)
    assert_closes(world, me, borrowed)
