"""A real node with real contracts and every hostile token, and our chain over it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from chainfolio.adapters.evm.chain import EvmChain
from chainfolio.adapters.evm.endpoint import EvmEndpoint
from chainfolio.adapters.evm.facts import load
from chainfolio.adapters.evm.node import Node
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.chain_facts import WrappedNative
from chainfolio.environment import Environment
from chainfolio.localchain.deploy import WAD, Deployment, deploy
from chainfolio.localchain.evm import Tx, tx
from chainfolio.localchain.hostile import deploy_hostile
from chainfolio.localchain.node import LocalNode
from chainfolio.transport.http import HttpTransport
from chainfolio.transport.http_endpoint import EndpointRecord

LOCAL = Path(__file__).parents[2] / "configs" / "chains" / "local.toml"


@dataclass(frozen=True)
class Local:
    """The node, what lies on it, and some of its heights."""

    node: LocalNode
    deployment: Deployment
    hostile: dict[str, str]
    heights: list[int]

    @property
    def tokens(self) -> list[str]:
        """Every token, honest and hostile, and an address where there is none."""
        honest = [token.address for token in self.deployment.tokens.values()]
        issued = [address for name, address in self.deployment.contracts.items() if name.startswith(("a", "variable"))]
        return [address.lower() for address in (*honest, *issued, *self.hostile.values(), "0x" + "ab" * 20)]

    @property
    def wallets(self) -> list[str]:
        """Return the addresses of the holders, and one address that holds nothing."""
        return [*(self.deployment.accounts[name].lower() for name in ("deployer", "alice", "bob")), "0x" + "cd" * 20]


def populated(node: LocalNode) -> Local:
    """Deploys everything and lets balances change over a few blocks."""
    deployment = deploy(node)
    heights = [1, deployment.height]
    hostile = deploy_hostile(node)
    heights.append(node.height)
    alice, bob = (deployment.accounts[name] for name in ("alice", "bob"))
    dai, weth = deployment.tokens["DAI"].address, deployment.tokens["WETH"].address
    node.settle([tx(alice, dai, "transfer(address,uint256)", bob, 5 * WAD), Tx(bob, alice, value=3 * WAD)])
    node.settle([tx(bob, weth, "deposit()", value=WAD), tx(bob, weth, "withdraw(uint256)", WAD // 2)])
    node.settle([tx(bob, dai, "approve(address,uint256)", alice, WAD), Tx(alice, alice, value=WAD)])
    heights += [node.height - 1, node.height]
    return Local(node, deployment, hostile, heights)


@asynccontextmanager
async def chain_of(local: Local, **capabilities: int) -> AsyncIterator[EvmChain]:
    """Our chain over the node, as if its endpoint had been found out to be so before."""
    wrapped = WrappedNative(local.deployment.tokens["WETH"].address.lower(), "WETH")
    facts = msgspec.structs.replace(load(LOCAL), wrapped=wrapped)
    environment = Environment()
    endpoint = EvmEndpoint(local.node.url, HttpTransport(), environment, record=EndpointRecord(capabilities))
    chain = EvmChain(facts, Node(facts, [endpoint], environment), EvmSettings(rpc=[local.node.url]))
    try:
        yield chain
    finally:
        await chain.close()
