"""The benchmark of several workers counts rows that are lost or doubled, and needs no database without turns."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from bench import workers
from bench.figures import Figure
from bench.workers import WRITERS, differences

COMMITS = 3
ALL = [*range(COMMITS), *(1000 * number + batch for number in range(1, WRITERS + 1) for batch in range(COMMITS))]


@pytest.mark.parametrize(
    ("stored", "lost", "doubled"),
    [(ALL, 0, 0), (ALL[1:], 1, 0), ([*ALL, 0, 1000], 0, 2), ([*ALL[:-1], 0], 1, 1), ([], len(ALL), 0)],
    ids=["all", "lost", "doubled", "both", "nothing"],
)
def test_lost_and_doubled_rows_are_counted(stored: list[int], lost: int, doubled: int) -> None:
    assert differences(stored, COMMITS) == (lost, doubled, len(ALL))


def test_without_turns_only_the_shared_table_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def written(folder: Path, commits: int) -> Figure:
        assert folder.parent.exists()
        return Figure("workers", f"{commits} commits", "0, 0")

    monkeypatch.setattr(workers, "_written_together", written)
    options = argparse.Namespace(blocks=6_000, repeat=0, commits=100)
    assert [each.name for each in workers.run(options)] == ["100 commits"]
