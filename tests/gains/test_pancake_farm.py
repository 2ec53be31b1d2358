"""PancakeSwap's farm of position NFTs: positions stay containers, also if they are closed in the farm."""

from __future__ import annotations

import pytest

from chainfolio.localchain.deploy import FOREVER, WAD
from chainfolio.localchain.evm import ZERO
from chainfolio.localchain.trade import set_price
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH
from tests.gains.scripted import Step, approve, contract
from tests.gains.test_contract_wallet import KINDS, any_wallet
from tests.gains.test_farms import earn
from tests.gains.test_slipstream import LIQUIDITY, MINT, NUMBER, Pool
from tests.gains.test_uniswap_v3 import ALL, DECREASE

pytestmark = pytest.mark.node
FILE = """key = "pancake"
name = "PancakeSwap"
families = ["masterchef_v3"]
[contracts.local]
nft_farm = ["{}"]
"""
COLLECT = "collectTo((uint256,address,uint128,uint128),address)"


@pytest.mark.parametrize(("is_closed_inside", "kind"), [(False, KINDS[0]), (True, KINDS[1])])
def test_a_position_in_the_farm_keeps_its_lots_and_cake_is_income(
    stage: World, is_closed_inside: bool, kind: str
) -> None:
    amm, farm = Pool(stage), contract(stage)
    manager, pool = amm.manager, amm.pool
    stage.files["pancake"] = FILE.format(farm.address)
    me = any_wallet(stage, kind, WETH=10 * WAD, DAI=20_000 * WAD)
    address = me.address
    approve(me, manager, "WETH", "DAI")
    tokens = [me.assets[symbol] for symbol in amm.symbols]
    ether, stable = 3 * WAD, 6_000 * WAD
    transfers = [manager.take_for(pool, me, "WETH", ether), manager.take_for(pool, me, "DAI", stable)]
    logs = amm.logged("Increase", ether, stable, LIQUIDITY)
    order = (*tokens, 100, -2000, 2000, *amm.order(ether, stable), 0, 0, address, FOREVER, 0)
    manager.act(me, MINT, order, steps=[*transfers, logs[0], manager.move(ZERO, address, NUMBER), logs[1]])
    move = "safeTransferFrom(address,address,uint256)"
    manager.act(me, move, address, farm.address, NUMBER, steps=[manager.move(address, farm.address, NUMBER)])
    earn(me, farm.act(me, "harvest(uint256,address)", NUMBER, address, steps=[farm.pay(me, "AERO", 9 * WAD)]), "AERO")
    set_price(stage.node, stage.deployment, "ETH", 2_300 * 10**8)
    fees = {ETH: WAD // 100, "DAI": 25 * WAD}
    third = LIQUIDITY // 3
    for units, weth, dai in ((third, 8 * WAD // 10, 2_400 * WAD), (LIQUIDITY - third, WAD, 5_000 * WAD)):
        caller = farm
        if units != third and not is_closed_inside:
            caller = manager
            back: list[Step] = [
                manager.note(manager.move(farm.address, address, NUMBER)),
                farm.pay(me, "AERO", 4 * WAD),
            ]
            earn(me, farm.act(me, "withdraw(uint256,address)", NUMBER, address, steps=back), "AERO")
        went_in = {ETH: ether, "DAI": stable}
        if units == third:
            went_in = {symbol: raw * units // LIQUIDITY for symbol, raw in went_in.items()}
        ether, stable = ether - went_in[ETH], stable - went_in["DAI"]
        steps = amm.logged("Decrease", weth, dai, units)
        through = [steps[0], manager.note(steps[1])] if caller is farm else steps
        assert caller.act(me, DECREASE, (NUMBER, units, 0, 0, FOREVER), steps=through) == {}
        amounts = weth + fees[ETH], dai + fees["DAI"]
        steps = amm.logged("Collect", *amounts, 0, pool.pay(me, "WETH", amounts[0]), pool.pay(me, "DAI", amounts[1]))
        through = [steps[0], manager.note(steps[1])] if caller is farm else steps
        changes = caller.act(me, COLLECT, (NUMBER, address, ALL, ALL), address, steps=through)
        assert changes == {ETH: amounts[0], "DAI": amounts[1]}
        me.withdraw(went_in, {ETH: weth, "DAI": dai})
        for symbol, raw in fees.items():
            me.ledger.earn(symbol, raw, me.value(symbol, raw))
    if is_closed_inside:
        earn(me, farm.act(me, "harvest(uint256,address)", NUMBER, address, steps=[farm.pay(me, "AERO", WAD)]), "AERO")
        farm.act(me, "burn(uint256)", NUMBER, steps=[manager.note(manager.move(farm.address, ZERO, NUMBER))])
    else:
        manager.act(me, "burn(uint256)", NUMBER, steps=[manager.move(address, ZERO, NUMBER)])
    set_price(stage.node, stage.deployment, "ETH", 2_000 * 10**8)
    report, _ = stage.read(me)
    assert_equal(report, me)
