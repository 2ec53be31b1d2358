"""A thousand workers and the queue in virtual time: every range once, no job starves, faults are parked."""

from __future__ import annotations

import pytest

from bench.queue_simulation import simulate
from tests.depth import IS_DEEP


@pytest.mark.parametrize("seed", range(2))
def test_every_range_is_indexed_once_and_no_job_starves(seed: int) -> None:
    outcome = simulate(seed, chains=10, ranges=6)
    assert outcome.not_once == 0
    assert outcome.starved == 0
    assert outcome.faulty <= outcome.parked
    assert len(outcome.parked) <= len(outcome.faulty) + 1, "a job whose worker dies five times is parked too"


def test_few_workers_on_many_chains_starve_none() -> None:
    outcome = simulate(1, workers=3, chains=12, ranges=3)
    assert (outcome.not_once, outcome.starved) == (0, 0)


def test_equal_seeds_give_equal_runs() -> None:
    assert simulate(7, workers=20, chains=4, ranges=3) == simulate(7, workers=20, chains=4, ranges=3)


@pytest.mark.slow("simulates many back-fills of a thousand workers")
@pytest.mark.timeout(900)
def test_each_seed_indexes_every_range_once() -> None:
    runs = [simulate(seed, chains=30, ranges=8) for seed in range(100 if IS_DEEP else 25)]
    assert sum(run.not_once + run.starved for run in runs) == 0
    assert sum(run.deaths for run in runs) > len(runs) // 10
