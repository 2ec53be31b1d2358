"""Algebra: a position NFT keeps its lots until liquidity is removed, and only fees are income."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.localchain.deploy import FOREVER, WAD
from chainfolio.localchain.evm import ZERO, topic, topic_of, words
from chainfolio.localchain.trade import set_price
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH
from tests.gains.scripted import Log, Step, approve, hex_word
from tests.gains.test_contract_wallet import KINDS, any_wallet
from tests.gains.test_slipstream import LIQUIDITY, LONG, NUMBER, TICKS, Pool
from tests.gains.test_uniswap_v3 import ALL, COLLECT, DECREASE

pytestmark = pytest.mark.node
FILE = """key = "quickswap"
name = "QuickSwap V3"
families = ["algebra"]
[contracts.local]
position_manager = ["{}"]
"""
MINT = "mint((address,address,int24,int24,uint256,uint256,uint256,uint256,address,uint256))"
ADD = "increaseLiquidity((uint256,uint256,uint256,uint256,uint256,uint256))"
MINTED = "Mint(address,address,int24,int24,uint128,uint256,uint256)"
INCREASED = "IncreaseLiquidity(uint256,uint128,uint128,uint256,uint256,address)"


class AlgebraPool(Pool):
    """A pool of ether and Dai, whose manager logs more when liquidity is added."""

    def increased(self, ether: int, stable: int, units: int) -> list[Step]:
        """The events of pool and manager for added liquidity."""
        raws, manager = self.order(ether, stable), self.manager.address
        minted = Log((topic(MINTED), topic_of(manager), *TICKS), words(LONG, manager, units, *raws))
        data = [units + 1, units, *raws, self.pool.address]
        return [self.pool.note(minted), self.manager.event(INCREASED, hex_word(NUMBER), data=data)]


@pytest.mark.parametrize(("is_listed", "kind"), [(True, KINDS[0]), (False, KINDS[1])])
def test_a_position_keeps_its_lots_and_its_fees_are_income(stage: World, is_listed: bool, kind: str) -> None:
    amm = AlgebraPool(stage)
    manager, pool = amm.manager, amm.pool
    if is_listed:
        stage.files["quickswap"] = FILE.format(manager.address)
    me = any_wallet(stage, kind, WETH=10 * WAD, DAI=20_000 * WAD)
    address = me.address
    approve(me, manager, "WETH", "DAI")
    tokens = [me.assets[symbol] for symbol in amm.symbols]
    ether, stable = 3 * WAD, 6_000 * WAD
    third = LIQUIDITY // 3
    orders: tuple[tuple[str, tuple[Any, ...], int, list[Step]], ...] = (
        (MINT, (*tokens, -2000, 2000, 1, 1, 0, 0, address, FOREVER), third, [manager.move(ZERO, address, NUMBER)]),
        (ADD, (NUMBER, 1, 1, 0, 0, FOREVER), LIQUIDITY - third, []),
    )
    for function, order, units, created in orders:
        raws = ether // 2, stable // 2
        transfers = [manager.take_for(pool, me, "WETH", raws[0]), manager.take_for(pool, me, "DAI", raws[1])]
        logs = amm.increased(*raws, units)
        changes = manager.act(me, function, order, steps=[*transfers, logs[0], *created, logs[1]])
        assert changes == {ETH: -raws[0], "DAI": -raws[1]}
    set_price(stage.node, stage.deployment, "ETH", 2_300 * 10**8)
    fees = {ETH: WAD // 100, "DAI": 25 * WAD}
    for units, weth, dai in ((third, 8 * WAD // 10, 2_400 * WAD), (LIQUIDITY - third, WAD, 5_000 * WAD)):
        went_in = {ETH: ether, "DAI": stable}
        if units < LIQUIDITY // 2:
            went_in = {symbol: raw * units // LIQUIDITY for symbol, raw in went_in.items()}
        ether, stable = ether - went_in[ETH], stable - went_in["DAI"]
        decrease = amm.logged("Decrease", weth, dai, units)
        assert manager.act(me, DECREASE, (NUMBER, units, 0, 0, FOREVER), steps=decrease) == {}
        amounts = weth + fees[ETH], dai + fees["DAI"]
        collect = amm.logged("Collect", *amounts, 0, pool.pay(me, "WETH", amounts[0]), pool.pay(me, "DAI", amounts[1]))
        changes = manager.act(me, COLLECT, (NUMBER, address, ALL, ALL), steps=collect)
        assert changes == {ETH: amounts[0], "DAI": amounts[1]}
        me.withdraw(went_in, {ETH: weth, "DAI": dai})
        for symbol, raw in fees.items():
            me.ledger.earn(symbol, raw, me.value(symbol, raw))
    manager.act(me, "burn(uint256)", NUMBER, steps=[manager.move(address, ZERO, NUMBER)])
    set_price(stage.node, stage.deployment, "ETH", 2_000 * 10**8)
    report, _ = stage.read(me)
    assert_equal(report, me)
