"""Kill an indexing run at random points until it completes; count lost, doubled and refetched rows.

python -m bench.kills [--kills 50] [--seed N]
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench import truth
from bench.figures import Figure, main
from bench.node import ReplayNode, fetched_blocks, replay
from bench.places import recorded, scratch
from bench.runs import EVENTS, empty, index, product, product_env

WORKERS = 2  # the default `concurrency` of a chain
LATENCY_MS = 20  # makes the run long compared with the start of its process


@dataclass(slots=True)
class Tally:
    """Counts over all kills."""

    kills: int = 0
    in_time: int = 0  # kills after the run began to fetch
    rounds: int = 0
    wrong: int = 0
    missing: int = 0
    doubled: int = 0
    recovered: int = 0
    refetched: list[int] = field(default_factory=list)  # blocks beyond those of an unbroken run, by round
    killed: list[int] = field(default_factory=list)  # kills, by round


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    tally = Tally()
    with replay("--latency", str(LATENCY_MS)) as node, scratch() as folder:
        index(node.url, empty(folder / "ours")).checked()
        node.reset()
        walls = [index(node.url, empty(folder / "ours")).checked().wall_s for _ in range(3)]
        unbroken = fetched_blocks(node.stats()["asked"]) // len(walls)
        expected = sorted(truth.stored_events(folder / "ours"))
        wall_s = statistics.median(walls)
        while tally.in_time < options.kills:
            _round(node, folder / "ours", chance, wall_s, tally, expected, unbroken)
    return _figures(tally, seed)


def _round(
    node: ReplayNode,
    data: Path,
    chance: random.Random,
    wall_s: float,
    tally: Tally,
    expected: list[truth.Event],
    unbroken: int,
) -> None:
    """Kill runs over one data folder until one completes, then compare its rows; counts go to `tally`."""
    empty(data)
    node.reset()
    before, in_time = 0, 0
    while True:
        is_through = _killed(node, data, chance.uniform(0.25, 1.0) * wall_s)
        if is_through:
            break
        tally.kills += 1
        span_count = len(node.stats()["asked"])
        in_time += span_count > before
        before = span_count
    last = index(node.url, data).checked().json()
    tally.recovered += last["recoveredBatches"]
    tally.in_time += in_time
    tally.rounds += 1
    stored = sorted(truth.stored_events(data))
    tally.doubled += len(stored) - len(set(stored))
    tally.missing += len(set(expected) - set(stored))
    tally.wrong += stored != expected
    tally.refetched.append(fetched_blocks(node.stats()["asked"]) - unbroken)
    tally.killed.append(in_time)


def _killed(node: ReplayNode, data: Path, after_s: float) -> bool:
    """Start a run and kill it, but not its children, after some seconds; return True if it had completed."""
    chain = recorded()
    span = ["--from", str(chain.first), "--to", str(chain.last)]
    command = [*product(), "index", "local", *span, "--datasets", EVENTS, "--json"]
    start_s = time.perf_counter()
    process = subprocess.Popen(
        command,
        env=product_env(node.url, data),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        return process.wait(max(0.0, after_s - (time.perf_counter() - start_s))) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        process.kill()
        process.wait()


def _figures(tally: Tally, seed: int) -> list[Figure]:
    chain = recorded()
    from chainfolio.indexer.collect import BATCH_ROWS

    span = 100  # the default `span` of a chain
    batch = -(-BATCH_ROWS // (chain.events // chain.blocks * span)) * span
    allowed = WORKERS * batch
    per_kill = sum(tally.refetched) / max(1, sum(tally.killed))
    exact = tally.wrong == tally.missing == tally.doubled == 0
    return [
        Figure(
            "kills",
            f"{tally.in_time} kills inside the work ({tally.kills} in all, {tally.rounds} runs), seed {seed}",
            f"lost {tally.missing}, doubled {tally.doubled}, digests {'equal' if exact else 'DIFFERENT'}",
            "0, 0, equal",
            exact,
            {"recovered": tally.recovered},
        ),
        Figure(
            "kills",
            "blocks fetched again per kill",
            f"{per_kill:.0f}",
            f"≤ {allowed}, a batch a worker",
            per_kill <= allowed,
            {"refetched": tally.refetched, "killed": tally.killed},
        ),
    ]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--kills", type=int, default=50, help="at least so many inside the work")
    parser.add_argument("--seed", type=int, help="of the moments")


if __name__ == "__main__":
    main(__doc__, run, add)
