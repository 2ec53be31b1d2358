"""Uniswap V4 on a local chain: two pools, one of native coins, with positions that have earned fees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chainfolio.localchain.deploy import FOREVER, Deployer, Deployment, Token, sqrt_price_x96
from chainfolio.localchain.evm import MAX, ZERO, Tx, tx, words
from chainfolio.localchain.node import LocalNode

KEY = "(address,address,uint24,int24,address)"
SWAP = f"swap({KEY},(bool,int256,uint160),(bool,bool),bytes)"
MAX128 = (1 << 128) - 1
DECREASE, MINT, BURN, SETTLE, TAKE_PAIR, SWEEP = 0x01, 0x02, 0x03, 0x0B, 0x11, 0x14
PoolKey = tuple[str, str, int, int, str]
PERMIT2 = "0x" + "a2" * 20
PERMIT2_CODE = "0x6323b872dd60e01b60005260606004600437602060006064600060006064355af160295760006000fd5b00"
LOWEST_PRICE, HIGHEST_PRICE = 4_295_128_740, 1461446703485210103287273052203988822378723970341


@dataclass(frozen=True)
class UniswapV4:
    """Addresses of the contracts and of the swapper, and the keys of the pools."""

    pools: str
    positions: str
    view: str
    swapper: str
    keys: Sequence[PoolKey]

    @property
    def file(self) -> str:
        """The protocol's file for this chain."""
        roles = {"pool_manager": self.pools, "position_manager": self.positions, "state_view": self.view}
        lines = [f'{role} = ["{address.lower()}"]' for role, address in roles.items()]
        return "\n".join(['key = "v4"\nname = "V4"\nfamilies = ["uniswap_v4"]\n[contracts.local]', *lines])

    def act(self, account: str, *actions: tuple[int, str, Sequence[Any]], value: int = 0) -> Tx:
        """One call of the position manager that does some actions."""
        names = bytes(action for action, _, _ in actions)
        parameters = [bytes.fromhex(words(_types(types), *args)) for _, types, args in actions]
        data = bytes.fromhex(words(("bytes", "bytes[]"), names, parameters))
        call = "modifyLiquidities(bytes,uint256)"
        return tx(account, self.positions, call, data, FOREVER, value=value, gas=3_000_000)

    def mint(self, account: str, key: PoolKey, lower: int, upper: int, liquidity: int, value: int = 0) -> Tx:
        """Opens a position, paid with what lies at the position manager; what is left is given back."""
        mint = (key, lower, upper, liquidity, MAX128, MAX128, account, b"")
        return self.act(
            account,
            (MINT, f"{KEY} int24 int24 uint256 uint128 uint128 address bytes", mint),
            *((SETTLE, "address uint256 bool", (token, 0, False)) for token in key[:2]),
            *((SWEEP, "address address", (token, account)) for token in key[:2]),
            value=value,
        )

    def decrease(self, account: str, key: PoolKey, number: int, liquidity: int) -> Tx:
        """Takes out liquidity and all fees."""
        return self.act(
            account,
            (DECREASE, "uint256 uint256 uint128 uint128 bytes", (number, liquidity, 0, 0, b"")),
            (TAKE_PAIR, "address address address", (*key[:2], account)),
        )

    def burn(self, account: str, key: PoolKey, number: int) -> Tx:
        """Closes a position."""
        return self.act(
            account,
            (BURN, "uint256 uint128 uint128 bytes", (number, 0, 0, b"")),
            (TAKE_PAIR, "address address address", (*key[:2], account)),
        )


def _types(types: str) -> list[str]:
    return types.split(" ")


def permit2(node: LocalNode) -> str:
    """Install code that does Permit2's `transferFrom` for accounts that approved it."""
    node.rpc("anvil_setCode", PERMIT2, PERMIT2_CODE)
    return PERMIT2


def uniswap_v4(node: LocalNode, deployment: Deployment) -> UniswapV4:
    """Everything, traded on: the protocol's own fee is on in one of the pools."""
    owner = deployment.accounts["deployer"]
    deployer = Deployer(node, owner, int(node.rpc("eth_getTransactionCount", owner, "pending"), 16))
    usdc, dai = deployment.tokens["USDC"], deployment.tokens["DAI"]
    pools = deployer.create("PoolManager", "PoolManager", ("address",), owner)
    types = ("address", "address", "uint256", "address", "address")
    positions = deployer.create(
        "PositionManager", "PositionManager", types, pools, permit2(node), 300_000, owner, owner
    )
    view = deployer.create("StateView", "StateView", ("address",), pools)
    swapper = deployer.create("PoolSwapTest", "PoolSwapTest", ("address",), pools)
    low, high = sorted((usdc, dai), key=lambda token: int(token.address, 16))
    keys = [(ZERO, usdc.address, 500, 10, ZERO), (low.address, high.address, 3000, 60, ZERO)]
    prices = [sqrt_price_x96(10**18, usdc.units(2_000)), sqrt_price_x96(low.units(1), high.units(1))]
    for key, price in zip(keys, prices, strict=True):
        deployer.do(pools, f"initialize({KEY},uint160)", key, price)
    deployer.do(pools, "setProtocolFeeController(address)", owner)
    deployer.do(pools, f"setProtocolFee({KEY},uint24)", keys[1], 500 | 700 << 12)
    deployer.settle()
    v4 = UniswapV4(pools, positions, view, swapper, keys)
    node.settle(opened(v4, deployment))
    for token in (usdc, dai):
        deployer.do(token.address, "approve(address,uint256)", swapper, MAX)
    for key, zero_for_one, raw in swaps(keys, usdc, low, high):
        limit = LOWEST_PRICE if zero_for_one else HIGHEST_PRICE
        value = raw if key[0] == ZERO and zero_for_one else 0
        deployer.do(swapper, SWAP, key, (zero_for_one, -raw, limit), (False, False), b"", value=value)
    deployer.settle()
    alice, bob = (deployment.accounts[name] for name in ("alice", "bob"))
    node.settle(
        [
            v4.decrease(alice, keys[0], 1, 10**13),
            v4.burn(alice, keys[1], 4),
            tx(alice, positions, "transferFrom(address,address,uint256)", alice, bob, 5),
        ]
    )
    deployer.do(swapper, SWAP, keys[0], (True, -(10**17), LOWEST_PRICE), (False, False), b"", value=10**17)
    deployer.settle()
    return v4


def opened(v4: UniswapV4, deployment: Deployment) -> list[Tx]:
    """Positions over all prices, around the price and beside it; numbered from one."""
    alice, bob = (deployment.accounts[name] for name in ("alice", "bob"))
    give = "transfer(address,uint256)"
    ether, stable = v4.keys
    around = -200_310  # the tick at 2000 USDC an ether: log(2000 * 10^6 / 10^18) / log(1.0001)
    calls = []
    for account, key, lower, upper, liquidity in (
        (alice, ether, -887_270, 887_270, 10**14),
        (alice, ether, around - 300, around + 300, 3 * 10**15),
        (alice, ether, around + 1_000, around + 2_000, 10**15),
        (alice, stable, -887_220, 887_220, 10**15),
        (alice, stable, -887_220, 887_220, 2 * 10**15),
        (bob, stable, -887_220, 887_220, 10**16),
    ):
        for symbol in ("USDC", "DAI"):
            token = deployment.tokens[symbol]
            calls.append(tx(account, token.address, give, v4.positions, token.units(40_000)))
        value = 20 * 10**18 if key[0] == ZERO else 0
        calls.append(v4.mint(account, key, lower, upper, liquidity, value))
    return calls


def swaps(keys: Sequence[PoolKey], usdc: Token, low: Token, high: Token) -> list[tuple[PoolKey, bool, int]]:
    """Pool, direction and what is given."""
    return [
        (keys[0], True, 3 * 10**17),
        (keys[0], False, usdc.units(900)),
        (keys[1], True, low.units(30)),
        (keys[1], False, high.units(20)),
        (keys[0], True, 10**16),
    ]
