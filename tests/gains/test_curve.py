"""Curve: pools that are their own shares, and loans whose collateral lies in a market maker."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import topic_of
from chainfolio.localchain.trade import set_price
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH, Wallet
from tests.gains.scripted import Contract, Step, approve, contract
from tests.gains.test_contract_wallet import KINDS, any_wallet

pytestmark = pytest.mark.node
COIN = 10**8 // 20  # a twentieth of a bitcoin, worth 2,000 dollars


@pytest.mark.parametrize(("family", "kind"), [("curve_pool", KINDS[0]), ("curve_crypto_pool", KINDS[1])])
def test_liquidity_is_a_container_and_what_the_pool_exchanged_counts_at_the_end(
    stage: World, family: str, kind: str
) -> None:
    pool, factory = contract(stage, "LP"), contract(stage)
    role = "pool_factory" if family == "curve_pool" else "crypto_factory"
    stage.files["curve"] = (
        f'key = "curve"\nname = "Curve"\nfamilies = ["{family}"]\n[contracts.local]\n{role} = ["{factory.address}"]\n'
    )
    count, index = ("uint256[]", "int128") if family == "curve_pool" else ("uint256[2]", "uint256")
    me = any_wallet(stage, kind, WBTC=10 * COIN, DAI=30_000 * WAD)
    approve(me, pool, "WBTC", "DAI")
    deposits, units = {"WBTC": 0, "DAI": 0}, 0
    for coins, stable, shares in (
        (3 * COIN, 6_000 * WAD, 100 * WAD),
        (2 * COIN, 4_200 * WAD, 60 * WAD),
        (0, 5_000 * WAD, 40 * WAD),
    ):
        transfers = [pool.take(me, "WBTC", coins)] if coins else []
        steps = [*transfers, pool.take(me, "DAI", stable), pool.issue(me, shares)]
        changes = pool.act(me, f"add_liquidity({count},uint256)", [coins, stable], 1, steps=steps)
        deposits = {symbol: raw - changes.get(symbol, 0) for symbol, raw in deposits.items()}
        units += shares
    set_price(stage.node, stage.deployment, "WBTC", 46_000 * 10**8)
    for function, args, shares, coins, stable in (
        (f"remove_liquidity(uint256,{count})", (1, [0, 0]), 50 * WAD, COIN, 4_000 * WAD),
        (f"remove_liquidity_one_coin(uint256,{index},uint256)", (1, 1, 1), 30 * WAD, 0, 4_700 * WAD),
        (f"remove_liquidity(uint256,{count})", (1, [0, 0]), 120 * WAD, 3 * COIN, 9_000 * WAD),
    ):
        payments = [pool.pay(me, "WBTC", coins)] if coins else []
        steps = [pool.burn(me, shares), *payments, pool.pay(me, "DAI", stable)]
        went_in = {symbol: raw * shares // units for symbol, raw in deposits.items()}
        deposits, units = {symbol: raw - went_in[symbol] for symbol, raw in deposits.items()}, units - shares
        me.withdraw(went_in, pool.act(me, function, *args, steps=steps))
    set_price(stage.node, stage.deployment, "WBTC", 40_000 * 10**8)
    report, _ = stage.read(me)
    assert_equal(report, me)


LOANS = """key = "curve"
name = "Curve"
families = ["crvusd"]
[contracts.local]
{} = ["{}"]
stablecoin = ["{}"]
"""


@dataclass
class Loan:
    """A controller that lends Dai against ether, which lies in its market maker."""

    me: Wallet
    controller: Contract
    amm: Contract

    def act(self, function: str, *args: Any, collateral: int = 0, debt: int = 0) -> None:
        """Add (or take back) collateral, and borrow (or repay) Dai."""
        me, controller, amm = self.me, self.controller, self.amm
        steps: list[Step] = []
        if collateral > 0:
            steps.append(controller.take_for(amm, me, "WETH", collateral))
        if debt < 0:
            steps.append(controller.take(me, "DAI", -debt))
        if debt > 0:
            steps.append(controller.pay(me, "DAI", debt))
        if collateral < 0:
            steps.append(amm.note(amm.pay(me, "WETH", -collateral)))
        if collateral < 0 and not debt:
            event = controller.event("RemoveCollateral(address,uint256)", topic_of(me.address), data=[-collateral])
        else:
            name = "Repay" if debt < 0 else "Borrow"
            data = [abs(collateral), abs(debt)]
            event = controller.event(f"{name}(address,uint256,uint256)", topic_of(me.address), data=data)
        changes = controller.act(me, function, *args, steps=[*steps, event])
        assert changes == {symbol: raw for symbol, raw in ((ETH, -collateral), ("DAI", debt)) if raw}
        if debt > 0:
            me.ledger.buy("DAI", debt, me.value("DAI", debt))


@pytest.mark.parametrize(
    ("role", "kind"),
    [*product(("controller", "lend_controller"), KINDS), ("", KINDS[0])],
    ids=["mints", "mints, wallet", "lends", "lends, wallet", "of no file"],
)
def test_a_loan_keeps_its_collateral_and_its_interest_is_a_fee(stage: World, role: str, kind: str) -> None:
    me = any_wallet(stage, kind, WETH=10 * WAD, DAI=2_000 * WAD)
    loan = Loan(me, contract(stage), contract(stage))
    if role:
        stage.files["curve"] = LOANS.format(role, loan.controller.address, me.assets["DAI"].lower())
    approve(me, loan.controller, "WETH", "DAI")
    loan.act("create_loan(uint256,uint256,uint256)", 5 * WAD, 4_000 * WAD, 10, collateral=5 * WAD, debt=4_000 * WAD)
    loan.act("add_collateral(uint256)", 2 * WAD, collateral=2 * WAD)
    loan.act("borrow_more(uint256,uint256)", WAD, 1_000 * WAD, collateral=WAD, debt=1_000 * WAD)
    loan.act("repay(uint256)", 2_000 * WAD, debt=-2_000 * WAD)
    me.ledger.sell("DAI", 2_000 * WAD, me.ledger.cost_of("DAI", 2_000 * WAD))
    loan.act("remove_collateral(uint256,bool)", 3 * WAD, False, collateral=-3 * WAD)
    interest = 123 * WAD
    loan.act("repay(uint256)", 2**256 - 1, collateral=-5 * WAD, debt=-3_000 * WAD - interest)
    me.ledger.sell("DAI", 3_000 * WAD, me.ledger.cost_of("DAI", 3_000 * WAD))
    me.ledger.sell("DAI", interest, me.value("DAI", interest))
    report, _ = stage.read(me)
    assert_equal(report, me)
