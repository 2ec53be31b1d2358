"""What `chainfolio doctor` shows of a chain's endpoints: who they are, how far they are, what they serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from adapters.starknet.node import Node
from adapters.starknet.state import Call, answer
from chainfolio.blocks import ahead_of_clock
from chainfolio.errors import SourceError
from transport.endpoint import Endpoint
from transport.wire import Request, typed

if TYPE_CHECKING:
    from adapters.starknet.chain import StarknetChain


async def examine(chain: StarknetChain) -> list[dict[str, Any]]:
    """A row for each endpoint, in the order of the settings."""
    node = chain.node
    rows = [await _endpoint(node, endpoint) for endpoint in node.endpoints]
    best = node.best_height
    for endpoint, row in zip(node.endpoints, rows, strict=True):
        row["lagBlocks"] = endpoint.health.lag_blocks(best)
    return rows


async def _endpoint(node: Node, endpoint: Endpoint) -> dict[str, Any]:
    """One endpoint: its version of the specification, its newest block, whether it has the state of old ones."""
    alone = Node(node.facts, [endpoint], node.seams)
    evidence = endpoint.health.evidence
    found: dict[str, Any] = {
        "endpoint": endpoint.name, "ok": True, "problem": "", "quarantined": evidence is not None, "evidence": None,
        "unproven": ["all of it: answers carry no proof"],
    }  # fmt: skip
    if evidence is not None:
        problem = f"quarantined: {evidence.asked}: gave {evidence.given}; {evidence.truth}"
        return found | {"ok": False, "problem": problem, "evidence": msgspec.to_builtins(evidence)}
    try:
        clock = node.seams.clock
        start_s = clock.monotonic_s()
        heads = await alone.connect()
        found["latencyMs"] = int((clock.monotonic_s() - start_s) * 1000)
        now_us = clock.now_us()
        found |= {"head": heads.latest.height, "final": heads.finalized, "specVersion": await _version(endpoint)}
        found["headAgeS"] = max(0, (now_us - heads.latest.time_us) // 1_000_000)
        found["oldState"] = await _has_old_state(alone, heads.latest.height)
        if wrong := ahead_of_clock(heads.latest.time_us, now_us):
            found |= {"ok": False, "problem": wrong}
    except SourceError as error:
        found |= {"ok": False, "problem": str(error)}
    return found | {"faults": endpoint.health.faults}


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
