"""A position of Uniswap V3 in the staker is its depositor's: what taking it back and closing it pays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chainfolio.adapters.evm.positions.rules import ProtocolMatch
from chainfolio.adapters.evm.protocols.uniswap_v3 import position
from chainfolio.contracts import Snapshot
from chainfolio.localchain.deploy import FOREVER, MINT_POSITION, POOL_FEE, Deployer, Deployment, deploy
from chainfolio.localchain.evm import MAX, tx
from chainfolio.localchain.node import LocalNode
from chainfolio.plans import Reverted
from tests.protocols.scripted import decode
from tests.protocols.world import World, parts

FILE = """
key = "uniswap3"
name = "Uniswap V3"
families = ["uniswap_v3"]
[contracts.local]
position_manager = ["{manager}"]
staker = ["{staker}"]
"""
NUMBER = 3  # the deployment opens two
MAX128 = (1 << 128) - 1


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with LocalNode() as node:
        deployment = deploy(node)
        with node.by_hand():
            staker = staked(node, deployment)
        manager = deployment.contracts["NonfungiblePositionManager"]
        files = {"uniswap3": FILE.format(manager=manager.lower(), staker=staker.lower())}
        yield World(node, deployment, tmp_path_factory.mktemp("staker"), files)


def staked(node: LocalNode, deployment: Deployment) -> str:
    """Alice opens a position, which earns fees, and gives it to the staker."""
    owner, alice = (deployment.accounts[name] for name in ("deployer", "alice"))
    deployer = Deployer(node, owner, int(node.rpc("eth_getTransactionCount", owner, "pending"), 16))
    at = deployment.contracts
    manager, router = at["NonfungiblePositionManager"], at["SwapRouter"]
    types = ("address", "address", "uint256", "uint256")
    staker = deployer.create("UniswapV3Staker", "UniswapV3Staker", types, at["UniswapV3Factory"], manager, 0, 10**9)
    deployer.settle()
    weth, usdc = deployment.tokens["WETH"], deployment.tokens["USDC"]
    low, high = sorted((weth, usdc), key=lambda token: int(token.address, 16))
    amounts = [{"WETH": weth.units(3), "USDC": usdc.units(6_000)}[token.symbol] for token in (low, high)]
    node.settle(
        [
            *(tx(alice, token.address, "approve(address,uint256)", manager, MAX) for token in (weth, usdc)),
            tx(
                alice,
                manager,
                MINT_POSITION,
                (low.address, high.address, POOL_FEE, -887_220, 887_220, *amounts, 0, 0, alice, FOREVER),
            ),
        ]
    )
    deployer.do(weth.address, "approve(address,uint256)", router, MAX)
    swap = "exactInputSingle((address,address,uint24,address,uint256,uint256,uint256,uint160))"
    deployer.do(router, swap, (weth.address, usdc.address, POOL_FEE, owner, FOREVER, weth.units(9), 0, 0))
    deployer.settle()
    node.settle([tx(alice, manager, "safeTransferFrom(address,address,uint256)", alice, staker, NUMBER)])
    return staker


@pytest.fixture(scope="module")
def snapshot(world: World) -> Snapshot:
    return world.snapshot(world.deployment.accounts["alice"])


def test_taking_it_back_and_closing_it_pays_what_is_said(world: World, snapshot: Snapshot) -> None:
    (position,) = [each for each in snapshot.positions if each.protocol == "uniswap3"]
    me, manager = position.account, world.deployment.contracts["NonfungiblePositionManager"]
    staker = world.node.call(manager, "ownerOf(uint256)(address)", NUMBER)
    fields = ",".join(["uint96", *["address"] * 3, "uint24", "int24", "int24", "uint128"])
    liquidity = world.node.call(manager, f"positions(uint256)({fields})", NUMBER)[-1]
    calls = [
        tx(me, staker, "withdrawToken(uint256,address,bytes)", NUMBER, me, b""),
        tx(me, manager, "decreaseLiquidity((uint256,uint128,uint256,uint256,uint256))", (NUMBER, liquidity, 0, 0, MAX)),
        tx(me, manager, "collect((uint256,address,uint128,uint128))", (NUMBER, me, MAX128, MAX128)),
    ]
    assert any(part.raw for part in position.rewards)
    assert parts([position], "supplied", "rewards") == world.payout(me, calls, snapshot.block)
    (issue,) = snapshot.issues
    assert staker in issue.reason


def test_a_position_in_the_staker_that_somebody_else_gave_is_not_mine() -> None:
    me, manager, staker, stranger = ("0x" + letter * 40 for letter in "1234")
    match = ProtocolMatch(me, manager, id=7, contracts={"staker": (staker,)})
    answers = {
        (manager, "ownerOf"): staker,
        (manager, "factory"): stranger,
        (manager, "positions"): Reverted(),
        (staker, "deposits"): stranger,
    }
    assert decode(position, match, says=answers) is None
