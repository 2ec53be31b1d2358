"""What `chainfolio doctor` shows of a chain's endpoints: who they are, how far they are, what they serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chainfolio.adapters.starknet.node import Node
from chainfolio.adapters.starknet.state import Call, answer
from chainfolio.chains import Heads
from chainfolio.errors import SourceError
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.endpoint_report import report_endpoints
from chainfolio.transport.wire import Request, typed

if TYPE_CHECKING:
    from chainfolio.adapters.starknet.chain import StarknetChain


async def examine(chain: StarknetChain) -> list[dict[str, Any]]:
    """A row for each endpoint, in the order of the settings."""
    node, unproven = chain.node, ["all of it: answers carry no proof"]
    return await report_endpoints(node, unproven, lambda one: Node(node.facts, [one], node.environment), _abilities)


async def _abilities(node: Node, heads: Heads) -> dict[str, Any]:
    """The version of the specification that a node speaks, and whether it has the state of old blocks."""
    return {
        "specVersion": await _version(node.endpoints[0]),
        "oldState": await _has_old_state(node, heads.latest.height),
    }


async def _version(endpoint: Endpoint) -> str | None:
    """The version of the specification; None where the node is older than the question."""
    (said,) = await endpoint.ask([Request("starknet_specVersion")])
    return None if isinstance(said, SourceError) else typed(endpoint.name, said, str)[:20]


async def _has_old_state(node: Node, head: int) -> bool:
    """Whether the native coin can be asked half a chain ago. It may not have been there yet: that is an answer."""
    block = await node.block(head // 2)
    try:
        await answer(node, [Call(node.facts.coin, "decimals")], block)
    except SourceError:
        return False
    return True
