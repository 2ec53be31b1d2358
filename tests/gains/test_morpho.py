"""Morpho Blue without shares: the deposit returns first, then income; collateral keeps its lots."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from chainfolio.localchain.evm import MAX, tx
from chainfolio.localchain.trade import set_price
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH, Wallet
from tests.protocols.test_morpho_blue import PARAMS, SHARES, Params, lend_and_borrow, opened

pytestmark = pytest.mark.node
DAY_S = 86_400
SUPPLY = f"supply({PARAMS},uint256,uint256,address,bytes)"
WITHDRAW = f"withdraw({PARAMS},uint256,uint256,address,address)"
LOCK, UNLOCK = (
    f"supplyCollateral({PARAMS},uint256,address,bytes)",
    f"withdrawCollateral({PARAMS},uint256,address,address)",
)
BORROW, REPAY = f"borrow({PARAMS},uint256,uint256,address,address)", f"repay({PARAMS},uint256,uint256,address,bytes)"


@dataclass
class Morpho:
    """The contract and its markets, with loans of others."""

    address: str
    markets: dict[bytes, Params] = field(default_factory=dict)


@pytest.fixture(scope="module")
def morpho(world: World) -> Morpho:
    address, markets = opened(world.node, world.deployment)
    lend_and_borrow(world.node, world.deployment, address, list(markets.values()))
    world.pass_time(1)
    return Morpho(address, markets)


def approved(world: World, me: Wallet, spender: str, *symbols: str) -> None:
    me.do(*(tx(me.address, world.contract(each), "approve(address,uint256)", spender, MAX) for each in symbols))


def test_interest_of_a_supply_is_income_after_the_deposit(world: World, morpho: Morpho) -> None:
    (market, params), *_ = morpho.markets.items()
    me = world.wallet(USDC=50_000 * 10**6)
    address = me.address
    approved(world, me, morpho.address, "USDC")
    deposited = 0
    for raw in (20_000 * 10**6, 5_000 * 10**6):
        assert me.do(tx(address, morpho.address, SUPPLY, params, raw, 0, address, b"")) == {"USDC": -raw}
        deposited += raw
        world.pass_time(50 * DAY_S)
    (change,) = me.do(tx(address, morpho.address, WITHDRAW, params, 9_000 * 10**6, 0, address, address)).values()
    deposited -= change
    world.pass_time(50 * DAY_S)
    shares, *_ = world.node.call(morpho.address, SHARES, market, address)
    (change,) = me.do(tx(address, morpho.address, WITHDRAW, params, 0, shares, address, address)).values()
    assert change > deposited
    me.ledger.earn("USDC", change - deposited, me.value("USDC", change - deposited))
    report, records = world.read(me)
    assert_equal(report, me)
    types = [each.type for each in records if each.recipient == morpho.address.lower()]
    assert types == ["LEND", "LEND", "WITHDRAW", "WITHDRAW"]


def test_collateral_keeps_its_lots_and_a_loan_is_no_gain(world: World, morpho: Morpho) -> None:
    (market, params), *_ = morpho.markets.items()
    me = world.wallet(WETH=10 * 10**18, USDC=5_000 * 10**6)
    address, lent = me.address, 6_000 * 10**6
    approved(world, me, morpho.address, "USDC", "WETH")
    assert me.do(tx(address, morpho.address, LOCK, params, 8 * 10**18, address, b"")) == {ETH: -8 * 10**18}
    assert me.do(tx(address, morpho.address, BORROW, params, lent, 0, address, address)) == {"USDC": lent}
    me.ledger.buy("USDC", lent, me.value("USDC", lent))
    world.pass_time(50 * DAY_S)
    set_price(world.node, world.deployment, "ETH", 2_300 * 10**8)
    _, debt, _ = world.node.call(morpho.address, SHARES, market, address)
    (change,) = me.do(tx(address, morpho.address, REPAY, params, 0, debt, address, b"")).values()
    interest = -change - lent
    assert interest > 0
    me.ledger.sell("USDC", lent, me.ledger.cost_of("USDC", lent))
    me.ledger.sell("USDC", interest, me.value("USDC", interest))
    for raw in (3 * 10**18, 5 * 10**18):
        assert me.do(tx(address, morpho.address, UNLOCK, params, raw, address, address)) == {ETH: raw}
    report, records = world.read(me)
    assert_equal(report, me)
    types = [each.type for each in records if each.recipient == morpho.address.lower()]
    assert types == ["LEND", "BORROW", "REPAYVAULT", "WITHDRAW", "WITHDRAW"]
