"""Balancer: shares of weighted and stable pools are containers, also in a gauge or a lock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from chainfolio.localchain.deploy import FOREVER
from chainfolio.localchain.evm import MAX, call_data, tx
from chainfolio.localchain.trade import set_price
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH, Wallet
from tests.gains.scripted import Call, approve, contract
from tests.gains.test_farms import earn
from tests.protocols.balancer_v2_deployment import (
    EXACT_TOKENS_IN,
    GAS,
    JOIN,
    SWAP,
    WEEK_S,
    Balancer,
    balancer,
    join,
)
from tests.protocols.gauge_deployment import gauge

pytestmark = pytest.mark.node
ONE_TOKEN, ALL_TOKENS = 0, 1  # what shares of a weighted or a stable pool are exchanged for
EXIT_COMPOSABLE = 2
NAMES = {"WETH": ETH}
BATCH = (
    "batchSwap(uint8,(bytes32,uint256,uint256,uint256,bytes)[],address[],(address,bool,address,bool),int256[],uint256)"
)


@pytest.fixture(scope="module")
def contracts(world: World) -> Balancer:
    with world.node.by_hand():
        deployed = balancer(world.node, world.deployment)
    world.pass_time(1)
    return deployed


@dataclass
class Liquidity:
    """A wallet's shares of a pool and the deposits behind them."""

    world: World
    contracts: Balancer
    me: Wallet
    pool: str
    deposits: dict[str, int] = field(default_factory=dict)
    index: int = 0  # of the token to take alone

    @property
    def shares(self) -> int:
        """The shares of the wallet."""
        raw: int = self.world.node.call(self.pool, "balanceOf(address)(uint256)", self.me.address)
        return raw

    def join(self, **raws: int) -> None:
        """Put some of each token in."""
        number = self.world.node.call(self.pool, "getPoolId()(bytes32)")
        ask = "getPoolTokens(bytes32)(address[],uint256[],uint256)"
        tokens, *_ = self.world.node.call(self.contracts.vault, ask, number)
        amounts = {self.world.contract(symbol).lower(): raw for symbol, raw in raws.items()}
        approve = "approve(address,uint256)"
        me = self.me.address
        changes = self.me.do(
            *(tx(me, self.world.contract(symbol), approve, self.contracts.vault, MAX) for symbol in raws),
            tx(
                me,
                self.contracts.vault,
                JOIN,
                number,
                me,
                me,
                join(EXACT_TOKENS_IN, tokens, amounts, self.pool),
                gas=GAS,
            ),
        )
        assert changes == {NAMES.get(symbol, symbol): -raw for symbol, raw in raws.items()}
        for symbol, raw in changes.items():
            self.deposits[symbol] = self.deposits.get(symbol, 0) - raw

    def exit(self, shares: int, kind: int) -> None:
        """Take a part out."""
        went_in = {symbol: raw * shares // self.shares for symbol, raw in self.deposits.items()}
        for symbol, raw in went_in.items():
            self.deposits[symbol] -= raw
        node, me = self.world.node, self.me
        index = [self.index] if kind == ONE_TOKEN else []
        me.withdraw(went_in, me.do(self.contracts.exit(node, me.address, self.pool, shares, kind, *index)))


def swap_by_others(world: World, contracts: Balancer, pool: str, pair: tuple[str, str], raw: int) -> None:
    """Trade in a pool by another account, which changes its ratio."""
    heidi, (sold, bought) = world.deployment.accounts["heidi"], (world.contract(symbol) for symbol in pair)
    number = world.node.call(pool, "getPoolId()(bytes32)")
    approve = tx(heidi, sold, "approve(address,uint256)", contracts.vault, MAX)
    single, funds = (number, 0, sold, bought, raw, b""), (heidi, False, heidi, False)
    world.node.settle([approve, tx(heidi, contracts.vault, SWAP, single, funds, 0, FOREVER, gas=GAS)])


def test_shares_of_a_weighted_pool_are_a_container(world: World, contracts: Balancer) -> None:
    pool = contracts.pools["weighted"]
    liquidity = Liquidity(world, contracts, world.wallet(WETH=10 * 10**18, USDC=50_000 * 10**6), pool)
    liquidity.join(WETH=3 * 10**18, USDC=2_000 * 10**6)
    swap_by_others(world, contracts, pool, ("USDC", "WETH"), 20_000 * 10**6)
    set_price(world.node, world.deployment, "ETH", 2_300 * 10**8)
    liquidity.join(WETH=10**18, USDC=9_000 * 10**6)
    swap_by_others(world, contracts, pool, ("USDC", "WETH"), 20_000 * 10**6)
    liquidity.exit(liquidity.shares // 3, ALL_TOKENS)
    liquidity.index = int(int(world.contract("WETH"), 16) > int(world.contract("USDC"), 16))
    liquidity.exit(liquidity.shares // 2, ONE_TOKEN)
    set_price(world.node, world.deployment, "ETH", 2_450 * 10**8)
    liquidity.exit(liquidity.shares, ALL_TOKENS)
    report, records = world.read(liquidity.me)
    assert liquidity.deposits == {ETH: 0, "USDC": 0}
    assert_equal(report, liquidity.me)
    vault = contracts.vault.lower()
    assert [each.type for each in records if each.recipient == vault] == ["ADDLIQUIDITY"] * 2 + ["REMOVELIQUIDITY"] * 3


@pytest.mark.slow("another version of the same pool", only=["composable*"])
@pytest.mark.parametrize(("name", "all_tokens"), [("stable", ALL_TOKENS), ("composable", EXIT_COMPOSABLE)])
def test_shares_of_a_stable_pool_are_a_container(world: World, contracts: Balancer, name: str, all_tokens: int) -> None:
    pool = contracts.pools[name]
    liquidity = Liquidity(world, contracts, world.wallet(DAI=50_000 * 10**18, USDC=50_000 * 10**6), pool)
    liquidity.join(DAI=9_000 * 10**18, USDC=2_000 * 10**6)
    swap_by_others(world, contracts, pool, ("USDC", "DAI"), 50_000 * 10**6)
    liquidity.exit(liquidity.shares // 3, all_tokens)
    liquidity.exit(liquidity.shares // 2, ONE_TOKEN)
    liquidity.exit(liquidity.shares, all_tokens)
    report, _ = world.read(liquidity.me)
    assert_equal(report, liquidity.me)


def swap(liquidity: Liquidity, sold: str, bought: str, raw: int) -> dict[str, int]:
    """Let the wallet swap in the vault, where shares of a composable pool are among its tokens."""
    me, vault = liquidity.me.address, liquidity.contracts.vault
    number = liquidity.world.node.call(liquidity.pool, "getPoolId()(bytes32)")
    single, funds = (number, 0, sold, bought, raw, b""), (me, False, me, False)
    approval = tx(me, sold, "approve(address,uint256)", vault, MAX)
    return liquidity.me.do(approval, tx(me, vault, SWAP, single, funds, 0, FOREVER, gas=GAS))


@pytest.fixture
def with_file(world: World, contracts: Balancer) -> Iterator[World]:
    """The chain with the file of the protocol."""
    world.files["balancer"] = contracts.file
    yield world
    world.files.clear()


def test_swaps_for_shares_of_a_composable_pool_keep_lots(with_file: World, contracts: Balancer) -> None:
    world, pool = with_file, contracts.pools["composable"]
    me = world.wallet(DAI=50_000 * 10**18, USDC=50_000 * 10**6)
    liquidity = Liquidity(world, contracts, me, pool)
    usdc, dai = world.contract("USDC"), world.contract("DAI")
    set_price(world.node, world.deployment, "USDC", 99_000_000)
    for token, symbol, raw in ((usdc, "USDC", 6_000 * 10**6), (dai, "DAI", 9_000 * 10**18)):
        assert swap(liquidity, token, pool, raw) == {symbol: -raw}
        liquidity.deposits[symbol] = raw
    set_price(world.node, world.deployment, "USDC", 10**8)
    report, records = world.read(me)
    assert (report.unknown, report.unexplained, report.closed_pnl, report.income) == ({}, (), "0", "0")
    assert [each.type for each in records][-3::2] == ["SWAP"] * 2
    swap_by_others(world, contracts, pool, ("USDC", "DAI"), 50_000 * 10**6)
    shares = liquidity.shares
    went_in = {symbol: raw * (shares // 4) // shares for symbol, raw in liquidity.deposits.items()}
    liquidity.deposits = {symbol: raw - went_in[symbol] for symbol, raw in liquidity.deposits.items()}
    me.withdraw(went_in, swap(liquidity, pool, usdc, shares // 4))
    liquidity.exit(liquidity.shares // 3, EXIT_COMPOSABLE)
    me.withdraw(liquidity.deposits, swap(liquidity, pool, dai, liquidity.shares))
    assert not liquidity.shares
    report, _ = world.read(me)
    assert_equal(report, me)


def test_a_lock_of_shares_keeps_their_lots(world: World, contracts: Balancer) -> None:
    pool = contracts.pools["weighted"]
    liquidity = Liquidity(world, contracts, world.wallet(WETH=10 * 10**18, USDC=50_000 * 10**6), pool)
    me, address, node = liquidity.me, liquidity.me.address, world.node
    liquidity.join(WETH=3 * 10**18, USDC=2_000 * 10**6)
    shares = liquidity.shares
    unlock_s = int(node.block()["timestamp"], 16) + 5 * WEEK_S
    me.do(tx(address, pool, "approve(address,uint256)", contracts.escrow, MAX))
    me.do(tx(address, contracts.escrow, "create_lock(uint256,uint256)", shares // 2, unlock_s, gas=3_000_000))
    me.do(tx(address, contracts.escrow, "increase_amount(uint256)", shares // 4, gas=3_000_000))
    me.do(tx(address, contracts.escrow, "increase_unlock_time(uint256)", unlock_s + 2 * WEEK_S, gas=3_000_000))
    swap_by_others(world, contracts, pool, ("USDC", "WETH"), 20_000 * 10**6)
    world.pass_time(8 * WEEK_S)
    assert me.do(tx(address, contracts.escrow, "withdraw()", gas=3_000_000)) == {}
    assert liquidity.shares == shares
    liquidity.exit(shares, ALL_TOKENS)
    report, _ = world.read(me)
    assert_equal(report, me)


def test_rewards_of_a_gauge_are_income_and_its_stake_is_not(world: World, contracts: Balancer) -> None:
    with world.node.by_hand():
        authorizer = world.node.call(contracts.vault, "getAuthorizer()(address)")
        staked, minter = gauge(world.node, world.deployment, contracts, authorizer)
    world.pass_time(1)
    world.rewards["BAL"] = world.node.call(minter, "getBalancerToken()(address)")
    pool = contracts.pools["weighted"]
    liquidity = Liquidity(world, contracts, world.wallet(WETH=10 * 10**18, USDC=50_000 * 10**6), pool)
    me, address = liquidity.me, liquidity.me.address
    liquidity.join(WETH=3 * 10**18, USDC=2_000 * 10**6)
    shares = liquidity.shares
    me.do(tx(address, pool, "approve(address,uint256)", staked, MAX))
    assert me.do(tx(address, staked, "deposit(uint256)", shares // 2, gas=4_000_000)) == {}
    world.pass_time(WEEK_S // 4)
    earn(me, me.do(tx(address, staked, "claim_rewards()", gas=4_000_000)), "DAI")
    me.do(tx(address, staked, "deposit(uint256)", shares // 4, gas=4_000_000))
    world.pass_time(WEEK_S // 8)
    earn(me, me.do(tx(address, minter, "mint(address)", staked, gas=4_000_000)), "BAL")
    me.do(tx(address, staked, "withdraw(uint256)", shares // 3, gas=4_000_000))
    world.pass_time(WEEK_S // 8)
    remaining = shares // 2 + shares // 4 - shares // 3
    earn(me, me.do(tx(address, staked, "withdraw(uint256,bool)", remaining, True, gas=4_000_000)), "DAI")
    assert liquidity.shares == shares
    liquidity.exit(shares, ALL_TOKENS)
    report, _ = world.read(me)
    assert_equal(report, me)


def test_open_deposit_of_one_token_has_a_known_gain(with_file: World, contracts: Balancer) -> None:
    pool, me = contracts.pools["composable"], with_file.wallet(USDC=50_000 * 10**6)
    liquidity = Liquidity(with_file, contracts, me, pool)
    assert swap(liquidity, with_file.contract("USDC"), pool, 6_000 * 10**6) == {"USDC": -6_000 * 10**6}
    report, _ = with_file.read(me)
    assert (report.unknown, report.unexplained, report.closed_pnl, report.income) == ({}, (), "0", "0")
    assert abs(float(report.open_pnl)) < 150, "the pool has fees"


def test_swap_for_a_share_through_another_pool_is_a_sale(with_file: World, contracts: Balancer) -> None:
    world, pool, vault = with_file, contracts.pools["composable"], contracts.vault
    set_price(world.node, world.deployment, "ETH", 1_000 * 10**8)
    me, weth, usdc = world.wallet(WETH=2 * 10**18), world.contract("WETH"), world.contract("USDC")
    set_price(world.node, world.deployment, "ETH", 2_500 * 10**8)
    first, second = (world.node.call(each, "getPoolId()(bytes32)") for each in (contracts.pools["weighted"], pool))
    hops = [(first, 0, 1, 10**18, b""), (second, 1, 2, 0, b"")]
    a, funds, limits = me.address, (me.address, False, me.address, False), [MAX // 2] * 3
    me.do(
        tx(a, weth, "approve(address,uint256)", vault, MAX),
        tx(a, vault, BATCH, 0, hops, [weth, usdc, pool], funds, limits, FOREVER, gas=GAS),
    )
    report, _ = world.read(me)
    sold = [each.amount for each in report.gains if each.kind == "sell"]
    assert sold == ["1"]


def test_payment_beside_a_strangers_swap_for_the_wallet_is_no_deposit(with_file: World, contracts: Balancer) -> None:
    world, pool, vault = with_file, contracts.pools["composable"], contracts.vault
    set_price(world.node, world.deployment, "USDC", 10**8)
    me, usdc, merchant = world.wallet(USDC=20_000 * 10**6), world.contract("USDC"), contract(world, is_funded=False)
    world.node.settle(
        [tx(world.deployment.accounts["ivan"], usdc, "transfer(address,uint256)", merchant.address, 10**6)]
    )
    approve(me, merchant, "USDC")
    set_price(world.node, world.deployment, "USDC", 110_000_000)
    single = (world.node.call(pool, "getPoolId()(bytes32)"), 0, usdc, pool, 10**4, b"")
    funds = (merchant.address, False, me.address, False)
    steps = [
        merchant.take(me, "USDC", 5_000 * 10**6),
        Call(usdc, call_data("approve(address,uint256)", vault, MAX)),
        Call(vault, call_data(SWAP, single, funds, 0, FOREVER)),
    ]
    merchant.script("charge()", steps)
    me.do(tx(world.deployment.accounts["heidi"], merchant.address, "charge()", gas=GAS))
    report, _ = world.read(me)
    set_price(world.node, world.deployment, "USDC", 10**8)
    assert [each.amount for each in report.gains if each.symbol == "usdc" and each.kind != "fee"] == ["5000"]
    assert not any(each.place == "protocols" for each in report.unexplained)


def test_deposit_for_a_friend_makes_no_income_of_own_shares(with_file: World, contracts: Balancer) -> None:
    world, pool, vault = with_file, contracts.pools["composable"], contracts.vault
    me, usdc, friend = world.wallet(USDC=20_000 * 10**6), world.contract("USDC"), world.deployment.accounts["heidi"]
    number = world.node.call(pool, "getPoolId()(bytes32)")
    tokens, *_ = world.node.call(vault, "getPoolTokens(bytes32)(address[],uint256[],uint256)", number)
    data = join(EXACT_TOKENS_IN, tokens, {usdc.lower(): 10**6}, pool)
    a = me.address
    me.do(tx(a, usdc, "approve(address,uint256)", vault, MAX), tx(a, vault, JOIN, number, a, friend, data, gas=GAS))
    swap(Liquidity(world, contracts, me, pool), usdc, pool, 6_000 * 10**6)
    report, _ = world.read(me)
    sold = [each for each in report.gains if each.kind not in ("fee", "sell") or each.symbol == "usdc"]
    assert (sold, report.income, report.closed_pnl) == ([], "0", "0")
