"""Unnamed lending pools, vaults and farms: deposits keep their lots, interest and rewards are income."""

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
    deposited = units = 0

    def supply(raw: int) -> None:
        nonlocal deposited, units
        before = units
        me.do(tx(me.address, pool, SUPPLY, usdc, raw, me.address, 0))
        deposited += raw
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
        (received,) = me.do(tx(me.address, pool, WITHDRAW, usdc, raw, me.address)).values()
        remaining = shares()
        interest = received + remaining - units  # that accrued since the last time
        returned = deposited * (received - interest) // units
        units = remaining
        deposited -= returned
        me.ledger.earn("USDC", received - returned, me.value("USDC", received - returned))
    assert (deposited, units) == (0, 0)
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
    me.ledger.buy("DAI", lent, me.value("DAI", lent))
    world.pass_time(100 * DAY_S)
    (change,) = me.do(tx(address, pool, "repay(address,uint256,uint256,address)", dai, MAX, 2, address)).values()
    interest = -change - lent
    assert interest > 0
    me.ledger.sell("DAI", lent, me.ledger.cost_of("DAI", lent))
    me.ledger.sell("DAI", interest, me.value("DAI", interest))
    report, records = world.read(me)
    assert [each.type for each in records if each.recipient == pool.lower()] == ["LEND", "BORROW", "REPAYVAULT"]
    [supplied] = report.unexplained  # no file names the pool, so the portfolio does not hold what lies there
    assert (supplied.symbol, supplied.raw, supplied.place) == ("usdc", "-20000000000", "protocols")
    (change,) = me.do(tx(address, pool, WITHDRAW, usdc, MAX, address)).values()
    me.ledger.earn("USDC", change - 20_000 * 10**6, me.value("USDC", change - 20_000 * 10**6))
    assert_equal(world.read(me)[0], me)


def test_the_yield_of_a_vault_is_income_by_parts_of_its_shares(world: World) -> None:
    me = world.wallet(DAI=20_000 * 10**18)
    vault, dai, address = world.contract("Vault"), world.contract("DAI"), me.address
    me.do(tx(address, dai, "approve(address,uint256)", vault, MAX))
    me.do(tx(address, vault, "deposit(uint256,address)", 9_000 * 10**18, address))
    world.node.settle([tx(world.deployment.accounts["heidi"], dai, "transfer(address,uint256)", vault, 800 * 10**18)])
    me.do(tx(address, vault, "deposit(uint256,address)", 1_000 * 10**18, address))
    deposited = 10_000 * 10**18
    for part in (3, 1):
        shares = world.node.call(vault, "balanceOf(address)(uint256)", address)
        went_in = deposited * (shares // part) // shares
        deposited -= went_in
        (received,) = me.do(
            tx(address, vault, "redeem(uint256,address,address)", shares // part, address, address)
        ).values()
        assert received > went_in
        me.ledger.earn("DAI", received - went_in, me.value("DAI", received - went_in))
    assert deposited == 0
    report, _ = world.read(me)
    assert_equal(report, me)


def test_interest_of_compound_is_income_by_parts_of_its_shares(world: World) -> None:
    market = venus(world.node, world.deployment).markets["USDC"]
    me = world.wallet(USDC=50_000 * 10**6)
    usdc, address, heidi = world.contract("USDC"), me.address, world.deployment.accounts["heidi"]
    me.do(tx(address, usdc, "approve(address,uint256)", market, MAX))
    me.do(tx(address, market, "mint(uint256)", 30_000 * 10**6))
    world.node.settle([tx(heidi, usdc, "transfer(address,uint256)", market, 50_000 * 10**6)])
    deposited = 30_000 * 10**6
    for part in (4, 1):
        shares = world.node.call(market, "balanceOf(address)(uint256)", address)
        went_in = deposited * (shares // part) // shares
        deposited -= went_in
        (received,) = me.do(tx(address, market, "redeem(uint256)", shares // part)).values()
        assert received > went_in
        me.ledger.earn("USDC", received - went_in, me.value("USDC", received - went_in))
    report, _ = world.read(me)
    assert_equal(report, me)
