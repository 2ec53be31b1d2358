"""Maintenance next to a follower: its steps and their times."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from chainfolio.blocks import Span
from chainfolio.indexer import maintenance, materialise
from chainfolio.indexer.maintenance import Maintenance
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.tables import ACCOUNT_TRANSFERS, BLOCKS, TRANSFERS
from tests.storage.conftest import make


class Chain:
    """The stores of a chain `a` with a block a second, and its maintenance."""

    def __init__(self, folder: Path) -> None:
        self.lake, self.tail = Lake(str(folder / "lake")), Tail(folder / "tail.db")
        self._batch, self.height = 0, 0
        self.maintenance = Maintenance(self.lake, self.tail, "a", 1000, 1)

    def add(self, blocks: int) -> None:
        """Index blocks with a transfer each."""
        span, self._batch = Span(self.height, self.height + blocks - 1), self._batch + 1
        self.height += blocks
        for table in (TRANSFERS, BLOCKS):
            rows = make(table, "a", range(span.first, span.last + 1), per_block=1)
            self.lake.append(table, rows, stream="a/follow", batch=self._batch)
        batch = self.tail.open_batch("a", span, ("transfers",), ("",), after=0)
        self.tail.close_batch(batch)

    def files_by_bucket(self) -> Counter[int | None]:
        """The number of files of each bucket of the histories."""
        return Counter(file.bucket for file in self.lake.entries(ACCOUNT_TRANSFERS))


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    """A chain without a block."""
    return Chain(tmp_path)


async def test_files_are_not_deleted_while_others_are_merged(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def slow(name: str) -> Callable[[Maintenance], None]:
        def work(_: Maintenance) -> None:
            steps.append(f"{name} begins")
            time.sleep(0.05)
            steps.append(f"{name} ends")

        return work

    monkeypatch.setattr(Maintenance, "merge", slow("merge"))
    monkeypatch.setattr(Maintenance, "delete_replaced", slow("vacuum"))
    await asyncio.gather(chain.maintenance.materialise_due(), chain.maintenance.vacuum())
    assert steps == ["merge begins", "merge ends", "vacuum begins", "vacuum ends"]


def test_a_history_waits_until_half_an_hour_of_blocks_is_pending(chain: Chain) -> None:
    chain.add(1700)
    assert chain.maintenance.due_histories() == []
    chain.add(100)
    assert chain.maintenance.due_histories() == ["account_transfers"]
    chain.maintenance.run_once()
    assert chain.lake.count(ACCOUNT_TRANSFERS) >= 1800
    assert chain.maintenance.due_histories() == []
    chain.add(1700)
    restarted = Maintenance(chain.lake, chain.tail, "a", 1000, 1)
    assert restarted.due_histories() == [], "a process that begins anew does not begin to materialise"


def test_a_history_does_not_wait_when_many_rows_are_pending(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "PENDING_ROWS", 100)
    chain.add(99)
    assert chain.maintenance.due_histories() == []
    chain.add(1)
    assert chain.maintenance.due_histories() == ["account_transfers"]


def test_heights_without_a_row_make_no_history_due(chain: Chain) -> None:
    batch = chain.tail.open_batch("a", Span(0, 10**9), ("transfers",), ("",), after=0)
    chain.tail.close_batch(batch)
    assert chain.maintenance.due_histories() == []


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_after_any_time_an_account_has_few_files(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "PENDING_ROWS", 40)
    rows = 0
    for _ in range(10):
        chain.add(40)
        rows += 40
        chain.maintenance.run_once()
        assert max(chain.files_by_bucket().values()) <= maintenance.MAX_SMALL_IN_BUCKET
        assert len(chain.lake.entries(BLOCKS)) <= maintenance.MAX_SMALL
        assert chain.lake.count(BLOCKS) == chain.lake.count(TRANSFERS) == rows
    materialise.materialise(chain.lake, chain.tail, "a", ("account_transfers",))
    row_count = materialise.rebuild_history(chain.lake, chain.tail, "a", "account_transfers")
    assert chain.lake.count(ACCOUNT_TRANSFERS) == row_count


def test_there_is_nothing_to_do_in_an_empty_lake(chain: Chain) -> None:
    chain.maintenance.run_once()
    chain.maintenance.delete_replaced()
    assert not chain.lake.exists(BLOCKS)
