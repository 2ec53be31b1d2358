"""What `doctor` says of a beacon node: whether it is of the right network, how far it is, and what it serves."""

from __future__ import annotations

from typing import Any

from chainfolio.adapters.beacon.answers import AttestationRewards, Checkpoints, Header, NodeVersion, Syncing
from chainfolio.adapters.beacon.node import BeaconNode
from chainfolio.errors import SourceError


async def examined(node: BeaconNode) -> dict[str, Any]:
    """One row of the report; `problem` is empty where the node can be used."""
    row: dict[str, Any] = {"endpoint": node.name, "ok": False, "problem": ""}
    try:
        header = (await node.data("/eth/v1/beacon/headers/head", Header)).header.message
        final = (await node.data("/eth/v1/beacon/states/head/finality_checkpoints", Checkpoints)).finalized.epoch
        syncing = await node.data("/eth/v1/node/syncing", Syncing)
        version = (await node.data("/eth/v1/node/version", NodeVersion)).version
        row |= {"head": header.slot, "final": f"epoch {final}", "version": version[:80]}
        if syncing.is_syncing or syncing.is_optimistic:
            return row | {"problem": "it is not in step with the chain yet"}
        await node.data(f"/eth/v1/beacon/rewards/attestations/{max(0, final - 3)}", AttestationRewards, ["0"])
        row |= {"reads": "rewards", "oldestState": await _oldest(node)}
    except SourceError as error:
        return row | {"problem": error.reason}
    return row | {"ok": True}


async def _oldest(node: BeaconNode) -> str:
    """Whether it keeps the states of the past, which only an archive node does."""
    try:
        await node.data("/eth/v1/beacon/states/1/finality_checkpoints", Checkpoints)
    except SourceError:
        return "recent"
    return "archive"
