"""Compound V3: interest of the lent token is income, collateral keeps its lots, and debt is a loan."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import topic_of
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH, Wallet
from tests.gains.scripted import Contract, Log, approve, contract
from tests.gains.test_contract_wallet import KINDS, any_wallet
from tests.gains.test_farms import earn

pytestmark = pytest.mark.node
USDC = 10**6
FILE = """key = "compound3"
name = "Compound V3"
families = ["compound_v3", "compound_v3_base"]
[contracts.local]
market = ["{}"]
rewards = ["{}"]
"""
SUPPLY, WITHDRAW, CLAIM = "supply(address,uint256)", "withdraw(address,uint256)", "claim(address,address,bool)"


@dataclass
class Comet:
    """The market of USDC, with the contract of its rewards."""

    market: Contract
    rewards: Contract

    def event(self, name: str, me: Wallet, raw: int) -> Log:
        """`Supply` or `Withdraw`, of the base token."""
        topics = topic_of(me.address), topic_of(me.address)
        return self.market.event(f"{name}(address,address,uint256)", *topics, data=[raw])

    def of_collateral(self, name: str, me: Wallet, raw: int) -> Log:
        """`SupplyCollateral` or `WithdrawCollateral`, of WETH."""
        topics = topic_of(me.address), topic_of(me.address), topic_of(me.assets["WETH"])
        return self.market.event(f"{name}(address,address,address,uint256)", *topics, data=[raw])

    def supply(self, me: Wallet, raw: int, issued: int) -> dict[str, int]:
        """Supply USDC: a debt is repaid, and the rest is lent."""
        share = [self.market.issue(me, issued)] if issued else []
        steps = [self.market.take(me, "USDC", raw), self.event("Supply", me, raw), *share]
        return self.market.act(me, SUPPLY, me.assets["USDC"], raw, steps=steps)

    def withdraw(self, me: Wallet, raw: int, burnt: int) -> dict[str, int]:
        """Withdraw USDC: what was lent, and the rest is borrowed."""
        share = [self.market.burn(me, burnt)] if burnt else []
        steps = [self.market.pay(me, "USDC", raw), self.event("Withdraw", me, raw), *share]
        return self.market.act(me, WITHDRAW, me.assets["USDC"], raw, steps=steps)


@pytest.fixture
def comet(stage: World) -> Comet:
    deployed = Comet(contract(stage, "cUSDCv3"), contract(stage))
    stage.files["compound3"] = FILE.format(deployed.market.address, deployed.rewards.address)
    return deployed


@pytest.mark.parametrize("kind", KINDS)
def test_interest_and_comp_are_income(stage: World, kind: str, comet: Comet) -> None:
    me = any_wallet(stage, kind, USDC=50_000 * USDC)
    approve(me, comet.market, "USDC")
    for raw in (20_000 * USDC, 5_000 * USDC):
        assert comet.supply(me, raw, raw) == {"USDC": -raw}
    comet.withdraw(me, 9_000 * USDC, 9_000 * USDC)
    steps = [comet.rewards.pay(me, "COMP", 3 * WAD)]
    earn(me, comet.rewards.act(me, CLAIM, comet.market.address, me.address, True, steps=steps), "COMP")
    remaining, interest = 16_000 * USDC + 321_987_654, 321_987_654
    assert comet.withdraw(me, remaining, remaining) == {"USDC": remaining}
    me.ledger.earn("USDC", interest, me.value("USDC", interest))
    report, records = stage.read(me)
    assert_equal(report, me)
    lent = "LEND" if kind == KINDS[0] else "DEPOSIT"
    assert [each.type for each in records][-5:] == [lent, lent, "WITHDRAW", "CLAIM", "WITHDRAW"]


@pytest.mark.parametrize("kind", KINDS)
def test_collateral_keeps_its_lots_and_what_is_borrowed_is_a_loan(stage: World, kind: str, comet: Comet) -> None:
    me = any_wallet(stage, kind, WETH=10 * WAD, USDC=2_000 * USDC)
    market, weth = comet.market, me.assets["WETH"]
    approve(me, market, "USDC", "WETH")
    steps = [market.take(me, "WETH", 8 * WAD), comet.of_collateral("SupplyCollateral", me, 8 * WAD)]
    assert market.act(me, SUPPLY, weth, 8 * WAD, steps=steps) == {ETH: -8 * WAD}
    for raw in (5_000 * USDC, 1_000 * USDC):
        assert comet.withdraw(me, raw, 0) == {"USDC": raw}
        me.ledger.buy("USDC", raw, me.value("USDC", raw))
    assert comet.supply(me, 2_000 * USDC, 0) == {"USDC": -2_000 * USDC}
    me.ledger.sell("USDC", 2_000 * USDC, me.ledger.cost_of("USDC", 2_000 * USDC))
    interest = 76_543_210
    assert comet.supply(me, 4_000 * USDC + interest, 0) == {"USDC": -4_000 * USDC - interest}
    me.ledger.sell("USDC", 4_000 * USDC, me.ledger.cost_of("USDC", 4_000 * USDC))
    me.ledger.sell("USDC", interest, me.value("USDC", interest))
    for raw in (3 * WAD, 5 * WAD):
        steps = [market.pay(me, "WETH", raw), comet.of_collateral("WithdrawCollateral", me, raw)]
        assert market.act(me, WITHDRAW, weth, raw, steps=steps) == {ETH: raw}
    report, _ = stage.read(me)
    assert_equal(report, me)
