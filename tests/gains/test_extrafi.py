"""Extra Finance: a farmed position exchanges its tokens, so the gains of these tokens are unknown."""

from __future__ import annotations

import pytest

from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import topic_of
from chainfolio.portfolio.document import UNKNOWN
from chainfolio.portfolio.pnl.record_kinds import UNREAD_CHANGES
from tests.gains.conftest import World
from tests.gains.scripted import approve, contract, hex_word
from tests.gains.test_contract_wallet import KINDS, any_wallet

pytestmark = pytest.mark.node
FILE = """key = "extrafi"
name = "Extra Finance"
families = ["extrafi"]
[contracts.local]
position_manager = ["{}"]
"""
INVEST = "InvestToVaultPosition(uint256,uint256,address,uint256,uint256,uint256,uint256,uint256)"
CLOSE = "CloseVaultPositionPartially(uint256,uint256,address,uint16,uint256,uint256,uint256,uint256)"


@pytest.mark.parametrize("kind", KINDS)
def test_gains_of_a_farmed_position_are_unknown_and_those_of_other_assets_are_not(stage: World, kind: str) -> None:
    manager = contract(stage)
    stage.files["extrafi"] = FILE.format(manager.address)
    me = any_wallet(stage, kind, WETH=10 * WAD, DAI=8_000 * WAD, USDC=500 * 10**6)
    approve(me, manager, "WETH", "DAI")
    topics = hex_word(1), hex_word(7), topic_of(me.address)
    logged = manager.event(INVEST, *topics, data=[WAD, 2_000 * WAD, 0, 4_000 * WAD, 5])
    manager.act(me, "invest()", steps=[manager.take(me, "WETH", WAD), manager.take(me, "DAI", 2_000 * WAD), logged])
    logged = manager.event(CLOSE, *topics, data=[10_000, 2 * WAD, 300 * WAD, 0, 4_000 * WAD])
    manager.act(me, "close()", steps=[manager.pay(me, "WETH", 2 * WAD), manager.pay(me, "DAI", 300 * WAD), logged])
    report, _ = stage.read(me)
    assert [issue.reason for issue in report.issues] == [UNREAD_CHANGES] * 2
    holdings = {each.symbol: each for each in report.holdings}
    assert (holdings["dai"].total_cost_basis, report.closed_pnl, report.income) == (UNKNOWN, UNKNOWN, UNKNOWN)
    assert (holdings["usdc"].total_cost_basis, holdings["usdc"].closed_pnl) == ("500", "0")
