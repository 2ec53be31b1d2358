"""Estimated and real costs of a back-fill."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chainfolio.blocks import Span
from chainfolio.indexer.estimate import estimate
from chainfolio.indexer.work import missing
from chainfolio.storage.lake import Lake
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import index

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def busy() -> Iterator[EvmSubject]:
    with evm(120) as busy:
        busy.trade(150, 5)
        yield busy


@pytest.mark.parametrize("datasets", [("transfers", "approvals"), ("blocks", "transactions", "native", "transfers")])
async def test_an_estimate_is_near_what_it_costs(busy: EvmSubject, tmp_path: Path, datasets: tuple[str, ...]) -> None:
    async with index(busy, tmp_path, datasets=datasets, span=10) as indexed:
        work = missing(indexed.tail, indexed.key, Span(13, busy.height - 64), datasets, ())
        await indexed.chain.heads()
        forecast = await estimate(indexed.chain, work, tmp_path / "data", indexed.environment.clock)
        assert list((tmp_path / "data").iterdir()) == [], "the trial commit leaves nothing behind"
        before = indexed.chain.requests
        progress = await indexed.fill(13, busy.height - 64)
        assert forecast["blocks"] == progress.blocks == progress.blocks_total
        assert forecast["events"] == pytest.approx(progress.events, rel=0.25)
        assert forecast["requests"] == pytest.approx(indexed.chain.requests - before, rel=0.25)


async def test_nothing_missing_costs_nothing(busy: EvmSubject, tmp_path: Path) -> None:
    async with index(busy, tmp_path) as indexed:
        forecast = await estimate(indexed.chain, [], tmp_path, indexed.environment.clock)
        assert set(forecast.values()) == {0}
        assert indexed.chain.requests == 0


async def test_what_commits_take_is_part_of_the_estimate(
    busy: EvmSubject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended = Lake.append

    def slowly(*arguments: Any, **named: Any) -> bool:
        time.sleep(0.5)
        return appended(*arguments, **named)

    async with index(busy, tmp_path, datasets=("transfers",), span=10) as indexed:
        work = missing(indexed.tail, indexed.key, Span(13, busy.height - 64), ("transfers",), ())
        await indexed.chain.heads()
        quick = await estimate(indexed.chain, work, tmp_path, indexed.environment.clock)
        monkeypatch.setattr(Lake, "append", slowly)
        monkeypatch.setattr("chainfolio.indexer.estimate.BATCH_ROWS", 100)
        slow = await estimate(indexed.chain, work, tmp_path, indexed.environment.clock)
        batches = -(-slow["events"] // 100)
        assert slow["seconds"] - quick["seconds"] >= batches * 0.5 - 1
