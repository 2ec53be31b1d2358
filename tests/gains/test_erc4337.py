"""ERC-4337: the deposit in the entry point is held, and gas of an operation is its payer's fee."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import topic_of, tx
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH, Wallet
from tests.gains.scripted import Call, Contract, Step, contract, hex_word

pytestmark = pytest.mark.node
FILE = """key = "erc4337"
name = "ERC-4337"
families = ["entry_point"]
[contracts.local]
entry_point = ["{}"]
"""
HANDLE = "handleOps((address,uint256,bytes,bytes,bytes32,uint256,bytes32,bytes,bytes)[],address)"
OPERATION = "UserOperationEvent(bytes32,address,address,uint256,bool,uint256,uint256)"
GWEI = 10**9


@dataclass
class Operations:
    """A contract wallet that a bundler serves, and what its deposit has."""

    world: World
    entry_point: Contract
    account: Contract
    me: Wallet
    deposit: int = 0
    costs: list[int] = field(default_factory=list)

    @classmethod
    def new(cls, world: World) -> Operations:
        """A new wallet with ether and USDC. Its code makes what the test writes."""
        entry_point, account = contract(world), contract(world, is_funded=False)
        world.files["erc4337"] = FILE.format(entry_point.address)
        me = Wallet(world.node, world.deployment, account.address, world.wallet().assets)
        me.get(ETH, 10 * WAD)
        return cls(world, entry_point, account, me)

    def run(self, prefund: int, cost: int, *steps: Step, paymaster: str = "") -> dict[str, int]:
        """Let the bundler send an operation that pays in advance, moves something, and costs some gas."""
        me, entry_point = self.me, self.entry_point
        pays = [Call(entry_point.address, "0x", prefund)] if prefund else []
        self.deposit += prefund - (0 if paymaster else cost)
        entry_point.answers["balanceOf(address)"] = self.deposit
        topics = hex_word(len(self.costs)), topic_of(me.address), topic_of(paymaster) if paymaster else hex_word(0)
        event = entry_point.event(OPERATION, *topics, data=[0, True, cost, cost // GWEI])
        deposited = entry_point.event("Deposited(address,uint256)", topic_of(me.address), data=[prefund])
        operated = self.account.note(*pays, *steps)
        entry_point.script(HANDLE, [*([deposited] if prefund else []), operated, event])
        alice = self.world.deployment.accounts["alice"]
        operation = (me.address, 0, b"", b"", bytes(32), 0, bytes(32), b"", b"")
        changes = me.do(tx(alice, entry_point.address, HANDLE, [operation], alice, gas=3_000_000))
        changes[ETH] = changes.get(ETH, 0) + prefund
        self.costs.append(cost)
        if not paymaster:
            me.ledger.sell(ETH, cost, me.value(ETH, cost))
        return {symbol: raw for symbol, raw in changes.items() if raw}


def test_gas_paid_in_advance_is_held_and_what_an_operation_costs_is_a_fee(stage: World) -> None:
    operations = Operations.new(stage)
    me, shop = operations.me, contract(stage)
    for prefund, cost in ((WAD // 10, WAD // 25), (WAD // 50, WAD // 40)):
        steps = [shop.note(shop.pay(me, "DAI", 2_000 * WAD)), Call(shop.address, "0x", WAD)]
        assert operations.run(prefund, cost, *steps) == {ETH: -WAD, "DAI": 2_000 * WAD}
        me.ledger.sell(ETH, WAD, me.value(ETH, WAD))
        me.ledger.buy("DAI", 2_000 * WAD, me.value("DAI", 2_000 * WAD) + me.value(ETH, cost))
    steps = [shop.note(shop.pay(me, "DAI", 2_000 * WAD)), Call(shop.address, "0x", WAD)]
    assert operations.run(0, WAD // 30, *steps, paymaster=shop.address) == {ETH: -WAD, "DAI": 2_000 * WAD}
    me.ledger.sell(ETH, WAD, me.value(ETH, WAD))
    me.ledger.buy("DAI", 2_000 * WAD, me.value("DAI", 2_000 * WAD))
    portfolio = stage.portfolio(me)
    assert "erc4337" in portfolio.asset_by_protocols
    report, records = stage.read(me)
    assert_equal(report, me)
    assert [each.type for each in records][-3:] == ["SWAP"] * 3
