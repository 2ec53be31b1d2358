"""Pairs with a protocol fee on their growth: a share is worth what burning it pays."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.adapters.evm.positions.rules import ProtocolMatch
from chainfolio.adapters.evm.protocols.uniswap_v2 import protocol_fee, unwrap
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.contracts import Snapshot
from chainfolio.localchain.deploy import FOREVER, Deployer, Deployment, checked, deploy
from chainfolio.localchain.evm import MAX, tx
from chainfolio.localchain.node import LocalNode
from chainfolio.protocols import TokenAmount
from tests.protocols.scripted import NO_CODE, decode, read
from tests.protocols.world import World, parts

PANCAKE = """
key = "pancake"
name = "Pancake"
families = ["uniswap_v2"]
[options]
protocol_fee = "1/4"
[contracts.local]
factory = ["{factory}"]
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Give Bob shares of a Uniswap and a Pancake pair that grew; both factories' fees are on."""
    with LocalNode() as node:
        deployment = deploy(node)
        with node.by_hand():
            pancake = markets(node, deployment)
        files = {"pancake": PANCAKE.format(factory=pancake.lower())}
        yield World(node, deployment, tmp_path_factory.mktemp("pairs"), files)


def markets(node: LocalNode, deployment: Deployment) -> str:
    """Set the receivers of the fees, add Bob's liquidity, trade, and return Pancake's factory."""
    owner, bob = (deployment.accounts[name] for name in ("deployer", "bob"))
    deployer = Deployer(node, owner, int(node.rpc("eth_getTransactionCount", owner, "pending"), 16))
    weth, usdc = deployment.tokens["WETH"], deployment.tokens["USDC"]
    pancake = deployer.create("PancakeFactory", "PancakeFactory", ("address",), owner)
    deployer.do(pancake, "createPair(address,address)", weth.address, usdc.address)
    for factory in (pancake, deployment.contracts["UniswapV2Factory"]):
        deployer.do(factory, "setFeeTo(address)", deployment.accounts["ivan"])
    pair = checked(deployer.read(pancake, "getPair(address,address)(address)", weth.address, usdc.address))
    router = deployment.contracts["UniswapV2Router02"]
    give = "transfer(address,uint256)"
    node.settle(
        [
            *(tx(bob, token.address, "approve(address,uint256)", router, MAX) for token in (weth, usdc)),
            tx(
                bob,
                router,
                "addLiquidity(address,address,uint256,uint256,uint256,uint256,address,uint256)",
                weth.address,
                usdc.address,
                weth.units(7),
                usdc.units(14_000),
                0,
                0,
                bob,
                FOREVER,
            ),
            tx(bob, weth.address, give, pair, weth.units(5)),
            tx(bob, usdc.address, give, pair, usdc.units(10_001)),
            tx(bob, pair, "mint(address)", bob),
        ]
    )
    for at in range(5):
        swap = "swapExactTokensForTokens(uint256,uint256,address[],address,uint256)"
        deployer.do(router, swap, weth.units(20 + at), 0, [weth.address, usdc.address], owner, FOREVER)
        deployer.do(weth.address, give, pair, weth.units(1 + at))
        first = int(usdc.address, 16) < int(weth.address, 16)
        amounts_out = (usdc.units(700), 0) if first else (0, usdc.units(700))
        deployer.do(pair, "swap(uint256,uint256,address,bytes)", *amounts_out, owner, b"")
    deployer.settle()
    node.mine()  # these trades moved the price in one block
    return pancake


@pytest.fixture(scope="module")
def snapshot(world: World) -> Snapshot:
    return world.snapshot(world.deployment.accounts["bob"])


@pytest.mark.parametrize("protocol", ["uniswap2", "pancake"])
def test_what_is_left_when_the_protocol_took_its_fee_is_what_a_share_pays(
    world: World, snapshot: Snapshot, protocol: str
) -> None:
    assert snapshot.issues == ()
    (position,) = [each for each in snapshot.positions if each.protocol == protocol]
    me, pair = position.account, position.pool
    (shares,) = [
        each.raw for each in snapshot.holdings if each.token.asset.shown_contract == pair and each.account == me
    ]
    calls = [tx(me, pair, "transfer(address,uint256)", pair, shares), tx(me, pair, "burn(address)", me)]
    payout = world.payout(me, calls, snapshot.block)
    assert payout.pop(pair) == -shares
    assert parts([position], "supplied") == payout
    untaxed = tuple(part.raw for part in unfeed(world, pair, shares))
    assert all(taxed_raw < untaxed_raw for taxed_raw, untaxed_raw in zip(payout.values(), untaxed, strict=True))


def unfeed(world: World, pair: str, shares: int) -> list[TokenAmount]:
    """Return what the shares would be worth without a fee."""
    supply = world.node.call(pair, "totalSupply()(uint256)")
    tokens = sorted(world.node.call(pair, f"token{at}()(address)") for at in (0, 1))
    balances = [world.node.call(token, "balanceOf(address)(uint256)", pair) for token in tokens]
    return [TokenAmount(token, raw * shares // supply) for token, raw in zip(tokens, balances, strict=True)]


ME, PAIR, FACTORY, A, B = ("0x" + letter * 40 for letter in "12345")


def pair_answers(**changed: Any) -> dict[tuple[str, str], Any]:
    """A pair of 100 shares with 1000 and 2000 behind it, a fifth of them swapped in since the last mint."""
    answers = {
        (PAIR, "totalSupply"): 100,
        (PAIR, "kLast"): 800 * 1600,
        (PAIR, "getReserves"): (1000, 2000),
        (FACTORY, "getPair"): PAIR,
        (FACTORY, "feeTo"): ZERO_ADDRESS,
        (A, "balanceOf"): 1000,
        (B, "balanceOf"): 2000,
    }
    return {key: changed.get(key[1], value) for key, value in answers.items()}


def test_a_fork_that_knows_no_fee_is_not_asked_for_it() -> None:
    match = ProtocolMatch(ME, PAIR, FACTORY, (A, B), options={"protocol_fee": "0"})
    answers = pair_answers(kLast=NO_CODE, feeTo=NO_CODE)
    assert decode(unwrap, match, 10, says=answers) == (TokenAmount(A, 100), TokenAmount(B, 200))
    assert read(unwrap, ProtocolMatch(ME, PAIR, FACTORY, (A, B)), 10, says=answers).status == "failed"


def test_a_pair_that_its_factory_does_not_know_is_none() -> None:
    assert decode(unwrap, ProtocolMatch(ME, PAIR, FACTORY, (A, B)), 10, says=pair_answers(getPair=ZERO_ADDRESS)) is None


RAW = st.integers(0, (1 << 112) - 1)


@given(st.integers(1, 1 << 120), RAW, RAW, st.integers(0, 1 << 224))
def test_one_sixth_is_as_uniswap_wrote_it(supply: int, reserve0: int, reserve1: int, k_last: int) -> None:
    from math import isqrt

    root, last = isqrt(reserve0 * reserve1), isqrt(k_last)
    theirs = supply * (root - last) // (root * 5 + last) if root > last > 0 else 0
    assert protocol_fee(Fraction(1, 6), supply, reserve0, reserve1, k_last) == theirs
