"""Fluid: the NFT of a position is no asset, its collateral keeps its lots, and debt is a loan."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import ZERO, topic_of
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH, Wallet
from tests.gains.scripted import Contract, Log, Step, approve, contract
from tests.gains.test_contract_wallet import KINDS, any_wallet

pytestmark = pytest.mark.node
FILE = """key = "fluid"
name = "Fluid"
families = ["fluid_vault"]
[contracts.local]
vault_factory = ["{}"]
positions_resolver = ["{}"]
vault_resolver = ["{}"]
liquidity = ["{}"]
"""
NUMBER = 7
OPERATE = "operate(uint256,int256,int256,address)"
MOVED = "LogOperate(address,address,int256,int256,address,address,uint256,uint256)"
NATIVE = "0x" + "ee" * 20


@dataclass
class Vault:
    """A vault that lends Dai against a token, and the layer that holds all tokens."""

    me: Wallet
    vault: Contract
    layer: Contract
    factory: Contract
    collateral: str = "WETH"

    @classmethod
    def new(cls, world: World, kind: str, collateral: str = "WETH") -> Vault:
        """A vault of a protocol file, and a wallet that approved it."""
        vault, layer, factory, resolver = (contract(world) for _ in range(4))
        world.files["fluid"] = FILE.format(factory.address, resolver.address, resolver.address, layer.address)
        me = any_wallet(world, kind, ETH=10 * WAD, WETH=10 * WAD, DAI=2_000 * WAD)
        approve(me, vault, "WETH", "DAI")
        return cls(me, vault, layer, factory, collateral)

    def layer_event(self, symbol: str, supplied: int, borrowed: int) -> Log:
        """The event of the layer."""
        token = NATIVE if symbol == ETH else self.me.assets[symbol]
        topics = topic_of(self.vault.address), topic_of(token)
        return self.layer.event(MOVED, *topics, data=[supplied, borrowed, ZERO, ZERO, 0, 0])

    def steps(self, collateral: int, debt: int, is_new: bool = False, is_pool: bool = False) -> list[Step]:
        """Return the steps of the vault; `is_pool` if the collateral is a share of a pool."""
        me, vault, layer = self.me, self.vault, self.layer
        transfers: list[Step] = []
        inner: list[Step] = []
        if is_new:
            transfers.append(self.factory.note(self.factory.move(ZERO, me.address, NUMBER)))
        if collateral > 0 and self.collateral != ETH:
            transfers.append(vault.take_for(layer, me, self.collateral, collateral))
        if debt < 0:
            transfers.append(vault.take_for(layer, me, "DAI", -debt))
        if collateral:
            inner.append(self.layer_event(self.collateral, collateral // (2 if is_pool else 1), 0))
        if debt:
            inner.append(self.layer_event("DAI", 0, debt))
        if collateral < 0:
            inner.append(layer.pay(me, self.collateral, -collateral))
        if debt > 0:
            inner.append(layer.pay(me, "DAI", debt))
        data = [me.address, NUMBER, collateral, debt, me.address]
        return [
            *transfers,
            layer.note(*inner),
            vault.event("LogOperate(address,uint256,int256,int256,address)", data=data),
        ]

    def operate(self, collateral: int, debt: int, *, is_new: bool = False) -> None:
        """Change the position, and count a new loan."""
        me, value = self.me, collateral if self.collateral == ETH and collateral > 0 else 0
        order = (0 if is_new else NUMBER, collateral, debt, me.address)
        changes = self.vault.act(me, OPERATE, *order, value=value, steps=self.steps(collateral, debt, is_new))
        assert changes == {symbol: raw for symbol, raw in ((ETH, -collateral), ("DAI", debt)) if raw}
        if debt > 0:
            me.ledger.buy("DAI", debt, me.value("DAI", debt))

    def repaid(self, loan: int, interest: int = 0) -> None:
        """Count a repayment, with interest beyond it."""
        self.me.ledger.sell("DAI", loan, self.me.ledger.cost_of("DAI", loan))
        if interest:
            self.me.ledger.sell("DAI", interest, self.me.value("DAI", interest))


@pytest.mark.parametrize(
    ("kind", "collateral", "opens_with_debt"), [(KINDS[0], "WETH", True), (KINDS[0], ETH, False), (KINDS[1], ETH, True)]
)
def test_collateral_keeps_its_lots_and_its_interest_is_income(
    stage: World, kind: str, collateral: str, opens_with_debt: bool
) -> None:
    vault = Vault.new(stage, kind, collateral)
    me, interest = vault.me, 123 * WAD
    if opens_with_debt:
        vault.operate(5 * WAD, 4_000 * WAD, is_new=True)
    else:
        vault.operate(5 * WAD, 0, is_new=True)
        vault.operate(0, 4_000 * WAD)
    vault.operate(2 * WAD, 0)
    vault.operate(WAD, 1_000 * WAD)
    vault.operate(0, -2_000 * WAD)
    vault.repaid(2_000 * WAD)
    vault.operate(-3 * WAD, 0)
    vault.operate(-4 * WAD, -3_000 * WAD - interest)
    vault.repaid(3_000 * WAD, interest)
    vault.operate(-WAD - WAD // 50, 0)
    me.ledger.earn(ETH, WAD // 50, me.value(ETH, WAD // 50))
    report, _ = stage.read(me)
    assert_equal(report, me)
