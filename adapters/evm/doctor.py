"""What `chainfolio doctor` shows of a chain's endpoints: who they are, how far they are, what they can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adapters.evm import scan
from adapters.evm.accounts.logs import SHORT
from adapters.evm.node import Node
from adapters.evm.reads import NativeBalance
from chainfolio.chains import Heads
from chainfolio.errors import SourceError
from transport.examination import examined

if TYPE_CHECKING:
    from adapters.evm.chain import EvmChain

NOBODY = NativeBalance("0x" + "0" * 40)
LEAVES_OUT = 'left out logs of accounts: add an endpoint, or set integrity = "roots"'
ROUTES = {scan.OVERRIDE: "state override", scan.CREATION: "creation code", scan.SINGLES: "single calls"}


async def examine(chain: EvmChain) -> list[dict[str, Any]]:
    """A row for each endpoint, in the order of the settings."""
    node = chain.node
    return await examined(
        node, node.facts.unproven, lambda one: Node(node.facts, [one], node.seams, hashed=node.hashed), abilities
    )  # fmt: skip


async def abilities(node: Node, heads: Heads) -> dict[str, Any]:
    """How deep a node's state goes, by which route it answers reads, and whether it was seen to leave out logs, which
    is a `problem` but does not make it unusable."""
    await scan.answer(node, [NOBODY], heads.latest)
    head = oldest = heads.latest.height
    for height in (0, 1, head // 2, max(0, head - 1000), max(0, head - 100)):
        try:
            await scan.answer(node, [NOBODY], await node.block(height))
        except SourceError:
            continue
        oldest = height
        break
    traits = node.endpoints[0].capabilities
    leaves_out = bool(traits.get(SHORT))
    return {
        "oldestState": oldest, "reads": ROUTES[traits.get(scan.ROUTE, scan.OVERRIDE)], "leavesOutLogs": leaves_out,
        **({"problem": LEAVES_OUT} if leaves_out else {}),
    }  # fmt: skip
