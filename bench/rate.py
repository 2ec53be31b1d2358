"""Measure indexing of logs against cryo: rate, size, memory, requests, exactness.

python -m bench.rate [--repeat 7] [--times 10]
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from bench import peers, truth
from bench.figures import Figure, main, spread
from bench.node import ReplayNode, replay
from bench.places import MissingPrerequisite, recorded, scratch
from bench.runs import USUAL, Run, empty, index, size

DATASETS = {"cryo-erc20": "erc20_transfers", "cryo-logs": "logs"}


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    with scratch() as folder:
        with replay() as node:
            runs, theirs = _interleaved(node, folder, options.repeat)
            figures = [*_against(runs, theirs), *_exact(folder / "ours")]
            figures += _requests(node, folder / "ours")
        return [*figures, *_memory(folder / "ours", options.times)]


def _interleaved(node: ReplayNode, folder: Path, repeat: int) -> tuple[list[Run], dict[str, list[Run]]]:
    """Run the product and cryo in turns, without the first round; only the product if cryo is missing."""
    own_runs: list[Run] = []
    theirs: dict[str, list[Run]] = {}
    for _ in range(repeat + 1):
        own_runs.append(index(node.url, empty(folder / "ours")).checked())
        try:
            for name, dataset in DATASETS.items():
                theirs.setdefault(name, []).append(_cryo(node, folder / name, dataset))
        except MissingPrerequisite as error:
            theirs.clear()
            print(error)
    return own_runs[1:], {name: runs[1:] for name, runs in theirs.items()}


def _cryo(node: ReplayNode, target: Path, dataset: str) -> Run:
    """Run cryo and check the number of its rows; its exit code is ignored, as it may crash at the end."""
    result = peers.cryo(node.url, target, dataset=dataset)
    expected = recorded().events if dataset == "logs" else recorded().transfers
    assert peers.cryo_rows(target) == expected, f"cryo wrote {peers.cryo_rows(target)} rows, not {expected}"
    return result


def _against(own_runs: list[Run], theirs: dict[str, list[Run]]) -> list[Figure]:
    walls = [each.wall_s for each in own_runs]
    rate = recorded().events / statistics.median(walls)
    details: dict[str, Any] = {"walls_s": walls, "cpu_s": [each.cpu_s for each in own_runs]}
    figures = [
        Figure("rate", "wall s, process start to end", f"{spread(walls)}, {rate / 1000:.0f} k events/s", detail=details)
    ]
    for name, runs in theirs.items():
        ratios = [a.wall_s / b.wall_s for a, b in zip(own_runs, runs, strict=True)]
        cpu = statistics.median(a.cpu_s / b.cpu_s for a, b in zip(own_runs, runs, strict=True))
        is_met = statistics.median(ratios) <= 1.3 if name == "cryo-erc20" else None
        figures.append(
            Figure(
                "rate",
                f"wall / {name}",
                f"{spread(ratios)}, CPU {cpu:.2f}",
                "≤ 1.3" if is_met is not None else "",
                is_met,
                {"walls_s": [each.wall_s for each in runs], "cpu_s": [each.cpu_s for each in runs]},
            )
        )
    return figures


def _exact(data: Path) -> list[Figure]:
    chain = recorded()
    counts = (truth.count(data, "transfers"), truth.count(data, "approvals"))
    expected = truth.digest(truth.recorded_events(chain.folder, chain.first, chain.last))
    is_equal = truth.digest(truth.stored_events(data)) == expected
    per_event = size(data) / chain.events
    return [
        Figure(
            "rate",
            "rows, and digest against an independent decoder",
            f"{counts[0]:,} + {counts[1]:,}, digest {'equal' if is_equal else 'DIFFERENT'}",
            "exact",
            counts == (chain.transfers, chain.approvals) and is_equal,
            {"digest": expected},
        ),
        Figure("rate", "bytes per event, whole data folder", f"{per_event:.1f}", "≤ 25", per_event <= 25),
    ]


def _requests(node: ReplayNode, data: Path) -> list[Figure]:
    node.reset()
    index(node.url, empty(data)).checked()
    stats = node.stats()
    logs = stats["calls"]["eth_getLogs"]
    other_requests = stats["http"] - logs
    allowed = -(-recorded().blocks // 100) + 2
    return [
        Figure(
            "rate",
            "requests: logs, header batches and handshake",
            f"{logs} + {other_requests}",
            f"≤ 50 and ≤ {allowed}",
            logs <= 50 and other_requests <= allowed,
            stats["calls"] | {"http": stats["http"]},
        )
    ]


def _memory(data: Path, times: int) -> list[Figure]:
    """Compare peak memory of a short chain with that of a chain many times as long."""
    chain = recorded()
    with replay("--times", str(times)) as node:
        short = [index(node.url, empty(data), watched=True).checked().peak_mb for _ in range(3)]
        usual = [index(node.url, empty(data), datasets=USUAL, watched=True).checked().peak_mb for _ in range(2)]
        last = chain.first + times * chain.blocks - 1
        long = index(node.url, empty(data), last=last, watched=True).checked()
    rows = truth.count(data, "transfers") + truth.count(data, "approvals")
    assert rows == times * chain.events, f"{rows} rows of a chain with {times * chain.events}"
    peak, growth = max(short), long.peak_mb / statistics.median(short)
    return [
        Figure(
            "rate",
            "peak memory of all processes, MB",
            f"{peak:.0f}",
            "≤ 300",
            peak <= 300,
            {"peaks_mb": short},
        ),
        Figure(
            "rate",
            "peak memory with the usual datasets, derived tables too, MB",
            f"{max(usual):.0f}",
            "≤ 400",
            max(usual) <= 400,
            {"peaks_mb": usual},
        ),
        Figure(
            "rate",
            f"memory at {times} x the blocks and events",
            f"{long.peak_mb:.0f} MB, {growth:.2f} x; {rows / long.wall_s / 1000:.0f} k events/s",
            "≤ 1.2 x, ≤ 300 MB",
            growth <= 1.2 and long.peak_mb <= 300,
            {"rows": rows, "wall_s": long.wall_s},
        ),
    ]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--repeat", type=int, default=7, help="counted rounds")
    parser.add_argument("--times", type=int, default=10, help="how much longer the chain of the memory test is")


if __name__ == "__main__":
    main(__doc__, run, add)
