"""Rows of `chainfolio doctor` about endpoints: identity, height, API version, state of old blocks."""

from __future__ import annotations

from typing import Any

from chainfolio.adapters.starknet.node import Node
from chainfolio.adapters.starknet.state import Call, answer
from chainfolio.chain_results import Heads
from chainfolio.errors import SourceError
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.endpoint_report import report_endpoints
from chainfolio.transport.wire import Request, typed


async def examine(node: Node) -> list[dict[str, Any]]:
    """Return one row per endpoint, in the order of the settings. Errors are part of the rows."""
    unproven = ["all of it: answers carry no proof"]
    return await report_endpoints(node, unproven, lambda each: Node(node.facts, [each], node.environment), _abilities)


async def _abilities(node: Node, heads: Heads) -> dict[str, object]:
    """Return the version of a node's specification, and whether it has the state of old blocks."""
    return {
        "specVersion": await _version(node.endpoints[0]),
        "oldState": await _has_old_state(node, heads.latest.height),
    }


async def _version(endpoint: Endpoint) -> str | None:
    """Return the version of the specification; None if the node does not have the method."""
    (version,) = await endpoint.ask([Request("starknet_specVersion")])
    return None if isinstance(version, SourceError) else typed(endpoint.name, version, str)[:20]


async def _has_old_state(node: Node, head: int) -> bool:
    """Return True if a call at half the height is answered; False on any error of the source in the call."""
    block = await node.block(head // 2)
    try:
        await answer(node, [Call(node.facts.coin, "decimals")], block)
    except SourceError:
        return False
    return True
