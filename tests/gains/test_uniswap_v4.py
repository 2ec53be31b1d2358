"""Uniswap V4: events have no amounts and each change pays fees, so movements give the amounts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest

from chainfolio.adapters.evm.protocols.uniswap_v4 import MODIFIED, changes, pool_id
from chainfolio.localchain.evm import MAX, Tx, tx
from chainfolio.localchain.trade import set_price
from chainfolio.position_changes import EventLog, PositionChange
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH, Wallet
from tests.gains.test_contract_wallet import contract_wallet
from tests.protocols.uniswap_v4_deployment import (
    HIGHEST_PRICE,
    KEY,
    LOWEST_PRICE,
    MAX128,
    MINT,
    PERMIT2,
    SWAP,
    SWEEP,
    UniswapV4,
    uniswap_v4,
)

pytestmark = pytest.mark.node
INCREASE, SETTLE_PAIR, CLOSE_CURRENCY = 0x00, 0x0D, 0x12
UNITS = 10**15
NFT, POOLS = "0x" + "ab" * 20, "0x" + "cd" * 20


@pytest.fixture(scope="module")
def v4(world: World) -> UniswapV4:
    with world.node.by_hand():
        return uniswap_v4(world.node, world.deployment)


@dataclass
class Position:
    """A position of ether and USDC with its deposits; no file names its manager."""

    world: World
    v4: UniswapV4
    me: Wallet
    by_multicall: bool = False
    number: int = 0
    deposits: dict[str, int] = field(default_factory=lambda: {ETH: 0, "USDC": 0})

    @property
    def liquidity(self) -> int:
        """The liquidity of the position."""
        raw: int = self.world.node.call(self.v4.positions, "getPositionLiquidity(uint256)(uint128)", self.number)
        return raw

    def do(self, each: Tx) -> dict[str, int]:
        """Send a transaction of the position manager, alone or as a call of many calls."""
        if self.by_multicall:
            call, types = [bytes.fromhex(each.data[2:])], "multicall(bytes[])"
            each = tx(each.sender, each.to or "", types, call, value=each.value, gas=3_000_000)
        return self.me.do(each)

    def open(self) -> None:
        """Create the position. What is too much of the ether is given back."""
        usdc, key = self.world.contract("USDC"), self.v4.keys[0]
        self.me.do(tx(self.me.address, usdc, "approve(address,uint256)", PERMIT2, MAX))
        _, tick = self.world.node.call(self.v4.view, "getSlot0(bytes32)(uint160,int24)", pool_id(key))
        lower = tick // 10 * 10 - 3_000
        mint = (key, lower, lower + 6_000, UNITS, MAX128, MAX128, self.me.address, b"")
        changes = self.do(
            self.v4.act(
                self.me.address,
                (MINT, f"{KEY} int24 int24 uint256 uint128 uint128 address bytes", mint),
                *self._settlement(key),
                value=5 * 10**18,
            )
        )
        self.number = self.world.node.call(self.v4.positions, "nextTokenId()(uint256)") - 1
        self._put(changes)

    def _settlement(self, key: Any) -> Sequence[tuple[int, str, Sequence[Any]]]:
        return (
            (SETTLE_PAIR, "address address", key[:2]),
            (SWEEP, "address address", (key[0], self.me.address)),
        )

    def increase(self, units: int) -> None:
        """Add liquidity. Fees pay a part of it."""
        key, types = self.v4.keys[0], "uint256 uint256 uint128 uint128 bytes"
        self._put(
            self.do(
                self.v4.act(
                    self.me.address,
                    (INCREASE, types, (self.number, units, MAX128, MAX128, b"")),
                    *((CLOSE_CURRENCY, "address", (token,)) for token in key[:2]),
                    (SWEEP, "address address", (key[0], self.me.address)),
                    value=5 * 10**18,
                )
            )
        )

    def _put(self, changes: dict[str, int]) -> None:
        assert changes.keys() == self.deposits.keys()
        for symbol, raw in changes.items():
            assert raw < 0
            self.deposits[symbol] -= raw

    def collect(self) -> None:
        """Take the fees."""
        changes = self.do(self.v4.decrease(self.me.address, self.v4.keys[0], self.number, 0))
        assert changes
        for symbol, raw in changes.items():
            self.me.ledger.earn(symbol, raw, self.me.value(symbol, raw))

    def remove(self, units: int) -> None:
        """Take liquidity out, with fees."""
        went_in = {symbol: raw * units // self.liquidity for symbol, raw in self.deposits.items()}
        for symbol, raw in went_in.items():
            self.deposits[symbol] -= raw
        key, me = self.v4.keys[0], self.me.address
        is_all = units == self.liquidity
        order = self.v4.burn(me, key, self.number) if is_all else self.v4.decrease(me, key, self.number, units)
        self.me.withdraw(went_in, self.do(order))


def swap_by_others(world: World, v4: UniswapV4, sold: str, raw: int) -> None:
    """Trade in the pool by another account, which changes its ratio and earns its positions fees."""
    heidi, is_ether = world.deployment.accounts["heidi"], sold == ETH
    order = (is_ether, -raw, LOWEST_PRICE if is_ether else HIGHEST_PRICE)
    approve = tx(heidi, world.contract("USDC"), "approve(address,uint256)", v4.swapper, MAX)
    swap = tx(heidi, v4.swapper, SWAP, v4.keys[0], order, (False, False), b"", value=raw if is_ether else 0)
    world.node.settle([approve, swap])


def live(position: Position) -> None:
    """Open, add, earn, claim, partly close and close."""
    world, v4 = position.world, position.v4
    position.open()
    set_price(world.node, world.deployment, "ETH", 2_300 * 10**8)
    swap_by_others(world, v4, "USDC", 8_000 * 10**6)
    position.increase(UNITS // 2)
    swap_by_others(world, v4, ETH, 3 * 10**18)
    position.collect()
    assert position.me.ledger.income > 0
    swap_by_others(world, v4, "USDC", 3_000 * 10**6)
    position.remove(position.liquidity // 3)
    set_price(world.node, world.deployment, "ETH", 2_450 * 10**8)
    swap_by_others(world, v4, ETH, 10**18)
    position.remove(position.liquidity)
    assert position.deposits == {ETH: 0, "USDC": 0}


@pytest.mark.slow("the same steps in one call", only=["multicall"])
@pytest.mark.parametrize("by_multicall", [False, True], ids=["alone", "multicall"])
def test_fees_of_a_v4_position_are_income_and_what_was_put_in_keeps_its_lots(
    world: World, v4: UniswapV4, by_multicall: bool
) -> None:
    me = world.wallet(ETH=20 * 10**18, USDC=50_000 * 10**6)
    live(Position(world, v4, me, by_multicall))
    assert me.ledger.closed != Fraction(0)
    report, records = world.read(me)
    assert_equal(report, me)
    assert next(record.type for record in records if record.assets_out) == "ADDLIQUIDITY"


def test_a_v4_position_is_sold_for_its_liquidity_if_the_owner_says_so(world: World, v4: UniswapV4) -> None:
    me = world.wallet(ETH=20 * 10**18, USDC=50_000 * 10**6)
    position, ledger = Position(world, v4, me), me.ledger
    position.open()
    values = {symbol: me.value(symbol, raw) for symbol, raw in position.deposits.items()}
    for symbol, raw in position.deposits.items():
        ledger.sell(symbol, raw, values[symbol])
    ledger.buy("position", position.liquidity, sum(values.values(), Fraction(0)) + me.fee)
    swap_by_others(world, v4, "USDC", 3_000 * 10**6)
    set_price(world.node, world.deployment, "ETH", 2_450 * 10**8)
    for units in (position.liquidity // 3, position.liquidity - position.liquidity // 3):
        changes = position.do(v4.decrease(me.address, v4.keys[0], position.number, units))
        values = {symbol: me.value(symbol, raw) for symbol, raw in changes.items()}
        ledger.sell("position", units, sum(values.values(), Fraction(0)))
        for symbol, raw in changes.items():
            ledger.buy(symbol, raw, values[symbol] + me.fee / len(changes))
    report, _ = world.read(me, treat_liquidity="disposal")
    assert_equal(report, me)


def test_a_v4_position_of_a_contract_wallet_is_a_container(world: World, v4: UniswapV4) -> None:
    me = contract_wallet(world)
    me.get(ETH, 20 * 10**18)
    live(Position(world, v4, me))
    report, _ = world.read(me)
    assert_equal(report, me)


def test_each_change_of_a_v4_position_names_the_one_that_logged_it() -> None:
    topics = (MODIFIED, "0x" + "00" * 32, "0x" + NFT[2:].rjust(64, "0"))
    data = b"".join(each.to_bytes(32, "big", signed=True) for each in (-60, 60, -5, 7))
    (change,) = changes([EventLog(POOLS, topics, data), EventLog(POOLS, topics[:2], data)])
    assert change == PositionChange(NFT, 7, -5, ("", ""), (0, 0), POOLS, has_amounts=False)
    with pytest.raises(ValueError, match=f"several contracts logged changes of 7 of {NFT}"):
        changes([EventLog(POOLS, topics, data), EventLog(NFT, topics, data)])
