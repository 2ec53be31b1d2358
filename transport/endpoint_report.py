"""What `chainfolio doctor` shows of endpoints of any kind of chain: whether each can be used, and how far it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from chainfolio.blocks import ahead_of_clock
from chainfolio.chains import Heads
from chainfolio.errors import SourceError
from chainfolio.transport.http_endpoint import HttpEndpoint
from chainfolio.transport.pool import Pool


class SupportsConnect(Protocol):
    """A chain's nodes as one, that can say where the chain stands."""

    async def connect(self) -> Heads:
        """Where the chain stands."""


EndpointT = TypeVar("EndpointT", bound=HttpEndpoint)
NodeT = TypeVar("NodeT", bound=SupportsConnect)


async def report_endpoints(
    pool: Pool[EndpointT],
    unproven: Sequence[str],
    alone: Callable[[EndpointT], NodeT],
    abilities: Callable[[NodeT, Heads], Awaitable[dict[str, Any]]],
) -> list[dict[str, Any]]:
    """A row for each endpoint, in the order of the settings. `alone` makes a chain of one endpoint, of which
    `abilities` says what its kind of chain wants to know; `unproven` is what answers carry no proof of."""
    rows = [await _endpoint(pool, endpoint, unproven, alone, abilities) for endpoint in pool.endpoints]
    best = pool.best_height
    for endpoint, row in zip(pool.endpoints, rows, strict=True):
        row["lagBlocks"] = endpoint.health.lag_blocks(best)
    return rows


async def _endpoint(
    pool: Pool[EndpointT],
    endpoint: EndpointT,
    unproven: Sequence[str],
    alone: Callable[[EndpointT], NodeT],
    abilities: Callable[[NodeT, Heads], Awaitable[dict[str, Any]]],
) -> dict[str, Any]:
    evidence = endpoint.health.evidence
    found: dict[str, Any] = {
        "endpoint": endpoint.name,
        "ok": True,
        "problem": "",
        "quarantined": evidence is not None,
        "evidence": None,
        "unproven": list(unproven),
    }
    if evidence is not None:
        problem = f"quarantined: {evidence.asked}: gave {evidence.given}; {evidence.truth}"
        return found | {"ok": False, "problem": problem, "evidence": msgspec.to_builtins(evidence)}
    try:
        clock, node = pool.environment.clock, alone(endpoint)
        start_s = clock.monotonic_s()
        heads = await node.connect()
        found["latencyMs"] = int((clock.monotonic_s() - start_s) * 1000)
        now_us = clock.now_us()
        found |= {"head": heads.latest.height, "final": heads.finalized}
        found["headAgeS"] = max(0, (now_us - heads.latest.time_us) // 1_000_000)
        found |= await abilities(node, heads)
        if wrong := ahead_of_clock(heads.latest.time_us, now_us):
            found |= {"ok": False, "problem": wrong}
    except SourceError as error:
        found |= {"ok": False, "problem": str(error)}
    return found | {"faults": endpoint.health.faults}
