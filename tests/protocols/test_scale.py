"""Installed protocols cost no request for a wallet that does not use them."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.rules import Family
from chainfolio.engine.wiring import snapshotter_of
from chainfolio.indexer.families import families
from chainfolio.indexer.wiring import CONFIGS, System
from chainfolio.protocols import InstalledProtocol
from tests.protocols.world import World

PROTOCOLS, CONTRACTS = 420, 8_400


def forks() -> Iterator[tuple[str, str, str, str, str, str]]:
    """Lines of `forks.csv`: many forks on the local chain, of the families and roles that forks have."""
    with (CONFIGS / "protocols" / "forks.csv").open(newline="") as file:
        kinds = sorted({(row["family"], row["role"]) for row in csv.DictReader(file)})
    chance = random.Random(1)
    for number in range(PROTOCOLS):
        family, role = kinds[number % len(kinds)]
        for _ in range(CONTRACTS // PROTOCOLS):
            yield f"fork{number}", f"Fork {number}", family, "local", role, f"0x{chance.getrandbits(160):040x}"


@pytest.mark.node
def test_a_snapshot_asks_not_one_request_more_with_hundreds_of_protocols(demo_world: World) -> None:
    accounts = [account.lower() for account in demo_world.deployment.accounts.values()]

    async def requests(system: System) -> tuple[int, list[int]]:
        """Protocols on the chain, and the requests of the first snapshot of a process and of the next."""
        fresh = System(system.settings)
        try:
            chain, request_counts = fresh.chain("local"), []
            snapshotter = snapshotter_of(fresh, chain)
            block = await chain.block(demo_world.node.height)
            for _ in range(2):
                snapshot = await snapshotter.take(accounts, block)
                assert snapshot.positions
                request_counts.append(snapshot.requests)
            return len(fresh.installed_protocols(chain).rows), request_counts
        finally:
            await fresh.close()

    async def compared(system: System) -> tuple[tuple[int, list[int]], tuple[int, list[int]]]:
        base, file = await requests(system), Path(system.settings.protocols) / "forks.csv"
        with file.open("w", newline="") as rows:
            csv.writer(rows).writerows([("protocol", "name", "family", "chain", "role", "address"), *forks()])
        try:
            return base, await requests(system)
        finally:
            file.unlink()

    (base, before), (full, after) = demo_world.run(compared)
    assert full >= base + PROTOCOLS
    assert after == before


def test_forks_put_no_question_to_a_token_that_their_family_does_not_put_anyway() -> None:
    rows = {
        name: InstalledProtocol(name, family, dict.fromkeys(family.all_roles, ("0x" + "11" * 20,)), {})
        for name, family in families().items()
        if isinstance(family, Family)
    }
    forked = [
        InstalledProtocol(fork, families()[name], {role: (address,)}, {}, is_fork=True)
        for fork, _, name, _, role, address in forks()
    ]
    assert Protocols([*rows.values(), *forked]).questions == Protocols(list(rows.values())).questions
