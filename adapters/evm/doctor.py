"""The rows of `chainfolio doctor` for a chain's endpoints: identity, height and abilities."""

from __future__ import annotations

from typing import Any

from chainfolio.adapters.evm import scan, scanner
from chainfolio.adapters.evm.accounts.logs import INCOMPLETE
from chainfolio.adapters.evm.node import Node
from chainfolio.adapters.evm.reads import NativeBalance
from chainfolio.chain_results import Heads
from chainfolio.errors import SourceError
from chainfolio.transport.endpoint_report import report_endpoints

ZERO_ACCOUNT = NativeBalance("0x" + "0" * 40)
LEAVES_OUT = 'left out logs of accounts: add an endpoint, or set integrity = "roots"'
ROUTES = {scanner.OVERRIDE: "state override", scanner.CREATION: "creation code", scanner.SINGLES: "single calls"}


async def examine(node: Node) -> list[dict[str, Any]]:
    """Return a row for each endpoint, in the order of the settings."""
    return await report_endpoints(
        node, node.facts.unproven, lambda one: Node(node.facts, [one], node.environment, hashed=node.hashed), abilities
    )


async def abilities(node: Node, heads: Heads) -> dict[str, Any]:
    """Return `oldestState` (a height), `reads` (the route), `leavesOutLogs`, and `problem` if it is True.

    Only a few heights are tried: the first, the middle and the newest. A `problem` does not make the node unusable.

    Raises:
        SourceError: The newest state cannot be read.
    """
    await scan.answer(node, [ZERO_ACCOUNT], heads.latest)
    head = oldest = heads.latest.height
    for height in (0, 1, head // 2, max(0, head - 1000), max(0, head - 100)):
        try:
            await scan.answer(node, [ZERO_ACCOUNT], await node.block(height))
        except SourceError:
            continue
        oldest = height
        break
    traits = node.endpoints[0].capabilities
    leaves_out = bool(traits.get(INCOMPLETE))
    return {
        "oldestState": oldest,
        "reads": ROUTES[traits.get(scan.ROUTE, scanner.OVERRIDE)],
        "leavesOutLogs": leaves_out,
        **({"problem": LEAVES_OUT} if leaves_out else {}),
    }
