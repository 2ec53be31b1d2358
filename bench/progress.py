"""How well a run foretells its own end, and how well `--estimate` foretold the run.

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
class Told:
    """What a run said of itself at one moment."""

    share: float
    at_s: float
    eta_s: float


def run(_: argparse.Namespace) -> list[Figure]:
    """Measure."""
    figures: list[Figure] = []
    for times, latency in RUNS:
        with replay("--latency", str(latency), "--times", str(times)) as node, scratch() as folder:
            told, total_s = asyncio.run(_told(node.url, folder / "told", times))
            figures += [*_eta(told, total_s), *_estimated(node, folder / "ours", times)]
    return figures


async def _told(url: str, data: Path, times: int) -> tuple[list[Told], float]:
    """One run with somebody who writes down what it says; its seconds until the last commit."""
    chain = recorded()
    span = Span(chain.first, chain.first + times * chain.blocks - 1)
    system = System(Settings(data=str(data), chains={"local": EvmSettings(rpc=[url])}))
    heard: list[Told] = []

    def hear(progress: Progress) -> None:
        if progress.eta_s is not None:
            heard.append(Told(progress.blocks / progress.blocks_total, progress.seconds, progress.eta_s))

    try:
        local = system.chain("local")
        await local.heads()
        work = missing(system.tail, "local", span, ("transfers", "approvals"), [])
        progress = Progress(system.environment.clock, len(span), on_change=hear)
        await Collector(local, system.lake, system.tail, system.environment, progress).run(work)
        return heard, progress.seconds
    finally:
        await system.close()


def _eta(told: list[Told], total_s: float) -> list[Figure]:
    counted = [one for one in told if FROM <= one.share < 1]
    ends = [(one.at_s + one.eta_s) / total_s - 1 for one in counted]
    left = [one.eta_s / (total_s - one.at_s) - 1 for one in counted if one.share <= 0.9]
    worst = max(ends, key=abs)
    met = abs(worst) <= WITHIN
    return [
        Figure(
            "progress",
            f"error of the foretold end from 10 % on: {total_s:.0f} s, {len(told)} chunks",
            f"{min(ends):+.0%} to {max(ends):+.0%} (n={len(ends)})",
            "within ±20 %",
            met,
            {"ends": ends},
        ),
        Figure(
            "progress",
            f"error of the time left from 10 % to 90 %: {len(told)} chunks",
            f"{min(left):+.0%} to {max(left):+.0%}, median {statistics.median(left):+.0%}",
            detail={"left": left},
        ),
    ]


def _estimated(node: ReplayNode, data: Path, times: int) -> list[Figure]:
    """`--estimate` beside the run that it was about."""
    chain = recorded()
    last = chain.first + times * chain.blocks - 1
    said = index(node.url, empty(data), "--estimate", last=last).done().json()
    asked = node.stats()
    node.reset()
    done: Run = index(node.url, empty(data), last=last).done()
    real = {
        "events": truth.count(data, "transfers") + truth.count(data, "approvals"),
        "requests": node.stats()["http"],
        "seconds": done.json()["seconds"],
    }
    errors = {name: said[name] / real[name] - 1 for name in real}
    text = ", ".join(f"{name} {said[name]:,} for {real[name]:,.0f} ({errors[name]:+.0%})" for name in real)
    detail = {"said": said, "real": real, "asked": asked["http"]}
    met = all(abs(error) <= WITHIN for error in errors.values())
    return [Figure("progress", f"--estimate: {times * chain.blocks:,} blocks", text, "within ±20 %", met, detail)]


if __name__ == "__main__":
    main(__doc__, run)
