"""Rates and what is left of a run, by a clock that is moved by hand."""

from __future__ import annotations

import random

import pytest

from indexer.progress import Progress
from tests.indexer.clock import ManualClock


def test_nothing_is_foretold_before_anything_is_done() -> None:
    clock = ManualClock()
    progress = Progress(clock, 100)
    clock.now_s += 5
    assert (progress.rates, progress.eta_s, progress.seconds) == ((0, 0), None, 5)


def test_counts_add_up_and_requests_are_as_told() -> None:
    seen = []
    progress = Progress(ManualClock(), 100, on_change=lambda progress: seen.append(progress.blocks))
    progress.add(blocks=10, events=5, requests=3)
    progress.add(blocks=20, events=1, restored=2, requests=7)
    assert (progress.blocks, progress.events, progress.restored, progress.requests) == (30, 6, 2, 7)
    assert seen == [10, 30]


@pytest.mark.parametrize("chunk_s", [0.01, 0.4, 3.0, 15.0, 60.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_is_left_of_a_steady_run_is_foretold_within_a_fifth(chunk_s: float, seed: int) -> None:
    chance, clock = random.Random(seed), ManualClock()
    start_s, chunks = clock.now_s, 300
    progress, foretold = Progress(clock, chunks * 100), []
    for _ in range(chunks):
        clock.now_s += chunk_s * chance.uniform(0.9, 1.1)
        progress.add(blocks=100, events=250)
        assert progress.eta_s is not None
        foretold.append((clock.now_s, progress.eta_s))
    spent_s = clock.now_s - start_s
    for now_s, eta_s in foretold[chunks // 10 :]:
        left_s = clock.now_s - now_s
        assert abs(eta_s - left_s) <= max(0.2 * left_s, 0.01 * spent_s)


@pytest.mark.parametrize("width", [2, 4, 8])
def test_chunks_that_come_in_bursts_are_foretold_too(width: int) -> None:
    """Several on their way at once come back at once."""
    clock = ManualClock()
    start_s, chunks = clock.now_s, 400
    progress, foretold = Progress(clock, chunks), []
    for at in range(chunks):
        if at % width == 0:
            clock.now_s += 1.0
        progress.add(blocks=1)
        if at % width == width - 1:
            foretold.append((clock.now_s, progress.eta_s or 0.0))
    for now_s, eta_s in foretold[len(foretold) // 10 :]:
        left_s = clock.now_s - now_s
        assert abs(eta_s - left_s) <= max(0.2 * left_s, 0.02 * (clock.now_s - start_s))


def test_a_run_that_slows_down_is_foretold_by_what_it_does_lately() -> None:
    clock = ManualClock()
    progress = Progress(clock, 10_000)
    for _ in range(100):
        clock.now_s += 0.1
        progress.add(blocks=50)
    for _ in range(60):
        clock.now_s += 1
        progress.add(blocks=10)
    assert progress.rates[0] == pytest.approx(10, rel=0.05)
    assert progress.eta_s == pytest.approx(440, rel=0.05)
