"""What is done beside a follower, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from chainfolio.indexer import maintenance, materialise
from chainfolio.indexer.maintenance import Maintenance
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.supervisor import Task
from tests.indexer.clock import ManualClock


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

    monkeypatch.setattr(materialise, "materialise", noted("derive"))
    monkeypatch.setattr(Maintenance, "compact", noted("compact"))
    return deeds


async def test_histories_are_derived_every_half_minute_and_files_merged_every_hour(
    deeds: list[str], tmp_path: Path
) -> None:
    tail = Tail(tmp_path / "tail.db")
    rounds = 2 * int(maintenance.COMPACT_EVERY_S / maintenance.MATERIALISE_EVERY_S)
    with pytest.raises(Ended):
        await Maintenance(Lake(str(tmp_path / "lake")), tail, "a", Ending(rounds)).run(Task("derivation"))
    assert deeds.count("derive") == rounds
    assert [at for at, deed in enumerate(deeds) if deed == "compact"] == [rounds // 2, rounds + 1]
    tail.close()


def test_there_is_nothing_to_merge_in_an_empty_lake(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "tail.db")
    Maintenance(Lake(str(tmp_path / "lake")), tail, "a", ManualClock()).compact()
    tail.close()
