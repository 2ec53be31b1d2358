"""Endpoint rows of `chainfolio doctor`, for all kinds of chain: usability, head, lag, evidence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from chainfolio.blocks import ahead_of_clock
from chainfolio.chain_results import Heads
from chainfolio.errors import SourceError
from chainfolio.transport.http_endpoint import HttpEndpoint
from chainfolio.transport.pool import Pool


class SupportsConnect(Protocol):
    """Nodes of a chain that can read its heads."""

    async def connect(self) -> Heads:
        """Check the chain and return its heads."""


EndpointT = TypeVar("EndpointT", bound=HttpEndpoint)
NodeT = TypeVar("NodeT", bound=SupportsConnect)


async def report_endpoints(
    pool: Pool[EndpointT],
    unproven: Sequence[str],
    alone: Callable[[EndpointT], NodeT],
    abilities: Callable[[NodeT, Heads], Awaitable[dict[str, Any]]],
) -> list[dict[str, Any]]:
    """Return a row for each endpoint, in the order of the settings. An error becomes the row's `problem`.

    The endpoints are contacted one after another; quarantined ones are not contacted.

    Args:
        pool: All endpoints of the chain.
        unproven: Facts that the node's answers do not prove.
        alone: Makes a chain with a single endpoint.
        abilities: Returns the columns that only this kind of chain has.
    """
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
    """Return a row about an endpoint; a failure is in it and is not raised. Quarantined ones are not read.

    Keys are `endpoint`, `ok`, `problem`, `quarantined`, `evidence` and `unproven`, and unless it is quarantined
    `faults`. If it was read also `latencyMs`, `head`, `final`, `headAgeS` and the columns of `abilities`.

    Args:
        pool: Its pool.
        endpoint: The endpoint.
        unproven: What nothing proves, as texts.
        alone: Makes a node of this endpoint only.
        abilities: Reads further columns.
    """
    evidence = endpoint.health.evidence
    row: dict[str, Any] = {
        "endpoint": endpoint.name,
        "ok": True,
        "problem": "",
        "quarantined": evidence is not None,
        "evidence": None,
        "unproven": list(unproven),
    }
    if evidence is not None:
        problem = f"quarantined: {evidence.asked}: gave {evidence.given}; {evidence.truth}"
        return row | {"ok": False, "problem": problem, "evidence": msgspec.to_builtins(evidence)}
    try:
        clock, node = pool.environment.clock, alone(endpoint)
        start_s = clock.monotonic_s()
        heads = await node.connect()
        row["latencyMs"] = int((clock.monotonic_s() - start_s) * 1000)
        now_us = clock.now_us()
        row |= {"head": heads.latest.height, "final": heads.finalized}
        row["headAgeS"] = max(0, (now_us - heads.latest.time_us) // 1_000_000)
        row |= await abilities(node, heads)
        if wrong := ahead_of_clock(heads.latest.time_us, now_us):
            row |= {"ok": False, "problem": wrong}
    except SourceError as error:
        row |= {"ok": False, "problem": str(error)}
    return row | {"faults": endpoint.health.faults}
