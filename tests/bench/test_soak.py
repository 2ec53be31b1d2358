"""The product in virtual time: no row is lost over restarts, reorganisations and outages, and runs can be repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.hot import BARS, measured
from bench.soak import digest, figures_of
from bench.soak_run import Plan, Result, soak

MINUTES = Plan(seed=3, days=5 / 1440, accounts=500, requests=150)


def run(plan: Plan, folder: Path) -> Result:
    """Run a plan in a new folder."""
    folder.mkdir()
    return soak(plan, folder)


def test_five_minutes_leave_the_rows_of_a_lake_written_at_once(tmp_path: Path) -> None:
    result = run(MINUTES, tmp_path / "run")
    last = result.hours[-1].counted
    assert (result.different_rows, last.failed) == (0, 0)
    assert last.blocks > 1000
    assert result.rows > 8 * 1000
    assert (last.reorgs, last.restarts) == (1, 1)
    assert last.answered > 5
    assert last.credits > 0


def test_requests_about_a_busy_account_are_measured_while_the_chain_is_followed(tmp_path: Path) -> None:
    times_ms = measured(Plan(accounts=50), tmp_path, minutes=1, count=2)
    assert list(times_ms) == list(BARS)
    assert [len(each) for each in times_ms.values()] == [2, 2]
    assert all(each > 0 for times in times_ms.values() for each in times)


@pytest.mark.slow("runs the same plan twice")
def test_one_seed_gives_one_run(tmp_path: Path) -> None:
    first, second = (run(MINUTES, tmp_path / name) for name in ("first", "second"))
    assert digest(first.hours) == digest(second.hours)


@pytest.mark.slow("follows a chain for a day of virtual time")
@pytest.mark.timeout(1800)
def test_a_day_keeps_every_row_and_stays_within_its_bounds(tmp_path: Path) -> None:
    plan = Plan(seed=5, days=1, block_ms=10_000, requests=6)
    result = run(plan, tmp_path / "run")
    last = result.hours[-1].counted
    assert (result.different_rows, last.failed) == (0, 0)
    assert last.restarts > 60
    missed = [each.name for each in figures_of(plan, result) if each.met is False]
    missed = [name for name in missed if "memory" not in name and "processor" not in name]  # a busy machine's
    assert missed == []
