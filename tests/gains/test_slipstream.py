"""Slipstream: a position keeps its lots, also in a gauge, whose reward and fees are income."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.localchain.deploy import FOREVER, WAD
from chainfolio.localchain.evm import ZERO, topic, topic_of, words
from chainfolio.localchain.trade import set_price
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH
from tests.gains.scripted import Log, Step, approve, contract, hex_word
from tests.gains.test_farms import earn
from tests.gains.test_uniswap_v3 import ALL, COLLECT, DECREASE

pytestmark = pytest.mark.node
FILE = """key = "aerodrome"
name = "Aerodrome"
families = ["slipstream"]
[contracts.local]
position_manager = ["{}"]
"""
MINT = "mint((address,address,int24,int24,int24,uint256,uint256,uint256,uint256,address,uint256,uint160))"
TICKS = hex_word(-2000), hex_word(2000)
LONG, SHORT = ["address", "uint128", "uint256", "uint256"], ["address", "uint128", "uint128"]
NUMBER, LIQUIDITY = 5, 10**15


class Pool:
    """A pool of ether and Dai, and its position manager."""

    def __init__(self, stage: World) -> None:
        self.manager, self.pool = contract(stage), contract(stage)
        self.symbols = sorted(("WETH", "DAI"), key=lambda symbol: int(stage.contract(symbol), 16))

    def order(self, ether: int, stable: int) -> list[int]:
        """Amounts in the order of the tokens."""
        amounts = {"WETH": ether, "DAI": stable}
        return [amounts[symbol] for symbol in self.symbols]

    def logged(self, name: str, ether: int, stable: int, units: int = 0, *before: Step) -> list[Step]:
        """The events of pool and manager for a change of liquidity, and what the pool does before."""
        raws, manager = self.order(ether, stable), self.manager.address
        shapes: dict[str, tuple[str, list[str], list[Any], list[Any]]] = {
            "Increase": ("Mint(address,address,int24,int24,uint128,uint256,uint256)", LONG, [manager, units], [units]),
            "Decrease": ("Burn(address,int24,int24,uint128,uint256,uint256)", LONG[1:], [units], [units]),
            "Collect": ("Collect(address,address,int24,int24,uint128,uint128)", SHORT, [manager], [manager]),
        }
        event, types, data, manager_data = shapes[name]
        log = Log((topic(event), topic_of(manager), *TICKS), words(types, *data, *raws))
        changed = "Collect(uint256,address,uint256,uint256)"
        if name != "Collect":
            changed = f"{name}Liquidity(uint256,uint128,uint256,uint256)"
        return [
            self.pool.note(*before, log),
            self.manager.event(changed, hex_word(NUMBER), data=[*manager_data, *raws]),
        ]


def test_a_position_keeps_its_lots_also_in_a_gauge(stage: World) -> None:
    amm, gauge = Pool(stage), contract(stage)
    manager, pool = amm.manager, amm.pool
    stage.files["aerodrome"] = FILE.format(manager.address)
    me = stage.wallet(WETH=10 * WAD, DAI=20_000 * WAD)
    address = me.address
    approve(me, manager, "WETH", "DAI")
    tokens = [me.assets[symbol] for symbol in amm.symbols]
    ether, stable = 3 * WAD, 6_000 * WAD
    transfers = [manager.take_for(pool, me, "WETH", ether), manager.take_for(pool, me, "DAI", stable)]
    logs = amm.logged("Increase", ether, stable, LIQUIDITY)
    steps = [*transfers, logs[0], manager.move(ZERO, address, NUMBER), logs[1]]
    order = (*tokens, 100, -2000, 2000, *amm.order(ether, stable), 0, 0, address, FOREVER, 0)
    assert manager.act(me, MINT, order, steps=steps) == {ETH: -ether, "DAI": -stable}
    gauge.act(me, "deposit(uint256)", NUMBER, steps=[manager.note(manager.move(address, gauge.address, NUMBER))])
    earn(me, gauge.act(me, "getReward(uint256)", NUMBER, steps=[gauge.pay(me, "AERO", 9 * WAD)]), "AERO")
    steps = [gauge.pay(me, "AERO", 4 * WAD), manager.note(manager.move(gauge.address, address, NUMBER))]
    earn(me, gauge.act(me, "withdraw(uint256)", NUMBER, steps=steps), "AERO")
    set_price(stage.node, stage.deployment, "ETH", 2_300 * 10**8)
    fees = {ETH: WAD // 100, "DAI": 25 * WAD}
    third = LIQUIDITY // 3
    for units, weth, dai in ((third, 8 * WAD // 10, 2_400 * WAD), (LIQUIDITY - third, WAD, 5_000 * WAD)):
        went_in = {ETH: ether, "DAI": stable}
        if units < LIQUIDITY // 2:
            went_in = {symbol: raw * units // LIQUIDITY for symbol, raw in went_in.items()}
        ether, stable = ether - went_in[ETH], stable - went_in["DAI"]
        steps = amm.logged("Decrease", weth, dai, units)
        assert manager.act(me, DECREASE, (NUMBER, units, 0, 0, FOREVER), steps=steps) == {}
        amounts = weth + fees[ETH], dai + fees["DAI"]
        steps = amm.logged("Collect", *amounts, 0, pool.pay(me, "WETH", amounts[0]), pool.pay(me, "DAI", amounts[1]))
        assert manager.act(me, COLLECT, (NUMBER, address, ALL, ALL), steps=steps) == {
            ETH: amounts[0],
            "DAI": amounts[1],
        }
        me.withdraw(went_in, {ETH: weth, "DAI": dai})
        for symbol, raw in fees.items():
            me.ledger.earn(symbol, raw, me.value(symbol, raw))
    manager.act(me, "burn(uint256)", NUMBER, steps=[manager.move(address, ZERO, NUMBER)])
    set_price(stage.node, stage.deployment, "ETH", 2_000 * 10**8)
    report, _ = stage.read(me)
    assert_equal(report, me)
