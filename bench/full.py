"""Compare the whole ERC-20 case (events, balances, allowances, block times) with indexing frameworks.

python -m bench.full [--repeat 3] [--peers sqd,envio,ponder]
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from bench import peers, truth
from bench.figures import Figure, main, spread
from bench.node import ReplayNode, replay
from bench.places import recorded, scratch
from bench.runs import FULL, Run, empty, index, size

BAR = 1 / 8


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    chosen = [
        framework for framework in peers.frameworks() if framework.name.split()[0].lower() in options.peers.split(",")
    ]
    runs: list[Run] = []
    theirs: dict[str, list[float]] = {framework.name: [] for framework in chosen}
    with scratch() as folder, replay() as node:
        data = folder / "ours"
        index(node.url, empty(data), datasets=FULL).checked()
        for _ in range(options.repeat):
            runs.append(index(node.url, empty(data), datasets=FULL).checked())
            for framework in chosen:
                theirs[framework.name].append(_wall_s(framework, node))
        return [*_against([each.wall_s for each in runs], theirs), *_exact(folder / "ours", runs)]


def _wall_s(framework: peers.Framework, node: ReplayNode) -> float:
    wall_s, events = framework.run(node.url)
    assert events == recorded().events, f"{framework.name} has {events} events after {wall_s:.0f} s"
    return wall_s


def _against(own_walls: list[float], theirs: dict[str, list[float]]) -> list[Figure]:
    figures = [Figure("full", "wall s of ours", spread(own_walls), detail={"walls_s": own_walls})]
    if not theirs:
        return [*figures, Figure("full", "wall / best framework", "none is installed here", f"≤ 1/{1 / BAR:.0f}")]
    medians = {name: statistics.median(walls) for name, walls in theirs.items()}
    best = min(medians, key=lambda name: medians[name])
    ratios = [a / b for a, b in zip(own_walls, theirs[best], strict=True)]
    text = f"1/{1 / statistics.median(ratios):.1f} [1/{1 / min(ratios):.1f}–1/{1 / max(ratios):.1f}] (n={len(ratios)})"
    peer_list = ", ".join(f"{name} {wall:.1f} s" for name, wall in sorted(medians.items(), key=lambda pair: pair[1]))
    return [
        *figures,
        Figure(
            "full",
            f"wall / best framework: {peer_list}",
            text,
            f"≤ 1/{1 / BAR:.0f}",
            statistics.median(ratios) <= BAR,
            {"walls_s": theirs},
        ),
    ]


def _exact(data: Path, runs: list[Run]) -> list[Figure]:
    chain = recorded()
    events = truth.recorded_events(chain.folder, chain.first, chain.last)
    balances, allowed = truth.stored_balances(data), truth.stored_allowances(data)
    is_equal = balances == truth.balances(events) and allowed == truth.allowances(events)
    blocks = truth.count(data, "blocks")
    return [
        Figure(
            "full",
            "balances, allowances and blocks against an independent computation",
            f"{len(balances):,} + {len(allowed):,} {'equal' if is_equal else 'DIFFERENT'}, {blocks:,} blocks",
            "exact",
            is_equal and blocks == chain.blocks,
            {"bytes": size(data), "cpu_s": [each.cpu_s for each in runs]},
        )
    ]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--repeat", type=int, default=3, help="counted rounds")
    parser.add_argument("--peers", default="sqd,envio", help="of sqd, envio, ponder; those that are installed")


if __name__ == "__main__":
    main(__doc__, run, add)
