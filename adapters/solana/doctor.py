"""What `chainfolio doctor` shows of a chain's endpoints: who they are, how far they are, what they serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from adapters.solana.layouts import SYSTEM
from adapters.solana.node import Node
from adapters.solana.state import wallets
from chainfolio.blocks import ahead_of_clock
from chainfolio.errors import SourceError
from transport.endpoint import Endpoint

if TYPE_CHECKING:
    from adapters.solana.chain import SolanaChain


async def examine(chain: SolanaChain) -> list[dict[str, Any]]:
    """A row for each endpoint, in the order of the settings."""
    node = chain.node
    rows = [await _endpoint(node, endpoint) for endpoint in node.endpoints]
    best = node.best_height
    for endpoint, row in zip(node.endpoints, rows, strict=True):
        row["lagBlocks"] = endpoint.health.lag_blocks(best)
    return rows


async def _endpoint(node: Node, endpoint: Endpoint) -> dict[str, Any]:
    """One endpoint: its genesis, its newest slot, whether it lists token accounts and stake accounts."""
    alone = Node(node.facts, [endpoint], node.seams, commitment=node.commitment)
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
        found |= {"head": heads.latest.height, "final": heads.finalized}
        found["headAgeS"] = max(0, (now_us - heads.latest.time_us) // 1_000_000)
        read = await wallets(alone, [SYSTEM], heads.latest, with_stakes=True)
        found["stakeAccounts"] = not any(note.is_partial for note in read[SYSTEM].notes)
        if wrong := ahead_of_clock(heads.latest.time_us, now_us):
            found |= {"ok": False, "problem": wrong}
    except SourceError as error:
        found |= {"ok": False, "problem": str(error)}
    return found | {"faults": endpoint.health.faults}
