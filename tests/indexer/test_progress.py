"""Rates and what is left of a run, by a clock that is moved by hand."""

from __future__ import annotations

import random

import pytest

from chainfolio.indexer.progress import Progress
from tests.indexer.clock import ManualClock


def test_nothing_is_foretold_before_anything_is_done() -> None:
    clock = ManualClock()
    progress = Progress(clock, 100)
    clock.now_s += 5
    assert (progress.rates, progress.eta_s, progress.seconds) == ((0, 0), None, 5)


def test_counts_add_up_and_requests_are_as_told() -> None:
    block_counts = []
    progress = Progress(ManualClock(), 100, on_change=lambda progress: block_counts.append(progress.blocks))
    progress.add(blocks=10, events=5, requests=3)
    progress.add(blocks=20, events=1, restored=2, requests=7)
    assert (progress.blocks, progress.events, progress.restored, progress.requests) == (30, 6, 2, 7)
    assert block_counts == [10, 30]


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


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("alone", [False, True], ids=["by waiting", "by one processor"])
@pytest.mark.parametrize("chunks", [20, 100])
@pytest.mark.parametrize("warm_up_s", [0.5, 4.0])
def test_a_short_run_is_foretold_once_two_rounds_are_back(
    width: int, alone: bool, chunks: int, warm_up_s: float
) -> None:
    """Run the first chunk alone and slowly; then many at once, each waiting by itself, or all for one processor."""
    clock, chance = ManualClock(), random.Random(width)
    progress, foretold = Progress(clock, chunks * 100), []
    flying: list[float] = []
    chunks_left, free_s, start_s = chunks, clock.now_s, clock.now_s
    for at in range(chunks):
        while chunks_left and len(flying) < (width if at else 1):
            progress.begin(100)
            took_s = chance.uniform(0.45, 0.55) if at else warm_up_s
            free_s = max(free_s, clock.now_s) + took_s
            flying.append(free_s if alone else clock.now_s + took_s)
            chunks_left -= 1
        clock.now_s = max(clock.now_s, flying.pop(0))
        progress.add(blocks=100, is_started=True)
        foretold.append(clock.now_s + (progress.eta_s or 0.0) - start_s)
    spent_s = clock.now_s - start_s
    for end_s in foretold[max(2 * width, chunks // 10) :]:
        assert abs(end_s - spent_s) <= 0.2 * spent_s


def test_the_first_chunk_is_foretold_by_itself() -> None:
    clock = ManualClock()
    progress = Progress(clock, 400)
    progress.begin(100)
    clock.now_s += 2
    progress.add(blocks=100, is_started=True)
    assert progress.eta_s == pytest.approx(6)


def test_what_another_lane_did_does_not_end_a_chunk_of_this_one() -> None:
    clock = ManualClock()
    progress = Progress(clock, 1_000)
    progress.begin(100)
    for _ in range(4):
        clock.now_s += 1
        progress.add(blocks=100)
    progress.add(blocks=100, is_started=True)
    assert progress.blocks == 500
    assert progress.eta_s == pytest.approx(3.75, rel=0.1)
