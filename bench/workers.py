"""Measure the speed of several workers of the queue on one chain, at a near and at a distant node.

python -m bench.workers [--blocks 6000] [--repeat 3] [--commits 100]

Each turn starts with empty stores and workers that wait. The time begins when the ranges are added, and ends when no
job is left. All turns of a case have the same ranges. The stored blocks are counted after each turn. At the end, four
processes write one table in an S3 service, each its own batches twice, and each all batches of a common stream. The
turns need PostgreSQL's programs; with --repeat 0 there are none, and only the table is written.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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

# Latency in ms, workers, least speed of them against one, blocks of a request: few, so that a far node is the limit.
CASES = ((0, 2, 1.6, 25), (60, 8, 6.0, 1))
JOBS_PER_WORKER = 4  # so that all end at about the same time
WRITERS = 4
TRADES = 300
MINED = 250  # blocks at a time


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures; MissingPrerequisite without PostgreSQL, unless no turn needs it."""
    with scratch() as folder:
        figures = _speeds(folder, options) if options.repeat else []
        return [*figures, _written_together(folder / "s3", options.commits)]


def _speeds(folder: Path, options: argparse.Namespace) -> list[Figure]:
    """Return the speed of several workers against one, for each case."""
    from tests.storage.stores import own_server  # only some benchmarks need the tests

    with LocalNode() as node, own_server() as server:
        if server is None:
            raise MissingPrerequisite("PostgreSQL's programs were not found: install postgresql")
        trade(node, deploy(node), TRADES)
        while node.height < options.blocks:
            node.mine(min(options.blocks - node.height, MINED))
        figures = []
        for latency_ms, workers, bar, span in CASES:
            turns: dict[int, list[float]] = {1: [], workers: []}
            for turn in range(2 * options.repeat):
                count = (1, workers)[turn % 2]
                data_folder = folder / f"{latency_ms}-{turn}"
                data_folder.mkdir()
                url = server.new_database(f"turn_{latency_ms}_{turn}")
                case = Case(node.url, latency_ms, options.blocks, span, workers * JOBS_PER_WORKER)
                turns[count].append(asyncio.run(_turn(case, data_folder, url, count)))
            ratios = [single / parallel for single, parallel in zip(turns[1], turns[workers], strict=True)]
            subject = f"{options.blocks:,} blocks, node {latency_ms} ms away: time of 1 worker / of {workers}"
            value = f"{spread(ratios)}, one {statistics.median(turns[1]):.1f} s"
            figures.append(Figure("workers", subject, value, f"≥ {bar}", statistics.median(ratios) >= bar))
        return figures


def _written_together(folder: Path, commits: int) -> Figure:
    """Let several processes write one table in an S3 service, and count rows that are lost or doubled."""
    from tests.storage.s3_server import serving

    folder.mkdir()
    with serving(folder) as s3:
        uri, variables = s3.bucket(), environment(s3.environment())
        command = [sys.executable, "-m", "tests.storage.s3_writer", uri]
        writers = [subprocess.Popen([*command, str(n), str(commits)], env=variables) for n in range(1, WRITERS + 1)]
        codes = [writer.wait() for writer in writers]
        os.environ.update(s3.environment())
        stored = Lake(uri).scan(BLOCKS).collect()["height"].to_list()
    lost, doubled, expected = differences(stored, commits)
    subject = f"{WRITERS} processes x {commits} commits into one table in S3: rows lost, doubled"
    is_met = lost == doubled == 0 and not any(codes)
    return Figure("workers", subject, f"{lost}, {doubled} of {expected:,}", "0, 0", is_met)


def differences(stored: Iterable[int], commits: int) -> tuple[int, int, int]:
    """Return the number of lost rows, of doubled ones, and of all that the writers have to store.

    `stored` are the heights in the table. Each commit has one row.
    """
    own = (1000 * number + batch for number in range(1, WRITERS + 1) for batch in range(commits))
    rows, expected = Counter(stored), Counter([*range(commits), *own])
    return (expected - rows).total(), (rows - expected).total(), expected.total()


@dataclass(frozen=True, slots=True)
class Case:
    """A chain to index in `jobs` ranges; `span` is the number of blocks of a request."""

    node: str
    latency_ms: int
    blocks: int
    span: int
    jobs: int


async def _turn(case: Case, folder: Path, url: str, workers: int) -> float:
    """Return the seconds in which workers index all final blocks."""
    async with DelayedProxy(case.node, case.latency_ms / 1000).served() as proxy:
        config = _configured(folder, url, proxy if case.latency_ms else case.node, case.span)
        async with opened(url) as queue:
            with _started(config, workers) as processes:
                await asyncio.to_thread(_wait_until_ready, processes)
                start_s = time.perf_counter()
                await _add(queue, case)
                while await queue.jobs():  # noqa: ASYNC110 - the queue of other processes
                    await asyncio.sleep(0.05)
                spent_s = time.perf_counter() - start_s
    stored = Lake(str(folder / "data" / "lake")).count(BLOCKS, "local")
    assert stored > case.blocks - 100, f"{stored} of {case.blocks} blocks are stored"
    return spent_s


def _configured(folder: Path, url: str, rpc: str, span: int) -> Path:
    """Write the settings of a turn and return their file: only added jobs index blocks, so ranges never overlap."""
    config = folder / "chainfolio.toml"
    chain = f'[chains.local]\nrpc = ["{rpc}"]\nspan = {span}\nindex = "accounts"\n'
    config.write_text(f'data = "data"\n[tail]\nurl = "{url}"\n[schedule]\nmaterialise = ""\nvacuum = ""\n{chain}')
    return config


async def _add(queue: JobQueue, case: Case) -> None:
    size = -(-case.blocks // case.jobs)
    for first in range(0, case.blocks, size):
        await queue.add("index", "local", first=first, last=min(first + size, case.blocks) - 1)


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
    parser.add_argument("--commits", type=int, default=100)


if __name__ == "__main__":
    main(__doc__, run, add)
