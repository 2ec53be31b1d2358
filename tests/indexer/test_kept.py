"""What the engine keeps of an account: a whole answer for a while, one that lacks a chain not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from chainfolio.assets import Asset, account
from chainfolio.blocks import Block
from chainfolio.contracts import Holding, Snapshot, Token
from chainfolio.errors import Unavailable
from chainfolio.settings import Chain, Settings
from indexer.engine import Engine
from indexer.wiring import System
from portfolio.document import Portfolio
from portfolio.facts import Options

ALICE = account("0x" + "a1" * 20)
IDS = {"ethereum": "eip155:1", "base": "eip155:8453"}


@dataclass
class Node:
    """Stands for the snapshotter of a chain: one coin for every account, as long as it answers."""

    chain: str
    failure: Exception | None = None
    asked: list[Sequence[str]] = field(default_factory=list)

    async def take(self, accounts: Sequence[str], *, live: bool = False) -> Snapshot:
        self.asked.append(accounts)
        if self.failure:
            raise self.failure
        coin = Token(Asset(IDS[self.chain], "slip44", "60"), "ETH", "Ether", 18)
        held = tuple(Holding(each, coin, 10**18) for each in accounts)
        return Snapshot(self.chain, Block(7, "0x07", "0x06", 1_760_000_000_000_000), tuple(accounts), held, (), ())


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[tuple[Engine, Node, Node]]:
    chains = {key: Chain(rpc=["http://127.0.0.1:1"]) for key in IDS}
    system, first, second = System(Settings(data=str(tmp_path), chains=chains)), Node("ethereum"), Node("base")
    yield Engine(system, _snapshotters={"ethereum": first, "base": second}), first, second  # type: ignore[dict-item]
    await system.close()


async def ask(engine: Engine, *, wait: bool = False) -> Portfolio:
    (found,) = await engine.portfolios([ALICE], Options(), wait=wait, wallet_only=False)
    return found


async def test_an_answer_that_lacks_a_chain_says_so_and_is_not_kept(nodes: tuple[Engine, Node, Node]) -> None:
    engine, first, second = nodes
    second.failure = Unavailable("node", "timed out")
    for asked in (1, 2):
        found = await ask(engine)
        assert (found.completeness, sorted(found.chains)) == ("partial", ["base", "ethereum"])
        assert [issue.reason for issue in found.issues] == ["the chain could not be read: timed out"]
        assert len(first.asked) == asked, "it was kept"
    second.failure = None
    assert (await ask(engine)).completeness == "complete"


async def test_a_whole_answer_is_kept_and_a_failure_after_it_is_told_only_to_who_wants_it_fresh(
    nodes: tuple[Engine, Node, Node],
) -> None:
    engine, first, second = nodes
    whole = await ask(engine)
    assert (whole.completeness, whole.unpriced_assets) == ("complete", 2)
    assert await ask(engine) == whole
    assert len(first.asked) == 1
    second.failure = Unavailable("node", "timed out")
    engine._kept[ALICE.address].updated_us = 0
    assert (await ask(engine, wait=True)).completeness == "partial"
    assert (await ask(engine)).networth == whole.networth
