"""Liquidity that is still in a pool has a known gain, though the pool exchanged part of it."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction

import pytest

from chainfolio.cli.demo import protocols
from chainfolio.localchain.trade import set_price
from chainfolio.portfolio.document import AssetDocument, Portfolio
from chainfolio.portfolio.pnl.closing import ELSEWHERE, owned_assets
from tests.gains.conftest import CENT, World
from tests.gains.ledger import ETH
from tests.gains.test_uniswap_v2 import ADD, Liquidity, approved, swap_by_others
from tests.gains.test_uniswap_v3 import Position
from tests.gains.test_uniswap_v3 import swap_by_others as swap_v3

pytestmark = pytest.mark.node


def rewards(portfolio: Portfolio) -> Iterator[AssetDocument]:
    for protocol in portfolio.asset_by_protocols.values():
        for chain in protocol.chains.values():
            for positions in chain.protocol_positions.values():
                for nested in positions.protocol_positions:
                    yield from nested.reward_assets


@pytest.mark.slow("another version of the same pool", only=["2"])
@pytest.mark.parametrize("version", [2, 3])
def test_an_open_position_is_worth_its_cost_and_its_open_gain(world: World, version: int) -> None:
    world.files.update(protocols(world.deployment))
    me = world.wallet(WETH=10 * 10**18, USDC=50_000 * 10**6)
    if version == 2:
        liquidity = Liquidity(world, me)
        approved(world, me, "WETH", "USDC", "UniswapV2Pair WETH/USDC")
        weth, usdc = world.contract("WETH"), world.contract("USDC")
        liquidity.call(ADD, weth, usdc, 4 * 10**18, 10_000 * 10**6, 0, 0)
        swap_by_others(world, "USDC", "WETH", 90_000 * 10**6)
    else:
        Position(world, me).open(3 * 10**18, 6_000 * 10**6, by_site=False)
        swap_v3(world, "USDC", "WETH", 60_000 * 10**6)
    cost = me.ledger.cost
    set_price(world.node, world.deployment, "ETH", 2_300 * 10**8)
    (report, _), portfolio = world.read(me), world.portfolio(me)
    world.files.clear()
    holdings = {each.symbol.upper().replace("WETH", ETH): each for each in report.holdings}
    assert Decimal(holdings[ETH].held) < Decimal(holdings[ETH].amount), "the pool has less ether than went in"
    assert Decimal(holdings["USDC"].held) > Decimal(holdings["USDC"].amount)
    assert {each.reason for each in report.unexplained} == set()
    assert report.unknown == {}
    value = sum(Decimal(asset.value) for asset, _ in owned_assets(portfolio))
    assert abs(Fraction(report.value) - Fraction(value)) < CENT
    assert abs(Fraction(report.total_cost_basis) - cost) < CENT
    assert Decimal(report.open_pnl) == Decimal(report.value) - Decimal(report.total_cost_basis)
    claimable = sum(Decimal(asset.value) for asset in rewards(portfolio))
    assert (claimable > 0) is (version == 3)
    assert Decimal(portfolio.open_pnl) == Decimal(report.open_pnl) + claimable


def test_liquidity_that_no_protocol_shows_has_no_known_gain(world: World) -> None:
    me = world.wallet(WETH=10 * 10**18, USDC=50_000 * 10**6)
    approved(world, me, "WETH", "USDC", "UniswapV2Pair WETH/USDC")
    liquidity = Liquidity(world, me)
    liquidity.call(ADD, world.contract("WETH"), world.contract("USDC"), 4 * 10**18, 10_000 * 10**6, 0, 0)
    report, _ = world.read(me)
    assert {each.symbol: each.reason for each in report.unexplained} == {"eth": ELSEWHERE, "usdc": ELSEWHERE}
    assert report.open_pnl == "N/A"
