"""A beacon chain is followed at its head, also where blocks go and others come."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainfolio.adapters.beacon.settings import BeaconSettings
from chainfolio.indexer.wiring import System
from chainfolio.settings import Settings
from chainfolio.staking_tables import BEACON
from chainfolio.tables import BLOCKS
from tests.beacon.conftest import started, stored

pytestmark = pytest.mark.node


async def test_after_reorganisations_the_index_is_that_of_the_chain_as_it_is(tmp_path: Path) -> None:
    node = started(slots=64)
    try:
        settings = BeaconSettings(adapter="beacon", rpc=[node.url], datasets=["blocks", *(t.name for t in BEACON)])
        system = System(Settings(data=str(tmp_path / "one"), chains={"own": settings}))
        follower = system.follower(system.chain("own"))
        for depth, slots in ((0, 3), (2, 5), (7, 9), (1, 1), (12, 20)):
            await follower.step()
            head = follower.status.head
            node.do("rewind", slot=head - depth)
            node.do("offline", validators=list(range(depth)))  # so that it is another branch
            node.advance(slots)
        await follower.step()
        assert follower.status.reorgs == 4
        assert follower.status.halted == ""
        fresh = System(Settings(data=str(tmp_path / "two"), chains={"own": settings}))
        await fresh.follower(fresh.chain("own")).step()
        for table in (BLOCKS, *BEACON):
            assert sorted(map(str, stored(system, table))) == sorted(map(str, stored(fresh, table))), table.name
        assert len(stored(system, BEACON[1])) > 64 * 5
        await system.close()
        await fresh.close()
    finally:
        node.__exit__(None, None, None)
