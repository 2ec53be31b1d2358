"""Uniswap V2: liquidity is a container that keeps the lots of both tokens, with any router."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

import pytest

from chainfolio.localchain.deploy import FOREVER
from chainfolio.localchain.evm import MAX, tx
from chainfolio.localchain.trade import set_price
from chainfolio.portfolio.transactions import TransactionDocument
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH, Wallet

pytestmark = pytest.mark.node
ADD = "addLiquidity(address,address,uint256,uint256,uint256,uint256,address,uint256)"
ADD_ETH = "addLiquidityETH(address,uint256,uint256,uint256,address,uint256)"
REMOVE = "removeLiquidity(address,address,uint256,uint256,uint256,address,uint256)"
REMOVE_ETH = "removeLiquidityETH(address,uint256,uint256,uint256,address,uint256)"
SWAP = "swapExactTokensForTokens(uint256,uint256,address[],address,uint256)"


def approved(world: World, wallet: Wallet, *tokens: str) -> None:
    router = world.contract("UniswapV2Router02")
    wallet.do(*(tx(wallet.address, world.contract(each), "approve(address,uint256)", router, MAX) for each in tokens))


def swap_by_others(world: World, sold: str, bought: str, raw: int) -> None:
    """Trade against the pool by another account, which changes its ratio and earns it a fee."""
    ivan, router = world.deployment.accounts["heidi"], world.contract("UniswapV2Router02")
    approve = tx(ivan, world.contract(sold), "approve(address,uint256)", router, MAX)
    path = [world.contract(sold), world.contract(bought)]
    world.node.settle([approve, tx(ivan, router, SWAP, raw, 0, path, ivan, FOREVER)])


@dataclass
class Liquidity:
    """A wallet's liquidity in the pool of ether and USDC and the deposits behind it."""

    world: World
    me: Wallet
    deposits: dict[str, int] = field(default_factory=lambda: {ETH: 0, "USDC": 0})

    @property
    def shares(self) -> int:
        """Shares of the pair that the wallet has."""
        pair = self.world.contract("UniswapV2Pair WETH/USDC")
        raw: int = self.world.node.call(pair, "balanceOf(address)(uint256)", self.me.address)
        return raw

    def call(self, signature: str, *args: object, value: int = 0) -> dict[str, int]:
        """Call the router, which no file names."""
        me, router = self.me.address, self.world.contract("UniswapV2Router02")
        return self.me.do(tx(me, router, signature, *args, me, FOREVER, value=value))

    def add(self, changes: dict[str, int]) -> None:
        """Record the wallet's outflows as deposits."""
        assert all(raw < 0 for raw in changes.values())
        for symbol, raw in changes.items():
            self.deposits[symbol] -= raw

    def take(self, part: int) -> dict[str, int]:
        """Return what a number of the shares, which are still there, stands for, and take it out."""
        went_in = {symbol: raw * part // self.shares for symbol, raw in self.deposits.items()}
        for symbol, raw in went_in.items():
            self.deposits[symbol] -= raw
        return went_in


def change_liquidity(world: World, liquidity: Liquidity) -> Iterator[tuple[int, dict[str, int], dict[str, int]]]:
    """Add twice, remove a third, then all; yield the shares, their deposits and the wallet's changes."""
    weth, usdc = world.contract("WETH"), world.contract("USDC")
    approved(world, liquidity.me, "WETH", "USDC", "UniswapV2Pair WETH/USDC")
    before = liquidity.shares
    yield liquidity.shares - before, {}, liquidity.call(ADD, weth, usdc, 4 * 10**18, 10_000 * 10**6, 0, 0)
    set_price(world.node, world.deployment, "ETH", 2_400 * 10**8)
    swap_by_others(world, "USDC", "WETH", 90_000 * 10**6)
    yield 0, {}, liquidity.call(ADD_ETH, usdc, 5_000 * 10**6, 0, 0, value=10**18)
    part = liquidity.shares // 3
    went_in = liquidity.take(part)
    yield part, went_in, liquidity.call(REMOVE, weth, usdc, part, 0, 0)
    swap_by_others(world, "WETH", "USDC", 30 * 10**18)
    set_price(world.node, world.deployment, "ETH", 2_150 * 10**8)
    part = liquidity.shares
    went_in = liquidity.take(part)
    yield part, went_in, liquidity.call(REMOVE_ETH, usdc, part, 0, 0)


def test_liquidity_keeps_its_lots_and_its_changed_ratio_is_a_trade(world: World) -> None:
    me = world.wallet(WETH=10 * 10**18, USDC=50_000 * 10**6)
    liquidity = Liquidity(world, me)
    for _, went_in, changes in change_liquidity(world, liquidity):
        if went_in:
            me.withdraw(went_in, changes)
        else:
            liquidity.add(changes)
    assert liquidity.deposits == {ETH: 0, "USDC": 0}
    report, records = world.read(me)
    assert types_of(records) == ["ADDLIQUIDITY", "ADDLIQUIDITY", "REMOVELIQUIDITY", "REMOVELIQUIDITY"]
    assert me.ledger.income == 0
    assert me.ledger.closed != 0
    assert_equal(report, me)


def test_liquidity_is_sold_for_its_shares_if_the_owner_says_so(world: World) -> None:
    me = world.wallet(WETH=10 * 10**18, USDC=50_000 * 10**6)
    liquidity = Liquidity(world, me)
    share_count = 0
    for shares, went_in, changes in change_liquidity(world, liquidity):
        values = {symbol: me.value(symbol, abs(raw)) for symbol, raw in changes.items()}
        fee = me.fee
        if went_in:
            me.ledger.sell("UNI-V2", shares, sum(values.values(), Fraction(0)))
            for i, (symbol, raw) in enumerate(changes.items()):
                me.ledger.buy(symbol, raw, values[symbol] + (fee / 2 if i < 2 else 0))
        else:
            for symbol, raw in changes.items():
                me.ledger.sell(symbol, -raw, values[symbol])
            me.ledger.buy("UNI-V2", liquidity.shares - share_count, sum(values.values(), Fraction(0)) + fee)
            liquidity.add(changes)
        share_count = liquidity.shares
    report, _ = world.read(me, treat_liquidity="disposal")
    assert_equal(report, me)


def test_shares_that_are_sold_close_what_went_in_for_them(world: World) -> None:
    me = world.wallet(WETH=10 * 10**18, USDC=50_000 * 10**6)
    liquidity = Liquidity(world, me)
    steps = change_liquidity(world, liquidity)
    for _ in range(2):
        liquidity.add(next(steps)[2])
    shares, pair = liquidity.shares // 2, world.contract("UniswapV2Pair WETH/USDC")
    went_in = liquidity.take(shares)
    me.do(tx(me.address, pair, "transfer(address,uint256)", world.deployment.accounts["ivan"], shares))
    report, _ = world.read(me)
    amounts = {each.symbol: Decimal(each.amount) for each in report.holdings}
    assert amounts["usdc"] == Decimal(me.ledger.quantity("USDC") - went_in["USDC"]).scaleb(-6)
    assert amounts["eth"] == Decimal(me.ledger.quantity(ETH) - went_in[ETH]).scaleb(-18)
    assert {(gain.symbol, gain.gain) for gain in report.gains if gain.kind == "sent"} == {
        ("eth", "N/A"),
        ("usdc", "N/A"),
    }
    assert report.unknown, "nobody says what the shares were worth"


def types_of(records: Sequence[TransactionDocument]) -> list[str]:
    """The types of the transactions in which something came for something else."""
    return [record.type for record in records if record.assets_in and record.assets_out]
