"""Rows of `chainfolio doctor` about beacon nodes: network, head, and the served parts of the API."""

from __future__ import annotations

from chainfolio.adapters.beacon.node import BeaconNode
from chainfolio.adapters.beacon.responses import AttestationRewards, Checkpoints, Header, NodeVersion, SyncStatus
from chainfolio.errors import SourceError


async def examine(node: BeaconNode) -> dict[str, str | int | bool]:
    """Return the row of a node. Its `problem` is empty and `ok` True if the node can be used.

    An error does not raise but is the problem; later columns are then absent.
    """
    row: dict[str, str | int | bool] = {"endpoint": node.name, "ok": False, "problem": ""}
    try:
        header = (await node.read("/eth/v1/beacon/headers/head", Header)).header.message
        final = (await node.read("/eth/v1/beacon/states/head/finality_checkpoints", Checkpoints)).finalized.epoch
        syncing = await node.read("/eth/v1/node/syncing", SyncStatus)
        version = (await node.read("/eth/v1/node/version", NodeVersion)).version
        row |= {"head": header.slot, "final": f"epoch {final}", "version": version[:80]}
        if syncing.is_syncing or syncing.is_optimistic:
            return row | {"problem": "it is not in step with the chain yet"}
        await node.read(f"/eth/v1/beacon/rewards/attestations/{max(0, final - 3)}", AttestationRewards, ["0"])
        row |= {"reads": "rewards", "oldestState": await _oldest_state(node)}
    except SourceError as error:
        return row | {"problem": error.reason}
    return row | {"ok": True}


async def _oldest_state(node: BeaconNode) -> str:
    """Return `archive` if the node has old states, else `recent`."""
    try:
        await node.read("/eth/v1/beacon/states/1/finality_checkpoints", Checkpoints)
    except SourceError:
        return "recent"
    return "archive"
