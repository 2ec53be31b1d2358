"""Lending, vaults and farms: what goes in keeps its lots, interest and rewards are income. No file names them."""

from __future__ import annotations

import pytest

from chainfolio.localchain.evm import MAX, tx
from tests.gains.conftest import World, assert_equal
from tests.protocols.compound_v2_deployment import venus

pytestmark = pytest.mark.node
DAY_S = 86_400
YEAR_S = 365 * DAY_S
BORROW = "borrow(address,uint256,uint256,uint16,address)"
SUPPLY, WITHDRAW = "supply(address,uint256,address,uint16)", "withdraw(address,uint256,address)"


def test_interest_of_aave_is_income_and_the_rest_keeps_its_lots(world: World) -> None:
    me = world.wallet(USDC=50_000 * 10**6)
    pool, usdc = world.contract("Pool"), world.contract("USDC")
    bob, units = world.deployment.accounts["bob"], world.deployment.tokens["WETH"].units(90)
    weth = world.contract("WETH")
    world.node.settle(
        [
            tx(bob, weth, "approve(address,uint256)", pool, MAX),
            tx(bob, pool, SUPPLY, weth, units, bob, 0),
            tx(bob, pool, BORROW, usdc, 100_000 * 10**6, 2, 0, bob),
        ]
    )
    me.do(tx(me.address, usdc, "approve(address,uint256)", pool, MAX))
    inside = units = 0

    def supply(raw: int) -> None:
        nonlocal inside, units
        before = units
        me.do(tx(me.address, pool, SUPPLY, usdc, raw, me.address, 0))
        inside += raw
        units = shares()
        assert units > before

    def shares() -> int:
        raw: int = world.node.call(world.contract("aUSDC"), "balanceOf(address)(uint256)", me.address)
        return raw

    supply(20_000 * 10**6)
    world.pass_time(YEAR_S)
    supply(5_000 * 10**6)
    world.pass_time(YEAR_S)
    for raw in (8_000 * 10**6, MAX):
        (moved,) = me.do(tx(me.address, pool, WITHDRAW, usdc, raw, me.address)).values()
        left = shares()
        interest = moved + left - units  # that accrued since the last time
        returned = inside * (moved - interest) // units
        units = left
        inside -= returned
        me.ledger.earn("USDC", moved - returned, me.worth("USDC", moved - returned))
    assert (inside, units) == (0, 0)
    report, records = world.read(me)
    assert [each.type for each in records if each.recipient == pool.lower()] == ["LEND", "LEND", "WITHDRAW", "WITHDRAW"]
    assert me.ledger.income > 0
    assert_equal(report, me)


def test_a_loan_is_no_gain_and_its_interest_is_a_fee(world: World) -> None:
    me = world.wallet(USDC=50_000 * 10**6, DAI=1_000 * 10**18)
    pool, usdc, dai, address = world.contract("Pool"), world.contract("USDC"), world.contract("DAI"), me.address
    me.do(*(tx(address, token, "approve(address,uint256)", pool, MAX) for token in (usdc, dai)))
    me.do(tx(address, pool, SUPPLY, usdc, 20_000 * 10**6, address, 0))
    lent = 5_000 * 10**18
    assert me.do(tx(address, pool, BORROW, dai, lent, 2, 0, address)) == {"DAI": lent}
    me.ledger.buy("DAI", lent, me.worth("DAI", lent))
    world.pass_time(100 * DAY_S)
    (moved,) = me.do(tx(address, pool, "repay(address,uint256,uint256,address)", dai, MAX, 2, address)).values()
    interest = -moved - lent
    assert interest > 0
    me.ledger.sell("DAI", lent, me.ledger.cost_of("DAI", lent))
    me.ledger.sell("DAI", interest, me.worth("DAI", interest))
    report, records = world.read(me)
    assert [each.type for each in records if each.recipient == pool.lower()] == ["LEND", "BORROW", "REPAYVAULT"]
    [supplied] = report.unexplained  # no file names the pool, so the portfolio does not hold what lies there
    assert (supplied.symbol, supplied.raw, supplied.place) == ("usdc", "-20000000000", "protocols")
    (moved,) = me.do(tx(address, pool, WITHDRAW, usdc, MAX, address)).values()
    me.ledger.earn("USDC", moved - 20_000 * 10**6, me.worth("USDC", moved - 20_000 * 10**6))
    assert_equal(world.read(me)[0], me)


def test_the_yield_of_a_vault_is_income_by_parts_of_its_shares(world: World) -> None:
    me = world.wallet(DAI=20_000 * 10**18)
    vault, dai, address = world.contract("Vault"), world.contract("DAI"), me.address
    me.do(tx(address, dai, "approve(address,uint256)", vault, MAX))
    me.do(tx(address, vault, "deposit(uint256,address)", 9_000 * 10**18, address))
    world.node.settle([tx(world.deployment.accounts["heidi"], dai, "transfer(address,uint256)", vault, 800 * 10**18)])
    me.do(tx(address, vault, "deposit(uint256,address)", 1_000 * 10**18, address))
    inside = 10_000 * 10**18
    for part in (3, 1):
        shares = world.node.call(vault, "balanceOf(address)(uint256)", address)
        went_in = inside * (shares // part) // shares
        inside -= went_in
        (moved,) = me.do(
            tx(address, vault, "redeem(uint256,address,address)", shares // part, address, address)
        ).values()
        assert moved > went_in
        me.ledger.earn("DAI", moved - went_in, me.worth("DAI", moved - went_in))
    assert inside == 0
    report, _ = world.read(me)
    assert_equal(report, me)


def test_interest_of_compound_is_income_by_parts_of_its_shares(world: World) -> None:
    market = venus(world.node, world.deployment).markets["USDC"]
    me = world.wallet(USDC=50_000 * 10**6)
    usdc, address, heidi = world.contract("USDC"), me.address, world.deployment.accounts["heidi"]
    me.do(tx(address, usdc, "approve(address,uint256)", market, MAX))
    me.do(tx(address, market, "mint(uint256)", 30_000 * 10**6))
    world.node.settle([tx(heidi, usdc, "transfer(address,uint256)", market, 50_000 * 10**6)])
    inside = 30_000 * 10**6
    for part in (4, 1):
        shares = world.node.call(market, "balanceOf(address)(uint256)", address)
        went_in = inside * (shares // part) // shares
        inside -= went_in
        (moved,) = me.do(tx(address, market, "redeem(uint256)", shares // part)).values()
        assert moved > went_in
        me.ledger.earn("USDC", moved - went_in, me.worth("USDC", moved - went_in))
    report, _ = world.read(me)
    assert_equal(report, me)
