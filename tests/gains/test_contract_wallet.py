"""A contract wallet: others send its transactions, and every call is `execTransaction`."""

from __future__ import annotations

import pytest

from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.deploy import FOREVER
from chainfolio.localchain.evm import MAX, Tx, created_address, tx, words
from chainfolio.localchain.trade import set_price
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH, Wallet
from tests.gains.test_uniswap_v2 import ADD, REMOVE, Liquidity
from tests.gains.test_uniswap_v2 import swap_by_others as swap_v2
from tests.gains.test_uniswap_v3 import Position
from tests.gains.test_uniswap_v3 import swap_by_others as swap_v3

pytestmark = pytest.mark.node
SUPPLY, WITHDRAW = "supply(address,uint256,address,uint16)", "withdraw(address,uint256,address)"


class ContractWallet(Wallet):
    """A wallet whose owner pays for its transactions."""

    def do(self, *transactions: Tx) -> dict[str, int]:
        """Let the owner execute transactions."""
        owner, execute = self.deployment.accounts["alice"], "execTransaction(address,uint256,bytes)"
        return super().do(
            *(
                tx(owner, self.address, execute, each.to, each.value, bytes.fromhex(each.data[2:]), gas=2_000_000)
                for each in transactions
            )
        )


def contract_wallet(world: World, **got: int) -> ContractWallet:
    """A new contract wallet of alice's, by default with wrapped ether and dollars."""
    alice = world.deployment.accounts["alice"]
    nonce = int(world.node.rpc("eth_getTransactionCount", alice, "latest"), 16)
    world.node.settle([Tx(alice, None, artifact("Wallet").creation(words(["address[]"], [alice])), gas=5_000_000)])
    wallet = ContractWallet(world.node, world.deployment, created_address(alice, nonce).lower(), world.wallet().assets)
    for symbol, raw in (got or {"WETH": 10 * 10**18, "USDC": 50_000 * 10**6}).items():
        wallet.get(symbol, raw)
    return wallet


def any_wallet(world: World, kind: str, **got: int) -> Wallet:
    """A new wallet with some assets: of a key, or ("a contract wallet") a contract that others call."""
    return contract_wallet(world, **got) if kind == "a contract wallet" else world.wallet(**got)


KINDS = ["a key", "a contract wallet"]


def test_a_pool_share_of_a_contract_wallet_is_a_container(world: World) -> None:
    me = contract_wallet(world)
    router, weth, usdc = world.contract("UniswapV2Router02"), world.contract("WETH"), world.contract("USDC")
    liquidity = Liquidity(world, me)
    tokens = ("WETH", "USDC", "UniswapV2Pair WETH/USDC")
    me.do(*(tx(me.address, world.contract(each), "approve(address,uint256)", router, MAX) for each in tokens))
    amounts = (4 * 10**18, 10_000 * 10**6, 0, 0, me.address, FOREVER)
    liquidity.add(me.do(tx(me.address, router, ADD, weth, usdc, *amounts)))
    swap_v2(world, "USDC", "WETH", 90_000 * 10**6)
    set_price(world.node, world.deployment, "ETH", 2_300 * 10**8)
    for part in (2, 1):
        shares = liquidity.shares // part
        went_in = liquidity.take(shares)
        me.withdraw(went_in, me.do(tx(me.address, router, REMOVE, weth, usdc, shares, 0, 0, me.address, FOREVER)))
    report, records = world.read(me)
    types = [each.type for each in records if each.assets_in and each.assets_out]
    assert types == ["ADDLIQUIDITY", "REMOVELIQUIDITY", "REMOVELIQUIDITY"]
    assert_equal(report, me)


def test_a_position_of_a_contract_wallet_is_a_container_in_three_steps(world: World) -> None:
    me = contract_wallet(world)
    position = Position(world, me)
    position.open(3 * 10**18, 6_000 * 10**6, by_site=False)
    swap_v3(world, "USDC", "WETH", 60_000 * 10**6)
    units = position.liquidity
    went_in, principal = position.released(units)
    assert me.do(position.decrease(units)) == {}
    set_price(world.node, world.deployment, "ETH", 2_600 * 10**8)
    position.withdraw(went_in, principal, me.do(position.collect()))
    me.do(tx(me.address, position.manager, "burn(uint256)", position.number))
    report, _ = world.read(me)
    assert me.ledger.income > 0
    assert_equal(report, me)


def test_what_a_contract_wallet_lends_comes_back_with_interest(world: World) -> None:
    me = contract_wallet(world)
    pool, usdc = world.contract("Pool"), world.contract("USDC")
    me.do(tx(me.address, usdc, "approve(address,uint256)", pool, MAX))
    me.do(tx(me.address, pool, SUPPLY, usdc, 20_000 * 10**6, me.address, 0))
    (received,) = me.do(tx(me.address, pool, WITHDRAW, usdc, MAX, me.address)).values()
    report, _ = world.read(me)
    assert received == 20_000 * 10**6
    assert me.ledger.quantity(ETH) == 10 * 10**18
    assert_equal(report, me)
