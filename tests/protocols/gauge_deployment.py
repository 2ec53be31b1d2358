"""Balancer's gauge for its weighted pool, with the token that is minted for it and another reward."""

from __future__ import annotations

from chainfolio.localchain.deploy import WAD, Deployer, Deployment, checked
from chainfolio.localchain.evm import MAX, ZERO, selector, tx
from chainfolio.localchain.node import LocalNode
from tests.protocols.balancer_v2_deployment import WEEK_S, Balancer, create

HEAD = 'key = "gauges"\nname = "Gauges"\nfamilies = ["liquidity_gauge"]\n'
OPTIONS = '[options]\ncontroller = "getGaugeController()(address)"\ntoken = "getBalancerToken()(address)"\n'


def gauge(node: LocalNode, deployment: Deployment, protocol: Balancer, authorizer: str) -> tuple[str, str]:
    """The gauge, with Bob's shares in it for some weeks, and the minter."""
    owner, bob = (deployment.accounts[name] for name in ("deployer", "bob"))
    deployer = Deployer(node, owner, int(node.rpc("eth_getTransactionCount", owner, "pending"), 16))
    minter, controller = mint(deployer, protocol, authorizer)
    three = ("address",) * 3
    boost = deployer.create("Boost", "VotingEscrowDelegationProxy", three, protocol.vault, protocol.escrow, ZERO)
    code = deployer.create("Gauge code", "LiquidityGaugeV5", three, minter, boost, owner)
    factory = deployer.create("LiquidityGaugeFactory", "LiquidityGaugeFactory", ("address",), code)
    pool = protocol.pools["weighted"]
    it = create(deployer, factory, "create(address,uint256)", pool, WAD)
    deployer.do(controller, "add_type(string,uint256)", "Liquidity", WAD)
    deployer.do(controller, "add_gauge(address,int128,uint256)", it, 0, WAD)
    dai = deployment.tokens["DAI"]
    deployer.do(it, "add_reward(address,address)", dai.address, owner)
    deployer.do(dai.address, "approve(address,uint256)", it, MAX)
    deployer.settle()
    staked = node.call(pool, "balanceOf(address)(uint256)", bob) // 2
    node.settle(
        [
            tx(bob, pool, "approve(address,uint256)", it, MAX),
            tx(bob, it, "deposit(uint256)", staked, gas=4_000_000),
        ]
    )
    node.mine(1, 2 * WEEK_S)
    deployer.do(it, "deposit_reward_token(address,uint256)", dai.address, dai.units(700))
    deployer.settle()
    node.mine(1, WEEK_S // 3)
    return it, minter


def mint(deployer: Deployer, protocol: Balancer, authorizer: str) -> tuple[str, str]:
    """The token, its minter, and the controller that knows the gauges."""
    owner = deployer.account
    token = deployer.create("BAL", "TestBalancerToken", ("address", "string", "string"), owner, "Bal", "BAL")
    admin = deployer.create("BalancerTokenAdmin", "BalancerTokenAdmin", ("address", "address"), protocol.vault, token)
    two = ("address", "address")
    controller = deployer.create("GaugeController", "GaugeController", two, protocol.escrow, owner)
    minter = deployer.create("BalancerMinter", "BalancerMinter", two, admin, controller)
    deployer.do(token, "grantRole(bytes32,address)", bytes(32), admin)
    for call, grantee in (("activate()", owner), ("mint(address,uint256)", minter)):
        action = deployer.read(admin, "getActionId(bytes4)(bytes32)", bytes.fromhex(selector(call)[2:]))
        deployer.do(authorizer, "grantRole(bytes32,address)", action, grantee)
    deployer.do(admin, "activate()")
    return checked(minter), controller


def file(minter: str) -> str:
    """The protocol's file for this chain."""
    return f'{HEAD}{OPTIONS}[contracts.local]\nminter = ["{minter.lower()}"]\n'
