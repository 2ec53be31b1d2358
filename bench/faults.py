"""Index with one fault of rented endpoints at a time: completeness, cost, and reported errors.

python -m bench.faults [--blocks 400] [--peers cryo,sqd,envio,ponder]
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import peers, truth
from bench.figures import Figure, main
from bench.node import replay
from bench.places import MissingPrerequisite, recorded, scratch
from bench.runs import empty, index

SCENARIOS = {
    "clean": (),
    "latency 60 ms": ("--latency", "60"),
    "range ≤ 50": ("--max-range", "50"),
    "results ≤ 2,000": ("--max-logs", "2000"),
    "20 requests/s": ("--rps", "20"),
    "10 % HTTP 502": ("--fail", "0.1"),
    "30 % answers short": ("--drop", "0.3"),
}
QUIET = ("clean", "latency 60 ms")  # scenarios without an error to report
MAX_RATIO = 1.5
PATIENCE_S = 90
COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one scenario."""

    wall_s: float
    is_complete: bool
    requests: int
    errors: dict[str, int]
    reported: dict[str, Any]
    refusals: int
    peers: dict[str, str]


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    chain = recorded()
    last = chain.first + options.blocks - 1
    expected = truth.digest(truth.recorded_events(chain.folder, chain.first, last))
    with scratch() as folder:
        outcomes = {
            name: _outcome(folder, flags, last, expected, options.peers.split(",")) for name, flags in SCENARIOS.items()
        }
    clean = outcomes["clean"].requests
    figures = [_figure(name, outcome, clean) for name, outcome in outcomes.items()]
    good = sum(figure.met is True for figure in figures)
    max_ratio = max(outcome.requests for outcome in outcomes.values()) / clean
    complete_peers = dict.fromkeys(outcomes["clean"].peers, 0)
    for outcome in outcomes.values():
        for peer, result in outcome.peers.items():
            complete_peers[peer] += result == COMPLETE
    text = f"{good} of {len(figures)}, at most {max_ratio:.1f} x the requests"
    if complete_peers:
        text += f" ({', '.join(f'{peer} {count}' for peer, count in complete_peers.items())})"
    name = f"faulty nodes: {', '.join(list(SCENARIOS)[1:])}"
    bar = f"all complete, ≤ {MAX_RATIO} x, trouble named"
    return [*figures, Figure("faults", name, text, bar, good == len(figures))]


def _outcome(folder: Path, flags: tuple[str, ...], last: int, expected: str, chosen: Sequence[str]) -> Outcome:
    with replay(*flags) as node:
        result = index(node.url, empty(folder / "ours"), last=last, limit_s=120)
        stats = node.stats()
        reported = result.json() if result.output.strip() else {}
        errors: dict[str, int] = {}
        for counts in reported.get("errors", {}).values():
            for kind, count in counts.items():
                errors[kind] = errors.get(kind, 0) + count
        is_complete = result.code == 0 and truth.digest(truth.stored_events(folder / "ours")) == expected
        peer_results = _peers(node.url, folder, last, chosen)
    refusals = stats["rejected"] + stats["failed"]
    return Outcome(result.wall_s, is_complete, stats["http"], errors, reported, refusals, peer_results)


def _peers(url: str, folder: Path, last: int, chosen: Sequence[str]) -> dict[str, str]:
    """Run the installed peers against the same node; return COMPLETE or the shortfall of each."""
    chain = recorded()
    part = last - chain.first + 1
    results = {}
    if "cryo" in chosen:
        with contextlib.suppress(MissingPrerequisite):
            run = peers.cryo(url, folder / "cryo", last=last)
            results["cryo"] = _completeness(peers.cryo_rows(folder / "cryo"), chain.transfers * part // chain.blocks)
            if run.code or results["cryo"] != COMPLETE:
                results["cryo"] += f", exit {run.code}"
    for framework in peers.frameworks():
        if framework.name.split()[0].lower() in chosen:
            wall_s, events = framework.run(url, limit_s=PATIENCE_S, last=last)
            results[framework.name] = _completeness(events, chain.events * part // chain.blocks)
            if wall_s >= PATIENCE_S:
                results[framework.name] += f" after {PATIENCE_S} s"
    return results


def _completeness(rows: int, expected: int) -> str:
    return COMPLETE if rows == expected else f"{rows:,} of {expected:,}"


def _figure(name: str, outcome: Outcome, clean: int) -> Figure:
    ratio = outcome.requests / clean
    errors = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.errors.items()))
    value = (
        f"{'complete' if outcome.is_complete else 'INCOMPLETE'}, {outcome.wall_s:.1f} s, {outcome.requests} requests"
        f" ({ratio:.1f} x){f'; {errors}' if errors else ''}"
        + "".join(f"; {peer}: {result}" for peer, result in outcome.peers.items())
    )
    is_named = name in QUIET or bool(outcome.errors) or (outcome.refusals == 0 and name.startswith(("20", "10")))
    is_met = outcome.is_complete and ratio <= MAX_RATIO and is_named
    return Figure(
        "faults",
        name,
        value,
        f"complete, ≤ {MAX_RATIO} x, named",
        is_met,
        {"reported": outcome.reported},
        in_readme=False,
    )


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--blocks", type=int, default=400, help="of the recorded chain")
    parser.add_argument("--peers", default="cryo,sqd", help="of cryo, sqd, envio, ponder; those that are installed")


if __name__ == "__main__":
    main(__doc__, run, add)
