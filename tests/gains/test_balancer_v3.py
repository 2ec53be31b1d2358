"""Balancer: tokens lie in a vault, and the pool is its own share, whichever router and wallet is used."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.trade import set_price
from tests.gains.conftest import World, assert_equal
from tests.gains.scripted import approve, contract
from tests.gains.test_contract_wallet import KINDS, any_wallet

pytestmark = pytest.mark.node
COIN = 10**8 // 20  # a twentieth of a bitcoin, worth 2,000 dollars
FILE = """key = "balancer3"
name = "Balancer V3"
families = ["{}"]
[contracts.local]
vault = ["{}"]
"""
PROPORTIONAL = "addLiquidityProportional(address,uint256[],uint256,bool,bytes)"
UNBALANCED = "addLiquidityUnbalanced(address,uint256[],uint256,bool,bytes)"
REMOVE = "removeLiquidityProportional(address,uint256,uint256[],bool,bytes)"
REMOVE_ONE = "removeLiquiditySingleTokenExactIn(address,uint256,address,uint256,bool,bytes)"
MANY = (
    "permitBatchAndCall((address,address,address,uint256,uint256,uint256)[],bytes[],"
    "((address,uint160,uint48,uint48)[],address,uint256),bytes,bytes[])"
)


@pytest.mark.parametrize(("family", "kind"), [*(("balancer_v3", kind) for kind in KINDS), ("balancer_v2", KINDS[1])])
def test_liquidity_is_a_container_and_what_the_pool_exchanged_counts_at_the_end(
    stage: World, family: str, kind: str
) -> None:
    vault, router, pool = contract(stage), contract(stage), contract(stage, "BPT")
    stage.files["balancer3"] = FILE.format(family, vault.address)
    me = any_wallet(stage, kind, WBTC=10 * COIN, DAI=30_000 * WAD)
    approve(me, router, "WBTC", "DAI")
    deposits, units = {"WBTC": 0, "DAI": 0}, 0
    orders: tuple[tuple[str, tuple[Any, ...], int, int, int], ...] = (
        (PROPORTIONAL, (pool.address, [], 1, False, b""), 3 * COIN, 6_000 * WAD, 100 * WAD),
        (MANY, ([], [], ([], me.address, 1), b"", [b""]), 2 * COIN, 4_200 * WAD, 60 * WAD),
        (UNBALANCED, (pool.address, [], 1, False, b""), 0, 5_000 * WAD, 40 * WAD),
    )
    for function, args, coins, stable, shares in orders:
        transfers = [router.take_for(vault, me, "WBTC", coins)] if coins else []
        steps = [*transfers, router.take_for(vault, me, "DAI", stable), pool.note(pool.issue(me, shares))]
        changes = router.act(me, function, *args, steps=steps)
        deposits = {symbol: raw - changes.get(symbol, 0) for symbol, raw in deposits.items()}
        units += shares
    set_price(stage.node, stage.deployment, "WBTC", 46_000 * 10**8)
    orders = (
        (REMOVE, (pool.address, 1, [], False, b""), 50 * WAD, COIN, 4_000 * WAD),
        (REMOVE_ONE, (pool.address, 1, me.address, 1, False, b""), 30 * WAD, 0, 4_700 * WAD),
        (MANY, ([], [], ([], me.address, 1), b"", [b""]), 120 * WAD, 3 * COIN, 9_000 * WAD),
    )
    for function, args, shares, coins, stable in orders:
        payments = [vault.pay(me, "WBTC", coins)] if coins else []
        steps = [pool.note(pool.burn(me, shares)), vault.note(*payments, vault.pay(me, "DAI", stable))]
        went_in = {symbol: raw * shares // units for symbol, raw in deposits.items()}
        deposits, units = {symbol: raw - went_in[symbol] for symbol, raw in deposits.items()}, units - shares
        me.withdraw(went_in, router.act(me, function, *args, steps=steps))
    set_price(stage.node, stage.deployment, "WBTC", 40_000 * 10**8)
    report, records = stage.read(me)
    assert [each.type for each in records][-6:] == ["ADDLIQUIDITY"] * 3 + ["REMOVELIQUIDITY"] * 3
    assert_equal(report, me)
