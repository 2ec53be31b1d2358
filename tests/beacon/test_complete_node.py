"""A complete node with its validators, by the clock: its blocks are followed by its own announcements
until they are final. It has to be compiled, so it runs only where it is installed:
`python -m chainfolio.localchain.lodestar.node`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from urllib.error import HTTPError

import pytest

from chainfolio.adapters.beacon.chain import BeaconChain
from chainfolio.adapters.beacon.settings import BeaconSettings
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer, HistoryUnavailable
from chainfolio.indexer.wiring import System
from chainfolio.localchain.lodestar.node import VALIDATORS, Lodestar, installed
from chainfolio.settings import Settings
from chainfolio.staking_tables import PROPOSALS
from chainfolio.tables import BLOCKS
from tests.beacon.conftest import stored

pytestmark = [pytest.mark.node, pytest.mark.xdist_group("lodestar"), pytest.mark.timeout(600)]
OF_BLOCKS = ["blocks", "proposals", "withdrawals", "deposits", "stake_requests"]
FINAL, PATIENCE_S = 16, 240.0  # a slot: two epochs


@pytest.fixture(scope="module")
def node() -> Iterator[Lodestar]:
    installation = installed()
    if installation is None:
        pytest.skip("the complete beacon node is not installed: python -m chainfolio.localchain.lodestar.node")
    with Lodestar(installation) as running:
        yield running


def block_at(node: Lodestar, slot: int) -> dict[str, Any] | None:
    """A block as the node tells it; None where it was missed."""
    try:
        header = node.call(f"/eth/v1/beacon/headers/{slot}")["data"]
    except HTTPError:
        return None
    message = node.call(f"/eth/v2/beacon/blocks/{slot}")["data"]["message"]
    return {"hash": header["root"], "parent": message["parent_root"], "proposer": int(message["proposer_index"])}


async def test_a_complete_node_is_followed_by_its_announcements_until_its_blocks_are_final(
    node: Lodestar, tmp_path: Path
) -> None:
    settings = BeaconSettings(adapter="beacon", rpc=[node.url], datasets=OF_BLOCKS)
    system = System(Settings(data=str(tmp_path), chains={"own": settings}))
    chain = cast("BeaconChain", system.chain("own"))
    follower, end_s, woken, final = system.follower(system.chain("own")), time.monotonic() + PATIENCE_S, 0, 0
    while final < FINAL and time.monotonic() < end_s:
        await follower.step()
        final = (await chain.heads()).finalized
        woken += await chain.announced(20)
    assert final >= FINAL, "what it announces becomes final"
    assert woken > FINAL // 2, "the node's own events end the wait"
    assert chain.announcements is not None
    assert (chain.announcements.connections, chain.listener_failures) == (1, 0)
    rows = {each["height"]: each for each in stored(system, BLOCKS)}
    proposers = {each["height"]: each["validator"] for each in stored(system, PROPOSALS)}
    for slot in range(1, final + 1):
        header = await asyncio.to_thread(block_at, node, slot)
        row = rows.get(slot)
        assert header == (row and {"hash": row["hash"], "parent": row["parent"], "proposer": proposers[slot]}), slot
    assert len(proposers) > FINAL // 2
    assert set(proposers.values()) <= set(range(VALIDATORS))
    # This release tells no rewards. It keeps few states to compute them from, and swaps slot and index of committees.
    with pytest.raises((BadAnswer, HistoryUnavailable)):
        await chain.collect(Span(final - 7, (await chain.heads()).latest.height), ["validator_rewards"])
    assert (await chain.validator(3)).status == "active_ongoing"
    await system.close()
