"""Balancer V2 on a local chain: pools of three kinds with trades, and an escrow.

The protocol takes half of the fees. The escrow is Curve's code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chainfolio.localchain.deploy import FOREVER, WAD, Deployer, Deployment, Token, checked
from chainfolio.localchain.evm import MAX, ZERO, Tx, selector, tx, words
from chainfolio.localchain.node import LocalNode

JOIN = "joinPool(bytes32,address,address,(address[],uint256[],bytes,bool))"
EXIT = "exitPool(bytes32,address,address,(address[],uint256[],bytes,bool))"
SWAP = "swap((bytes32,uint8,address,address,uint256,bytes),(address,bool,address,bool),uint256,uint256)"
INIT, EXACT_TOKENS_IN = 0, 1
GAS = 15_000_000
WEEK_S = 7 * 86_400


@dataclass(frozen=True)
class Balancer:
    """The vault, its pools by name, and the escrow in which shares of the weighted one are locked."""

    vault: str
    pools: dict[str, str]
    escrow: str

    @property
    def file(self) -> str:
        """The protocol's file for this chain."""
        head = 'key = "balancer"\nname = "Balancer"\nfamilies = ["balancer_v2", "voting_escrow"]\n'
        head += 'options = {fees = "none"}\n[contracts.local]\n'
        return head + f'vault = ["{self.vault.lower()}"]\nvoting_escrow = ["{self.escrow.lower()}"]\n'

    def exit(self, node: LocalNode, account: str, pool: str, raw: int, kind: int, *index: int) -> Tx:
        """Leaves a pool with so many shares, for a part of each token or for the one with an index."""
        number = node.call(pool, "getPoolId()(bytes32)")
        tokens, *_ = node.call(self.vault, "getPoolTokens(bytes32)(address[],uint256[],uint256)", number)
        wish = bytes.fromhex(words(("uint256", "uint256", "uint256")[: 2 + len(index)], kind, raw, *index))
        request = (tokens, [0] * len(tokens), wish, False)
        return tx(account, self.vault, EXIT, number, account, account, request)


def balancer(node: LocalNode, deployment: Deployment) -> Balancer:
    """Vault, factories, pools, liquidity of two, trades."""
    owner, bob = (deployment.accounts[name] for name in ("deployer", "bob"))
    deployer = Deployer(node, owner, int(node.rpc("eth_getTransactionCount", owner, "pending"), 16))
    weth, usdc, dai = (deployment.tokens[symbol] for symbol in ("WETH", "USDC", "DAI"))
    authorizer = deployer.create("Authorizer", "Authorizer", ("address",), owner)
    types = ("address", "address", "uint256", "uint256")
    vault = deployer.create("BalancerVault", "Balancer Vault", types, authorizer, weth.address, 0, 0, gas=GAS)
    take_half(deployer, vault, authorizer)
    pool_addresses = pools(deployer, vault, deployment)
    types = ("address", "string", "string", "address")
    escrow = deployer.create("VotingEscrow", "VotingEscrow", types, pool_addresses["weighted"], "Vote", "ve", owner)
    protocol = Balancer(vault, pool_addresses, escrow)
    for token in (weth, usdc, dai):
        deployer.do(token.address, "approve(address,uint256)", vault, MAX)
        node.settle([tx(bob, token.address, "approve(address,uint256)", vault, MAX)])
    for name, pool in protocol.pools.items():
        pair = (weth, usdc) if name == "weighted" else (usdc, dai)
        amounts = {token.address.lower(): token.units(100 if token is weth else 200_000) for token in pair}
        number, tokens = pool_of(deployer, vault, pool)
        deployer.do(vault, JOIN, number, owner, owner, join(INIT, tokens, amounts, pool), gas=GAS)
        deployer.settle()
        small_amounts = {token: raw // 50 + 7 for token, raw in amounts.items()}
        request = join(EXACT_TOKENS_IN, tokens, small_amounts, pool)
        node.settle([tx(bob, vault, JOIN, number, bob, bob, request, gas=GAS)])
        trade(deployer, vault, number, pair)
    lock(node, protocol, bob)
    return protocol


def lock(node: LocalNode, protocol: Balancer, bob: str) -> None:
    """Bob locks a third of his shares of the weighted pool for some weeks, which pass."""
    pool = protocol.pools["weighted"]
    third = node.call(pool, "balanceOf(address)(uint256)", bob) // 3
    unlock_s = int(node.block()["timestamp"], 16) + 5 * WEEK_S
    node.settle(
        [
            tx(bob, pool, "approve(address,uint256)", protocol.escrow, third),
            tx(bob, protocol.escrow, "create_lock(uint256,uint256)", third, unlock_s, gas=3_000_000),
        ]
    )
    node.mine(1, 6 * WEEK_S)


def take_half(deployer: Deployer, vault: str, authorizer: str) -> None:
    """The protocol takes half of the fees for swaps."""
    collector = checked(deployer.read(vault, "getProtocolFeesCollector()(address)"))
    change = "setSwapFeePercentage(uint256)"
    action = deployer.read(collector, "getActionId(bytes4)(bytes32)", bytes.fromhex(selector(change)[2:]))
    deployer.do(authorizer, "grantRole(bytes32,address)", action, deployer.account)
    deployer.do(collector, change, WAD // 2)


def pools(deployer: Deployer, vault: str, deployment: Deployment) -> dict[str, str]:
    """One pool of each factory."""
    weth, usdc, dai = (deployment.tokens[symbol].address for symbol in ("WETH", "USDC", "DAI"))
    provider = deployer.create(
        "ProtocolFeePercentagesProvider",
        "ProtocolFeePercentagesProvider",
        ("address", "uint256", "uint256"),
        vault,
        WAD // 2,
        WAD // 2,
    )
    types, args = ("address", "address", "string", "string"), (vault, provider, "", "")
    weighted = deployer.create("WeightedPoolFactory", "WeightedPoolFactory", types, *args, gas=GAS)
    composable = deployer.create("ComposableStablePoolFactory", "ComposableStablePoolFactory", types, *args, gas=GAS)
    stable = deployer.create("StablePoolFactory", "StablePoolFactory", ("address",), vault, gas=GAS)
    two = sorted((weth, usdc), key=lambda token: int(token, 16))
    coins = sorted((usdc, dai), key=lambda token: int(token, 16))
    weights = [WAD * 8 // 10 if token == weth else WAD * 2 // 10 for token in two]
    fee, none = WAD // 100, [ZERO, ZERO]
    return {
        "weighted": create(
            deployer,
            weighted,
            "create(string,string,address[],uint256[],address[],uint256,address)",
            "80/20",
            "80-20",
            two,
            weights,
            none,
            fee,
            deployer.account,
        ),
        "stable": create(
            deployer,
            stable,
            "create(string,string,address[],uint256,uint256,address)",
            "Stable",
            "ST",
            coins,
            200,
            fee,
            deployer.account,
        ),
        "composable": create(
            deployer,
            composable,
            "create(string,string,address[],uint256,address[],uint256[],bool[],uint256,address)",
            "Composable",
            "CS",
            coins,
            200,
            none,
            [0, 0],
            [False, False],
            fee,
            deployer.account,
        ),
    }


def create(deployer: Deployer, factory: str, signature: str, *args: Any) -> str:
    """Create a pool with a factory and return its address."""
    deployer.settle()
    address = deployer.node.call(factory, f"{signature}(address)", *args, sender=deployer.account)
    deployer.do(factory, signature, *args, gas=GAS)
    return checked(address)


def pool_of(deployer: Deployer, vault: str, pool: str) -> tuple[bytes, Sequence[str]]:
    """The number of a pool, and its tokens."""
    number = deployer.read(pool, "getPoolId()(bytes32)")
    return number, deployer.read(vault, "getPoolTokens(bytes32)(address[],uint256[],uint256)", number)[0]


def join(kind: int, tokens: Sequence[str], amounts: dict[str, int], pool: str) -> tuple[Any, ...]:
    """Return the request with which the vault's `joinPool` puts these amounts into a pool.

    The pool's own shares are among the amounts in the first join only.
    """
    raws = [amounts.get(token, 0) for token in tokens if kind == INIT or token != pool.lower()]
    wish = words(("uint256", "uint256[]", "uint256")[: 2 + kind], kind, raws, *[0] * kind)
    return tokens, [MAX] * len(tokens), bytes.fromhex(wish), False


def trade(deployer: Deployer, vault: str, number: bytes, pair: tuple[Token, Token]) -> None:
    """A few swaps back and forth."""
    me = deployer.account
    for at in range(4):
        sold, bought = pair if at % 2 else pair[::-1]
        raw = sold.units(3 + at) if sold.symbol == "WETH" else sold.units(9_000 + at)
        single = (number, 0, sold.address, bought.address, raw, b"")
        deployer.do(vault, SWAP, single, (me, False, me, False), 0, FOREVER)
    deployer.settle()
