"""Measure the errors of a run's remaining time, and of `--estimate`.

python -m bench.progress
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from dataclasses import dataclass
from pathlib import Path

from bench import truth
from bench.figures import Figure, main
from bench.node import ReplayNode, replay
from bench.places import recorded, scratch
from bench.runs import Run, empty, index
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.blocks import Span
from chainfolio.indexer.collect import Collector
from chainfolio.indexer.progress import Progress
from chainfolio.indexer.wiring import System
from chainfolio.indexer.work import missing
from chainfolio.settings import Settings

WITHIN = 0.2
FROM = 0.1
RUNS = ((1, 600), (5, 150))  # how long the chain, how slow the node (ms): a run of few chunks, and one of many


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """Progress that a run reported at one time."""

    share: float
    at_s: float
    eta_s: float


def run(_: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    figures: list[Figure] = []
    for times, latency in RUNS:
        with replay("--latency", str(latency), "--times", str(times)) as node, scratch() as folder:
            reports, total_s = asyncio.run(_watched_run(node.url, folder / "told", times))
            figures += [*_eta(reports, total_s), *_estimated(node, folder / "ours", times)]
    return figures


async def _watched_run(url: str, data: Path, times: int) -> tuple[list[ProgressReport], float]:
    """Run once; return its progress reports, and the seconds until the last commit."""
    chain = recorded()
    span = Span(chain.first, chain.first + times * chain.blocks - 1)
    system = System(Settings(data=str(data), chains={"local": EvmSettings(rpc=[url])}))
    reports: list[ProgressReport] = []

    def record(progress: Progress) -> None:
        if progress.eta_s is not None:
            reports.append(ProgressReport(progress.blocks / progress.blocks_total, progress.seconds, progress.eta_s))

    try:
        local = system.chain("local")
        await local.heads()
        work = missing(system.tail, "local", span, ("transfers", "approvals"), [])
        progress = Progress(system.environment.clock, len(span), on_change=record)
        await Collector(local, system.lake, system.tail, system.environment, progress).run(work)
        return reports, progress.seconds
    finally:
        await system.close()


def _eta(reports: list[ProgressReport], total_s: float) -> list[Figure]:
    relevant = [report for report in reports if FROM <= report.share < 1]
    ends = [(report.at_s + report.eta_s) / total_s - 1 for report in relevant]
    errors = [report.eta_s / (total_s - report.at_s) - 1 for report in relevant if report.share <= 0.9]
    worst = max(ends, key=abs)
    is_met = abs(worst) <= WITHIN
    return [
        Figure(
            "progress",
            f"error of the foretold end from 10 % on: {total_s:.0f} s, {len(reports)} chunks",
            f"{min(ends):+.0%} to {max(ends):+.0%} (n={len(ends)})",
            "within ±20 %",
            is_met,
            {"ends": ends},
        ),
        Figure(
            "progress",
            f"error of the time left from 10 % to 90 %: {len(reports)} chunks",
            f"{min(errors):+.0%} to {max(errors):+.0%}, median {statistics.median(errors):+.0%}",
            detail={"left": errors},
        ),
    ]


def _estimated(node: ReplayNode, data: Path, times: int) -> list[Figure]:
    """Compare `--estimate` with the run that follows."""
    chain = recorded()
    last = chain.first + times * chain.blocks - 1
    estimate = index(node.url, empty(data), "--estimate", last=last).checked().json()
    stats = node.stats()
    node.reset()
    result: Run = index(node.url, empty(data), last=last).checked()
    real = {
        "events": truth.count(data, "transfers") + truth.count(data, "approvals"),
        "requests": node.stats()["http"],
        "seconds": result.json()["seconds"],
    }
    errors = {name: estimate[name] / real[name] - 1 for name in real}
    text = ", ".join(f"{name} {estimate[name]:,} for {real[name]:,.0f} ({errors[name]:+.0%})" for name in real)
    detail = {"said": estimate, "real": real, "asked": stats["http"]}
    is_met = all(abs(error) <= WITHIN for error in errors.values())
    return [Figure("progress", f"--estimate: {times * chain.blocks:,} blocks", text, "within ±20 %", is_met, detail)]


if __name__ == "__main__":
    main(__doc__, run)
