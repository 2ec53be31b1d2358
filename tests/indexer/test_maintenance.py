"""What is done beside a follower, and when."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from chainfolio.blocks import Span
from chainfolio.indexer import maintenance, materialise
from chainfolio.indexer.maintenance import Maintenance
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.supervisor import Task
from chainfolio.tables import ACCOUNT_TRANSFERS, BLOCKS, TRANSFERS
from tests.indexer.clock import ManualClock
from tests.storage.conftest import make


class Ended(Exception):
    """The test has seen enough."""


class Ending(ManualClock):
    """A clock that ends after some sleeps."""

    def __init__(self, sleeps: int) -> None:
        super().__init__()
        self.sleeps = sleeps

    async def sleep(self, seconds: float) -> None:
        """Time passes, as often as was said."""
        if self.sleeps == 0:
            raise Ended
        self.sleeps -= 1
        await super().sleep(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def deeds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done."""
    deeds: list[str] = []

    def noted(name: str) -> Callable[..., None]:
        return lambda *_: deeds.append(name)

    monkeypatch.setattr(Maintenance, "merge", noted("merge"))
    monkeypatch.setattr(Maintenance, "delete_replaced", noted("delete"))
    return deeds


class Chain:
    """The stores of a chain `a` with a block a second, and its maintenance."""

    def __init__(self, folder: Path) -> None:
        self.lake, self.tail = Lake(str(folder / "lake")), Tail(folder / "tail.db")
        self.clock, self._batch, self.height = ManualClock(), 0, 0
        self.maintenance = Maintenance(self.lake, self.tail, "a", self.clock, 1000, 1)

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


async def test_stores_are_looked_at_every_half_minute_and_replaced_files_deleted_every_hour(
    deeds: list[str], tmp_path: Path
) -> None:
    tail = Tail(tmp_path / "tail.db")
    rounds = 2 * int(maintenance.DELETE_EVERY_S / maintenance.CHECK_EVERY_S)
    with pytest.raises(Ended):
        await Maintenance(Lake(str(tmp_path / "lake")), tail, "a", Ending(rounds), 1, 1).run(Task("derivation"))
    assert deeds.count("merge") == rounds
    assert [at for at, deed in enumerate(deeds) if deed == "delete"] == [rounds // 2, rounds + 1]
    tail.close()


def test_a_history_waits_until_half_an_hour_of_blocks_is_pending(chain: Chain) -> None:
    chain.add(1700)
    assert chain.maintenance.due_histories() == []
    chain.add(100)
    assert chain.maintenance.due_histories() == ["account_transfers"]
    chain.maintenance.run_once()
    assert chain.lake.count(ACCOUNT_TRANSFERS) >= 1800
    assert chain.maintenance.due_histories() == []
    chain.add(1700)
    again = Maintenance(chain.lake, chain.tail, "a", ManualClock(), 1000, 1)
    assert again.due_histories() == [], "a process that begins anew does not begin to materialise"


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


def test_after_any_time_an_account_has_few_files(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "PENDING_ROWS", 40)
    rows = 0
    for _ in range(30):
        chain.add(40)
        rows += 40
        chain.maintenance.run_once()
        assert max(chain.files_by_bucket().values()) <= maintenance.MAX_SMALL_IN_BUCKET
        assert len(chain.lake.entries(BLOCKS)) <= maintenance.MAX_SMALL
        assert chain.lake.count(BLOCKS) == chain.lake.count(TRANSFERS) == rows
    materialise.materialise(chain.lake, chain.tail, "a", ("account_transfers",))
    once = materialise.rebuild_history(chain.lake, chain.tail, "a", "account_transfers")
    assert chain.lake.count(ACCOUNT_TRANSFERS) == once


def test_there_is_nothing_to_do_in_an_empty_lake(chain: Chain) -> None:
    chain.maintenance.run_once()
    chain.maintenance.delete_replaced()
    assert not chain.lake.exists(BLOCKS)
