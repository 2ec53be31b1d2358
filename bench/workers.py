"""Measure how much faster several workers of the queue index one chain, at a near node and at one 60 ms away.

python -m bench.workers [--blocks 6000] [--repeat 3]

Each turn starts with empty stores and workers that wait. The time begins when the ranges are added, and ends when no
job is left. The stored blocks are counted after each turn. It needs PostgreSQL's programs.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figures import Figure, main, spread
from bench.first import DelayedProxy
from bench.places import MissingPrerequisite, scratch
from bench.runs import environment
from chainfolio.indexer.job_queue import JobQueue, opened
from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import trade
from chainfolio.storage.lake import Lake
from chainfolio.tables import BLOCKS

CASES = ((0, 2, 1.6), (60, 8, 6.0))  # latency in ms, workers, least speed of them against one
JOBS_PER_WORKER = 4  # so that all end at about the same time
SPAN = 25  # blocks of a request
TRADES = 300


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    from tests.storage.stores import own_server  # the benchmarks run without the tests, but for this one

    with LocalNode() as node, own_server() as server, scratch() as folder:
        if server is None:
            raise MissingPrerequisite("PostgreSQL's programs were not found: install postgresql")
        trade(node, deploy(node), TRADES)
        node.mine(options.blocks - node.height)
        figures = []
        for latency_ms, workers, bar in CASES:
            turns: dict[int, list[float]] = {1: [], workers: []}
            for turn in range(2 * options.repeat):
                count = (1, workers)[turn % 2]
                place = folder / f"{latency_ms}-{turn}"
                place.mkdir()
                url = server.new_database(f"turn_{latency_ms}_{turn}")
                turns[count].append(asyncio.run(_turn(node.url, place, url, count, latency_ms, options.blocks)))
            ratios = [one / many for one, many in zip(turns[1], turns[workers], strict=True)]
            subject = f"{options.blocks:,} blocks, node {latency_ms} ms away: time of 1 worker / of {workers}"
            value = f"{spread(ratios)}, one {statistics.median(turns[1]):.1f} s"
            figures.append(Figure("workers", subject, value, f"≥ {bar}", statistics.median(ratios) >= bar))
    return figures


async def _turn(node: str, folder: Path, url: str, workers: int, latency_ms: int, blocks: int) -> float:
    """Return the seconds in which workers index all final blocks."""
    async with DelayedProxy(node, latency_ms / 1000).served() as proxy:
        config = _configured(folder, url, proxy if latency_ms else node)
        async with opened(url) as queue:
            with _started(config, workers) as processes:
                await asyncio.to_thread(_wait_until_ready, processes)
                start_s = time.perf_counter()
                await _add(queue, workers, blocks)
                while await queue.jobs():  # noqa: ASYNC110 - the queue of other processes
                    await asyncio.sleep(0.05)
                spent_s = time.perf_counter() - start_s
    stored = Lake(str(folder / "data" / "lake")).count(BLOCKS, "local")
    assert stored > blocks - 100, f"{stored} of {blocks} blocks are stored"
    return spent_s


def _configured(folder: Path, url: str, rpc: str) -> Path:
    """Write the settings of a turn and return their file."""
    config = folder / "chainfolio.toml"
    chain = f'[chains.local]\nrpc = ["{rpc}"]\nspan = {SPAN}\n'
    config.write_text(f'data = "data"\n[tail]\nurl = "{url}"\n[schedule]\nmaterialise = ""\n{chain}')
    return config


async def _add(queue: JobQueue, workers: int, blocks: int) -> None:
    size = -(-blocks // (workers * JOBS_PER_WORKER))
    for first in range(0, blocks, size):
        await queue.add("index", "local", first=first, last=min(first + size, blocks) - 1)


@contextmanager
def _started(config: Path, workers: int) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "chainfolio", "worker", "--jobs", "--config", str(config)]
    processes = [
        subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) for _ in range(workers)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.communicate()


def _wait_until_ready(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        assert process.stderr is not None
        assert "waiting for work" in process.stderr.readline()


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--blocks", type=int, default=6_000)
    parser.add_argument("--repeat", type=int, default=3)


if __name__ == "__main__":
    main(__doc__, run, add)
