"""The change of a value over days: its parts add up and equal those of a ledger of the transactions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from chainfolio.amounts import EXACT, total
from chainfolio.cli.demo import protocols
from chainfolio.engine.history.day_blocks import day_of
from chainfolio.localchain.deploy import WAD, deploy
from chainfolio.localchain.evm import MAX, tx
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import set_price, trade
from chainfolio.portfolio.metrics.report import PerformanceDocument
from tests.gains.conftest import CENT, World
from tests.gains.ledger import ETH

pytestmark = pytest.mark.node
DAY_S = 86_400
PARTS = ("flows", "realised", "unrealised", "income", "fees", "debts", "rewards")
BORROW, REPAY = "borrow(address,uint256,uint256,uint16,address)", "repay(address,uint256,uint256,address)"
SUPPLY = "supply(address,uint256,address,uint16)"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with LocalNode() as node:
        deployment = deploy(node)
        yield World(node, deployment, tmp_path_factory.mktemp("changes"), protocols(deployment))


def today(world: World) -> date:
    """The day of the newest block."""
    return day_of(int(world.node.block()["timestamp"], 16) * 1_000_000)


def next_day(world: World) -> date:
    """Let the next day begin, with prices that are known, and return it."""
    day = today(world) + timedelta(days=1)
    now_s = int(world.node.block()["timestamp"], 16)
    world.pass_time(DAY_S - now_s % DAY_S - 600)
    world.node.mine(1, 1200)
    return day


def parts_of(document: PerformanceDocument) -> dict[str, Decimal]:
    """The parts of the change of value, whose sum is the change."""
    changes = document.changes
    assert not changes.reason, document
    parts = {name: Decimal(getattr(changes, name)) for name in PARTS}
    unexplained_value = total([Decimal(row.value) for row in changes.unexplained])
    change = EXACT.subtract(Decimal(document.end_value), Decimal(document.start_value))
    assert total([*parts.values(), unexplained_value, -2 * parts["fees"]]) == change
    return parts


def test_a_loan_is_no_flow_and_its_interest_and_price_are_of_the_loan(world: World) -> None:
    first = next_day(world)
    me = world.wallet(USDC=50_000 * 10**6)
    pool, usdc, weth = (world.contract(name) for name in ("Pool", "USDC", "WETH"))
    received = me.value(ETH, 5 * WAD) + me.value("USDC", 50_000 * 10**6)
    me.do(*(tx(me.address, token, "approve(address,uint256)", pool, MAX) for token in (usdc, weth)))
    fees = me.fee
    me.do(tx(me.address, pool, SUPPLY, usdc, 40_000 * 10**6, me.address, 0))
    fees += me.fee
    me.do(tx(me.address, pool, BORROW, weth, 5 * WAD, 2, 0, me.address))
    fees += me.fee
    me.do(tx(me.address, pool, REPAY, weth, 2 * WAD, 2, me.address))
    fees += me.fee
    price = me.value(ETH, WAD)
    set_price(world.node, world.deployment, "ETH", 2_600 * 10**8)
    last = next_day(world)
    document = world.performance(me.address, first=first, last=last)
    parts = parts_of(document)
    assert document.changes.unexplained == ()
    debt = world.node.call(world.contract("variableDebtWETH"), "balanceOf(address)(uint256)", me.address)
    for name, theirs in (
        ("flows", received),
        ("realised", Fraction(0)),
        ("income", Fraction(0)),
        ("fees", fees),
        ("debts", 3 * price - me.value(ETH, debt)),
    ):
        assert abs(Fraction(parts[name]) - theirs) < CENT, (name, parts, float(theirs))
    assert Decimal(document.net_flows) == parts["flows"]
    set_price(world.node, world.deployment, "ETH", 2_000 * 10**8)


@pytest.mark.slow("a chain of three days on which wallets trade")
def test_the_parts_add_up_for_wallets_that_trade_lend_and_provide_liquidity(world: World) -> None:
    first = next_day(world)
    trade(world.node, world.deployment, 60, seconds_per_block=1800)
    last = next_day(world)
    for name, part in (("alice", "rewards"), ("bob", "debts"), ("erin", "rewards")):
        document = world.performance(world.deployment.accounts[name], first=first, last=last)
        parts = parts_of(document)
        rows = {row.symbol.removeprefix("w"): row for row in document.changes.unexplained}
        assert rows.keys() == {"eth", "btc"}, (name, rows)  # coins of the first block, and a token older than its feed
        assert int(rows["eth"].raw) == 10_000 * WAD
        assert Decimal(document.net_flows) == parts["flows"] != 0, name  # also deposits in a vault that no file names
        assert parts["fees"] > 0
        assert parts["realised"] * parts["unrealised"] * parts[part] != 0, name
