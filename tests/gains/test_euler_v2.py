"""Euler V2: shares of a vault earn interest, collateral keeps its lots, and debt is a loan."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import pytest

from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import topic, topic_of, tx
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH, Wallet
from tests.gains.scripted import Call, Contract, Log, Step, approve, contract
from tests.gains.test_given_shares import assert_known

pytestmark = pytest.mark.node
USDC = 10**6
FILE = """key = "euler_v2"
name = "Euler V2"
families = ["euler_v2", "euler_v2_share"]
[contracts.local]
evc = ["{}"]
factory = ["{}"]
"""
DEPOSIT, REDEEM = "deposit(uint256,address)", "redeem(uint256,address,address)"
BORROW, REPAY = "borrow(uint256,address)", "repay(uint256,address)"


@dataclass
class Euler:
    """Two vaults, the token of one's debts, and the connector that logs every call."""

    evc: Contract
    weth: Contract
    usdc: Contract
    debt: Contract

    def called(self, me: Wallet, vault: Contract) -> Log:
        """The connector's event of a call."""
        event = "CallWithContext(address,bytes19,address,address,bytes4)"
        prefix = "0x" + me.address[2:40] + "0" * 26
        topics = topic_of(me.address), prefix, topic_of(vault.address)
        return Log((topic(event), *topics), topic_of(me.address)[2:] + "0" * 64)

    def connected(self, me: Wallet, vault: Contract) -> Call:
        """Let a vault call the connector, as each of its functions does."""
        return self.evc.note(self.called(me, vault))

    def lent(self, me: Wallet, vault: Contract, symbol: str, raw: int, shares: int) -> list[Step]:
        """The steps of a deposit."""
        return [vault.take(me, symbol, raw), vault.issue(me, shares)]

    def borrowed(self, me: Wallet, raw: int) -> list[Step]:
        """The steps of a loan of USDC."""
        event = self.usdc.event("Borrow(address,uint256)", topic_of(me.address), data=[raw])
        return [event, self.debt.note(self.debt.issue(me, raw)), self.usdc.pay(me, "USDC", raw)]

    def repaid(self, me: Wallet, raw: int) -> list[Step]:
        """The steps of a repayment."""
        event = self.usdc.event("Repay(address,uint256)", topic_of(me.address), data=[raw])
        return [self.usdc.take(me, "USDC", raw), event, self.debt.note(self.debt.burn(me, raw))]


@pytest.fixture
def euler(stage: World) -> Euler:
    deployed = Euler(contract(stage), contract(stage, "eWETH"), contract(stage, "eUSDC"), contract(stage, "dUSDC"))
    stage.files["euler_v2"] = FILE.format(deployed.evc.address, contract(stage).address)
    return deployed


def test_interest_of_shares_is_income(stage: World, euler: Euler) -> None:
    me = stage.wallet(USDC=50_000 * USDC)
    vault = euler.usdc
    approve(me, vault, "USDC")
    for raw, shares in ((20_000 * USDC, 20_000 * USDC), (5_000 * USDC, 4_000 * USDC)):
        steps = [euler.connected(me, vault), *euler.lent(me, vault, "USDC", raw, shares)]
        assert vault.act(me, DEPOSIT, raw, me.address, steps=steps) == {"USDC": -raw}
    deposited, units = 25_000 * USDC, 24_000 * USDC
    for shares, payout in ((9_000 * USDC, 11_111 * USDC), (15_000 * USDC, 19_999 * USDC)):
        went_in = deposited * shares // units
        deposited, units = deposited - went_in, units - shares
        steps = [euler.connected(me, vault), vault.pay(me, "USDC", payout), vault.burn(me, shares)]
        assert vault.act(me, REDEEM, shares, me.address, me.address, steps=steps) == {"USDC": payout}
        me.ledger.earn("USDC", payout - went_in, me.value("USDC", payout - went_in))
    report, _ = stage.read(me)
    assert_equal(report, me)


def test_a_loan_is_no_gain_and_its_interest_is_a_fee(stage: World, euler: Euler) -> None:
    me = stage.wallet(WETH=10 * WAD, USDC=2_000 * USDC)
    vault, address = euler.weth, me.address
    approve(me, vault, "WETH")
    approve(me, euler.usdc, "USDC")
    steps = [euler.connected(me, vault), *euler.lent(me, vault, "WETH", 8 * WAD, 7 * WAD)]
    assert vault.act(me, DEPOSIT, 8 * WAD, address, steps=steps) == {ETH: -8 * WAD}
    lent = 5_000 * USDC
    steps = [euler.connected(me, euler.usdc), *euler.borrowed(me, lent)]
    assert euler.usdc.act(me, BORROW, lent, address, steps=steps) == {"USDC": lent}
    me.ledger.buy("USDC", lent, me.value("USDC", lent))
    interest = 76_543_210
    for raw in (2_000 * USDC, 3_000 * USDC + interest):
        steps = [euler.connected(me, euler.usdc), *euler.repaid(me, raw)]
        assert euler.usdc.act(me, REPAY, raw, address, steps=steps) == {"USDC": -raw}
    me.ledger.sell("USDC", lent, me.ledger.cost_of("USDC", lent))
    me.ledger.sell("USDC", interest, me.value("USDC", interest))
    steps = [euler.connected(me, vault), vault.pay(me, "WETH", 8 * WAD), vault.burn(me, 7 * WAD)]
    assert vault.act(me, REDEEM, 7 * WAD, address, address, steps=steps) == {ETH: 8 * WAD}
    report, _ = stage.read(me)
    assert_equal(report, me)


def test_gift_into_a_second_vault_of_the_asset_is_no_growth_of_the_deposit(stage: World) -> None:
    evc, factory, first, second = contract(stage), contract(stage), contract(stage, "eA"), contract(stage, "eB")
    euler = Euler(evc, first, first, first)
    stage.files["euler_v2"] = FILE.format(evc.address, factory.address)
    me, stranger, usdc = stage.wallet(USDC=50_000 * USDC), stage.wallet(USDC=9_000 * USDC), stage.contract("USDC")
    deposited, gift, growth = 20_000 * USDC, 5_000 * USDC, 500 * USDC
    factory.answers["isProxy(address)"] = 1
    evc.answers |= dict.fromkeys(("getCollaterals(address)", "getControllers(address)"), (32, 0))
    factory.note()
    for vault, worth in ((first, deposited + growth), (second, gift)):
        vault.answers |= {"asset()": int(usdc, 16), "convertToAssets(uint256)": worth}
        approve(me, vault, "USDC")
    small = 100 * USDC
    steps = [euler.connected(me, second), *euler.lent(me, second, "USDC", small, small)]
    second.act(me, DEPOSIT, small, me.address, steps=steps)
    steps = [euler.connected(me, second), second.pay(me, "USDC", small), second.burn(me, small)]
    second.act(me, REDEEM, small, me.address, me.address, steps=steps)
    steps = [euler.connected(me, first), *euler.lent(me, first, "USDC", deposited, deposited)]
    assert first.act(me, DEPOSIT, deposited, me.address, steps=steps) == {"USDC": -deposited}
    approve(stranger, second, "USDC")
    second.script(DEPOSIT, [second.take(stranger, "USDC", gift), second.issue(me, gift)])
    stage.node.settle([tx(stranger.address, second.address, DEPOSIT, gift, me.address, gas=1_000_000)])
    assert_known(stage, me, open_usd=500)
    (chain,) = stage.portfolio(me).asset_by_protocols["euler_v2"].chains.values()
    positions = chain.protocol_positions["LENDING"].protocol_positions
    assert sorted(Decimal(part.balance) for each in positions for part in each.supply_assets) == [5_000, 20_500]
