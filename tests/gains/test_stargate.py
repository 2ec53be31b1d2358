"""Stargate: a share of a pool is a separate contract and keeps its deposit, also of the native coin."""

from __future__ import annotations

import pytest

from chainfolio.localchain.deploy import WAD
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH
from tests.gains.scripted import approve, contract
from tests.gains.test_contract_wallet import KINDS, any_wallet

pytestmark = pytest.mark.node
FILE = """key = "stargate"
name = "Stargate"
families = ["stargate"]
[contracts.local]
pool = ["{}"]
"""


@pytest.mark.parametrize(("symbol", "kind"), [("DAI", KINDS[0]), (ETH, KINDS[1])])
def test_shares_of_a_pool_keep_what_went_in(stage: World, symbol: str, kind: str) -> None:
    pool, share = contract(stage), contract(stage, "S*DAI")
    stage.files["stargate"] = FILE.format(pool.address)
    me = any_wallet(stage, kind, ETH=10 * WAD, DAI=1_000 * WAD)
    approve(me, pool, "DAI")
    for raw in (3 * WAD, 4 * WAD):
        issued = share.note(share.issue(me, raw))
        steps = [issued] if symbol == ETH else [pool.take(me, symbol, raw), issued]
        value = raw if symbol == ETH else 0
        changes = pool.act(me, "deposit(address,uint256)", me.address, raw, value=value, steps=steps)
        assert changes == {symbol: -raw}
    for raw in (2 * WAD, 5 * WAD):
        steps = [share.note(share.burn(me, raw)), pool.pay(me, symbol, raw)]
        assert pool.act(me, "redeem(uint256,address)", raw, me.address, steps=steps) == {symbol: raw}
    report, _ = stage.read(me)
    assert_equal(report, me)
