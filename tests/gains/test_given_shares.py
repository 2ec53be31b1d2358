"""Shares that others send or deposit for: units of their own, which change no gain of a deposit and hide none."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest

from chainfolio.cli.demo import protocols
from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import MAX, Tx, tx
from chainfolio.portfolio.pnl.entries import UNASKED
from tests.gains.conftest import World
from tests.gains.ledger import Wallet
from tests.gains.scripted import approve, contract
from tests.gains.test_uniswap_v2 import Liquidity, change_liquidity
from tests.gains.test_yearn_v2 import FILE

pytestmark = pytest.mark.node
USDC = 10**6
TRANSFER = "transfer(address,uint256)"
BORROW = "borrow(address,uint256,uint256,uint16,address)"
SUPPLY = "supply(address,uint256,address,uint16)"


def supply(world: World, payer: str, raw: int, owner: str) -> list[Tx]:
    """Lend USDC, perhaps for another account."""
    pool, usdc = world.contract("Pool"), world.contract("USDC")
    approval = tx(payer, usdc, "approve(address,uint256)", pool, MAX)
    return [approval, tx(payer, pool, SUPPLY, usdc, raw, owner, 0, gas=2_000_000)]


def give(world: World, giver: Wallet, me: Wallet, share: str, raw: int) -> None:
    """Send a share to a wallet without its consent."""
    world.node.settle([tx(giver.address, share, TRANSFER, me.address, raw)])


def assert_known(world: World, me: Wallet, open_usd: int = 0) -> None:
    """The wallet's gains are those of its ledger, beside units in no sum, also in its portfolio.

    No price has changed: `open_usd` is what deposits earned.
    """
    report, _ = world.read(me)
    assert report.unknown.keys() <= {UNASKED}, report.unknown
    assert {each.symbol for each in report.unexplained if each.place == "protocols"} == set()
    portfolio = world.portfolio(me)
    for name, expected in (("total_cost_basis", me.ledger.cost), ("closed_pnl", me.ledger.closed)):
        assert Decimal(getattr(report, name)).quantize(Decimal("0.01")) == round(Decimal(float(expected)), 2), name
        assert Decimal(getattr(portfolio, name)).quantize(Decimal("0.01")) == round(Decimal(float(expected)), 2), name
    assert abs(Decimal(report.open_pnl) - open_usd) < Decimal("0.01")
    assert abs(Decimal(portfolio.open_pnl) - open_usd) < Decimal("0.01")


@pytest.fixture
def lenders(world: World) -> Iterator[World]:
    """The chain with the files of its protocols."""
    world.files.update(protocols(world.deployment))
    yield world
    world.files.clear()


@pytest.mark.parametrize("has_deposit", [False, True], ids=["no deposit", "deposit"])
def test_dust_of_a_share_leaves_all_gains_known(lenders: World, has_deposit: bool) -> None:
    giver, me = (lenders.wallet(WETH=5 * WAD, USDC=50_000 * USDC) for _ in range(2))
    liquidity = Liquidity(lenders, giver)
    next(change_liquidity(lenders, liquidity))
    giver.do(*supply(lenders, giver.address, 10_000 * USDC, giver.address))
    own = Liquidity(lenders, me)
    if has_deposit:
        next(change_liquidity(lenders, own))
        me.do(*supply(lenders, me.address, 8_000 * USDC, me.address))
    for share, raw in (("UniswapV2Pair WETH/USDC", 1), ("UniswapV2Pair WETH/USDC", 10**11), ("aUSDC", 7 * USDC)):
        give(lenders, giver, me, lenders.contract(share), raw)
    lenders.node.settle(supply(lenders, giver.address, 5 * USDC, me.address))
    assert_known(lenders, me)


def test_dust_of_what_a_wallet_owes_leaves_its_gains_known(lenders: World) -> None:
    giver, me = (lenders.wallet(WETH=5 * WAD, USDC=50_000 * USDC) for _ in range(2))
    pool, weth = lenders.contract("Pool"), lenders.contract("WETH")
    approval = tx(giver.address, weth, "approve(address,uint256)", pool, MAX)
    giver.do(approval, tx(giver.address, pool, SUPPLY, weth, 2 * WAD, giver.address, 0, gas=2_000_000))
    me.do(*supply(lenders, me.address, 8_000 * USDC, me.address))
    me.do(tx(me.address, pool, BORROW, weth, WAD // 2, 2, 0, me.address, gas=2_000_000))
    give(lenders, giver, me, lenders.contract("aWETH"), 1000)
    report, _ = lenders.read(me)
    assert report.unknown == {UNASKED: 1}
    assert report.unexplained == ()
    assert abs(Decimal(report.open_pnl)) < Decimal("0.01"), "no price has changed"


def test_redeemed_dust_is_sold_apart_from_the_deposit(lenders: World) -> None:
    giver, me = (lenders.wallet(USDC=50_000 * USDC) for _ in range(2))
    giver.do(*supply(lenders, giver.address, 10_000 * USDC, giver.address))
    me.do(*supply(lenders, me.address, 8_000 * USDC, me.address))
    give(lenders, giver, me, lenders.contract("aUSDC"), 7 * USDC)
    pool, usdc = lenders.contract("Pool"), lenders.contract("USDC")
    me.do(tx(me.address, pool, "withdraw(address,uint256,address)", usdc, MAX, me.address, gas=2_000_000))
    report, _ = lenders.read(me)
    sold = {(each.symbol, each.amount, each.proceeds, each.gain) for each in report.gains if each.kind == "sell"}
    assert sold == {("ausdc", "7", "7", "N/A")}
    assert (report.closed_pnl, report.income, report.unexplained) == ("0", "0", ())
    (held,) = [each for each in report.holdings if each.symbol == "usdc"]
    assert Decimal(held.amount) == 50_007
    assert abs(Decimal(held.total_cost_basis) - 50_007 - Decimal(float(me.fee))) < Decimal("0.01")


def test_a_share_that_a_keeper_mints_by_another_contract_is_named(stage: World) -> None:
    queue, keeper, share = contract(stage), contract(stage), contract(stage, "SHARE")
    me, stranger = stage.wallet(DAI=9_000 * WAD), stage.wallet()
    approve(me, queue, "DAI")
    queue.act(me, "deposit(uint256)", 9_000 * WAD, steps=[queue.take(me, "DAI", 9_000 * WAD)])
    keeper.script("settle()", [share.note(share.issue(me, 8_000 * WAD))])
    stage.node.settle([tx(stranger.address, keeper.address, "settle()", gas=1_000_000)])
    report, _ = stage.read(me)
    named = [(each.subject, share.address in each.reason) for each in report.issues]
    assert named == [(f"local:{stage.contract('DAI').lower()}", True)], report.issues
    assert report.total_cost_basis == "N/A"


@pytest.mark.parametrize("has_deposit", [False, True], ids=["no deposit", "deposit"])
def test_dust_of_a_vault_that_a_file_names_makes_no_sum_unknown(stage: World, has_deposit: bool) -> None:
    vault, stranger = contract(stage, "yvDAI"), stage.wallet()
    stage.files["yearn"] = FILE.format(vault.address)
    me = stage.wallet(DAI=12_000 * WAD)
    approve(me, vault, "DAI")
    if has_deposit:
        steps = [vault.take(me, "DAI", 9_000 * WAD), vault.issue(me, 9_000 * WAD)]
        vault.act(me, "deposit(uint256)", 9_000 * WAD, steps=steps)
    vault.script("poke()", [vault.give(me, contract(stage), 1)])
    stage.node.settle([tx(stranger.address, vault.address, "poke()", gas=1_000_000)])
    steps = [vault.burn(me, 9_000 * WAD + 1), vault.pay(me, "DAI", 9_000 * WAD)]
    if has_deposit:
        vault.act(me, "withdraw(uint256)", 9_000 * WAD + 1, steps=steps)
    report, _ = stage.read(me)
    assert (report.open_pnl, report.income) == ("0", "0")
    assert abs(Decimal(report.closed_pnl)) < Decimal("0.01")
    assert report.unknown == {UNASKED: 1}
