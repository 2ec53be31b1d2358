"""What `chainfolio doctor` shows of a chain's endpoints: who they are, how far they are, what they can do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from adapters.evm import scan
from adapters.evm.node import Node
from adapters.evm.reads import NativeBalance
from chainfolio.blocks import ahead_of_clock
from chainfolio.errors import SourceError
from transport.endpoint import Endpoint

if TYPE_CHECKING:
    from adapters.evm.chain import EvmChain

NOBODY = NativeBalance("0x" + "0" * 40)
ROUTES = {scan.OVERRIDE: "state override", scan.CREATION: "creation code", scan.SINGLES: "single calls"}


async def examine(chain: EvmChain) -> list[dict[str, Any]]:
    """A row for each endpoint, in the order of the settings."""
    node = chain.node
    rows = [await _endpoint(node, endpoint) for endpoint in node.endpoints]
    best = node.best_height
    for endpoint, row in zip(node.endpoints, rows, strict=True):
        row["lagBlocks"] = endpoint.health.lag_blocks(best)
    return rows


async def _endpoint(node: Node, endpoint: Endpoint) -> dict[str, Any]:
    """One endpoint: chain id and genesis, age of the head, how deep its state goes, whether overrides work."""
    alone = Node(node.facts, [endpoint], node.seams, hashed=node.hashed)
    evidence = endpoint.health.evidence
    found: dict[str, Any] = {
        "endpoint": endpoint.name, "ok": True, "problem": "",
        "quarantined": evidence is not None, "evidence": None, "unproven": list(node.facts.unproven),
    }  # fmt: skip
    if evidence is not None:
        problem = f"quarantined: {evidence.asked}: gave {evidence.given}; {evidence.truth}"
        return found | {"ok": False, "problem": problem, "evidence": msgspec.to_builtins(evidence)}
    try:
        start_s = time.monotonic()
        heads = await alone.connect()
        found["latencyMs"] = int((time.monotonic() - start_s) * 1000)
        found |= {"head": heads.latest.height, "final": heads.finalized}
        now_us = node.seams.clock.now_us()
        found["headAgeS"] = max(0, (now_us - heads.latest.time_us) // 1_000_000)
        found |= await abilities(alone)
        if wrong := ahead_of_clock(heads.latest.time_us, now_us):
            found |= {"ok": False, "problem": wrong}
    except SourceError as error:
        found |= {"ok": False, "problem": str(error)}
    return found | {"faults": endpoint.health.faults}


async def abilities(node: Node) -> dict[str, Any]:
    """How deep a node's state goes, and by which route it answers reads."""
    heads = await node.connect()
    await scan.answer(node, [NOBODY], heads.latest)
    head = oldest = heads.latest.height
    for height in (0, 1, head // 2, max(0, head - 1000), max(0, head - 100)):
        try:
            await scan.answer(node, [NOBODY], await node.block(height))
        except SourceError:
            continue
        oldest = height
        break
    return {"oldestState": oldest, "reads": ROUTES[node.endpoints[0].capabilities.get(scan.ROUTE, scan.OVERRIDE)]}
