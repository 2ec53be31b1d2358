"""Uniswap V3: a position is a container that keeps its lots, and only fees are income."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import pytest

from chainfolio.localchain.deploy import FOREVER, MINT_POSITION, POOL_FEE
from chainfolio.localchain.evm import MAX, ZERO, Tx, call_data, tx
from chainfolio.localchain.trade import set_price
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH, Wallet

pytestmark = pytest.mark.node
INCREASE = "increaseLiquidity((uint256,uint256,uint256,uint256,uint256,uint256))"
DECREASE = "decreaseLiquidity((uint256,uint128,uint256,uint256,uint256))"
COLLECT = "collect((uint256,address,uint128,uint128))"
SWAP = "exactInputSingle((address,address,uint24,address,uint256,uint256,uint256,uint160))"
SHAPE = "(uint96,address,address,address,uint24,int24,int24,uint128,uint256,uint256,uint128,uint128)"
ALL = 2**128 - 1
NAMES = {"WETH": ETH}


@dataclass
class Position:
    """A position of ether and USDC with its deposits; no file names its manager."""

    world: World
    me: Wallet
    number: int = 0
    deposits: dict[str, int] = field(default_factory=lambda: {ETH: 0, "USDC": 0})

    @property
    def manager(self) -> str:
        """The position manager."""
        return self.world.contract("NonfungiblePositionManager")

    @property
    def symbols(self) -> list[str]:
        """Both tokens in the order of their addresses."""
        return sorted(("WETH", "USDC"), key=lambda symbol: int(self.world.contract(symbol), 16))

    @property
    def liquidity(self) -> int:
        """The liquidity of the position."""
        raw: int = self.world.node.call(self.manager, f"positions(uint256){SHAPE}", self.number)[7]
        return raw

    def by_token(self, weth: int, usdc: int) -> list[int]:
        """Amounts in the order of the tokens."""
        amounts = {"WETH": weth, "USDC": usdc}
        return [amounts[symbol] for symbol in self.symbols]

    def open(self, weth: int, usdc: int, *, by_site: bool) -> None:
        """Create the position with a call of the manager, or as the site does with ether in a multicall."""
        node, manager, me = self.world.node, self.manager, self.me.address
        self.me.do(
            *(tx(me, self.world.contract(each), "approve(address,uint256)", manager, MAX) for each in self.symbols)
        )
        pool = self.world.contract("UniswapV3Pool WETH/USDC")
        tick = node.call(pool, "slot0()(uint160,int24,uint16,uint16,uint16,uint8,bool)")[1] // 60 * 60
        tokens = [self.world.contract(symbol) for symbol in self.symbols]
        order = (*tokens, POOL_FEE, tick - 6000, tick + 6000, *self.by_token(weth, usdc), 0, 0, me, FOREVER)
        if by_site:
            calls = [bytes.fromhex(each[2:]) for each in (call_data(MINT_POSITION, order), call_data("refundETH()"))]
            changes = self.me.do(tx(me, manager, "multicall(bytes[])", calls, value=weth))
        else:
            changes = self.me.do(tx(me, manager, MINT_POSITION, order))
        self.number = node.call(manager, "tokenOfOwnerByIndex(address,uint256)(uint256)", me, 0)
        self._put(changes)

    def increase(self, weth: int, usdc: int) -> None:
        """Add liquidity."""
        order = (self.number, *self.by_token(weth, usdc), 0, 0, FOREVER)
        self._put(self.me.do(tx(self.me.address, self.manager, INCREASE, order)))

    def _put(self, changes: dict[str, int]) -> None:
        assert all(raw < 0 for raw in changes.values())
        for symbol, raw in changes.items():
            self.deposits[symbol] -= raw

    def released(self, liquidity: int) -> tuple[dict[str, int], dict[str, int]]:
        """Return what went in for some of the liquidity, and what removing it would pay, by a call."""
        went_in = {symbol: raw * liquidity // self.liquidity for symbol, raw in self.deposits.items()}
        for symbol, raw in went_in.items():
            self.deposits[symbol] -= raw
        order = (self.number, liquidity, 0, 0, FOREVER)
        raws = self.world.node.call(self.manager, f"{DECREASE}(uint256,uint256)", order, sender=self.me.address)
        principal = {NAMES.get(symbol, symbol): raw for symbol, raw in zip(self.symbols, raws, strict=True)}
        return went_in, principal

    def decrease(self, liquidity: int) -> Tx:
        """A transaction that removes liquidity and pays nothing yet."""
        return tx(self.me.address, self.manager, DECREASE, (self.number, liquidity, 0, 0, FOREVER))

    def collect(self) -> Tx:
        """A transaction that pays everything that is claimable."""
        return tx(self.me.address, self.manager, COLLECT, (self.number, self.me.address, ALL, ALL))

    def collect_by_site(self, liquidity: int) -> Tx:
        """One call of many calls, as the site sends it: remove, collect, and unwrap the ether."""
        manager, me = self.manager, self.me.address
        calls = [
            call_data(DECREASE, (self.number, liquidity, 0, 0, FOREVER)),
            call_data(COLLECT, (self.number, ZERO, ALL, ALL)),
            call_data("unwrapWETH9(uint256,address)", 0, me),
            call_data("sweepToken(address,uint256,address)", self.world.contract("USDC"), 0, me),
        ]
        return tx(me, manager, "multicall(bytes[])", [bytes.fromhex(each[2:]) for each in calls])

    def withdraw(self, went_in: dict[str, int], principal: dict[str, int], changes: dict[str, int]) -> None:
        """Record the principal as returned deposits and the remaining changes as fees."""
        self.me.withdraw(went_in, {symbol: raw for symbol, raw in principal.items() if raw})
        for symbol, raw in changes.items():
            fee = raw - principal.get(symbol, 0)
            assert fee >= 0
            if fee:
                self.me.ledger.earn(symbol, fee, self.me.value(symbol, fee))


def swap_by_others(world: World, sold: str, bought: str, raw: int) -> None:
    """Trade against the pool by another account, which changes its ratio and earns its positions fees."""
    heidi, router = world.deployment.accounts["heidi"], world.contract("SwapRouter")
    approve = tx(heidi, world.contract(sold), "approve(address,uint256)", router, MAX)
    order = (world.contract(sold), world.contract(bought), POOL_FEE, heidi, FOREVER, raw, 0, 0)
    world.node.settle([approve, tx(heidi, router, SWAP, order)])


@pytest.mark.slow("the same steps in one call", only=["multicall"])
@pytest.mark.parametrize("by_site", [False, True], ids=["in-steps", "multicall"])
def test_only_fees_of_a_position_are_income_and_its_principal_keeps_its_lots(world: World, by_site: bool) -> None:
    me = world.wallet(WETH=10 * 10**18, USDC=50_000 * 10**6)
    position = Position(world, me)
    position.open(3 * 10**18, 6_000 * 10**6, by_site=by_site)
    set_price(world.node, world.deployment, "ETH", 2_300 * 10**8)
    swap_by_others(world, "USDC", "WETH", 60_000 * 10**6)
    position.increase(10**18, 3_000 * 10**6)
    swap_by_others(world, "WETH", "USDC", 10 * 10**18)
    position.withdraw({}, {}, me.do(position.collect()))  # fees alone
    assert me.ledger.income > 0
    swap_by_others(world, "USDC", "WETH", 40_000 * 10**6)
    for part in (position.liquidity // 3, 0):
        units = part or position.liquidity
        went_in, principal = position.released(units)
        if by_site:
            changes = me.do(position.collect_by_site(units))
        else:
            me.do(position.decrease(units))
            swap_by_others(world, "WETH", "USDC", 3 * 10**18)
            set_price(world.node, world.deployment, "ETH", 2_450 * 10**8)
            changes = me.do(position.collect())
        position.withdraw(went_in, principal, changes)
    me.do(tx(me.address, position.manager, "burn(uint256)", position.number))
    assert position.deposits == {ETH: 0, "USDC": 0}
    report, records = world.read(me)
    assert me.ledger.closed != Fraction(0)
    assert_equal(report, me)
    assert next(record.type for record in records if record.assets_out) == "ADDLIQUIDITY"
    assert len([record for record in records if record.type == "REMOVELIQUIDITY"]) == (0 if by_site else 2)
    second_report, _ = world.read(me)
    assert second_report.holdings == report.holdings


def test_a_position_is_sold_for_its_liquidity_if_the_owner_says_so(world: World) -> None:
    me = world.wallet(WETH=10 * 10**18, USDC=50_000 * 10**6)
    position, ledger = Position(world, me), me.ledger
    position.open(3 * 10**18, 6_000 * 10**6, by_site=False)
    values = {symbol: me.value(symbol, raw) for symbol, raw in position.deposits.items()}
    for symbol, raw in position.deposits.items():
        ledger.sell(symbol, raw, values[symbol])
    ledger.buy("position", position.liquidity, sum(values.values(), Fraction(0)) + me.fee)
    set_price(world.node, world.deployment, "ETH", 2_300 * 10**8)
    swap_by_others(world, "USDC", "WETH", 60_000 * 10**6)
    swap_by_others(world, "WETH", "USDC", 10 * 10**18)
    for units in (position.liquidity // 3, position.liquidity - position.liquidity // 3):
        _, principal = position.released(units)
        me.do(position.decrease(units))
        set_price(world.node, world.deployment, "ETH", 2_450 * 10**8)
        changes = me.do(position.collect())
        values = {symbol: me.value(symbol, raw) for symbol, raw in principal.items()}
        ledger.sell("position", units, sum(values.values(), Fraction(0)))
        for symbol, raw in principal.items():
            ledger.buy(symbol, raw, values[symbol] + me.fee / 2)
            if fee := changes[symbol] - raw:
                ledger.earn(symbol, fee, me.value(symbol, fee))
    me.do(tx(me.address, position.manager, "burn(uint256)", position.number))
    assert ledger.income > 0
    report, _ = world.read(me, treat_liquidity="disposal")
    assert_equal(report, me)
